// The limits of CPU: a share that the kernel keeps, and an amount that is the end of the box.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <thread>

#include "tests/limits/limits_test.h"

namespace temenos::testing {
namespace {

using std::chrono::duration;
using std::chrono::steady_clock;
using namespace std::chrono_literals;

constexpr char kBox[] = "busy";

class CpuLimit : public LimitsTest, public ::testing::WithParamInterface<std::string> {
 protected:
  // Empty: this host keeps limits of CPU.
  static std::string lacking(Box& box) {
    const auto stats = box.stats();
    if (!stats) return stats.error().to_string();
    return stats->cpu_held && stats->cpu_us
               ? ""
               : "this host keeps no limit of CPU (driver " + stats->driver + ")";
  }
};
INSTANTIATE_TEST_SUITE_P(Each, CpuLimit, ::testing::ValuesIn(platforms()),
                         [](const auto& info) { return info.param; });

constexpr int kWindows = 10;

TEST_P(CpuLimit, HalfACpuIsHalfACpuForEightBusyLoops) {
  Box box = start(kBox, {.limits = {.cpus = 0.5}, .platform = GetParam()});
  if (const auto why = lacking(box); !why.empty()) GTEST_SKIP() << why;
  const auto job = box.start_job(use_up({"burn", "8", "0"}));
  ASSERT_TRUE(job) << job.error().to_string();
  const auto used = [&] { return static_cast<double>(box.stats()->cpu_us.value()) / 1e6; };
  // Once all of them run.
  const auto begun = used();
  while (used() < begun + 0.5) std::this_thread::sleep_for(20ms);
  // A machine that others keep busy may give less now and then, but never more.
  double share = 0;
  for (int window = 0; window < kWindows && share < 0.45; ++window) {
    const double before = used();
    const auto begin = steady_clock::now();
    std::this_thread::sleep_for(3s);
    share = (used() - before) / duration<double>(steady_clock::now() - begin).count();
    EXPECT_LE(share, 0.55);
  }
  EXPECT_GE(share, 0.45);
}

TEST_P(CpuLimit, SecondsOfItAreTheEndByName) {
  // A start takes some of it, of an emulated CPU most of two seconds.
  const int seconds = is_slow_machine() ? 20 : 2;
  Box box = start(kBox, {.limits = {.cpu_seconds = seconds}, .platform = GetParam()});
  if (const auto why = lacking(box); !why.empty()) GTEST_SKIP() << why;
  Box looker = again(kBox);
  ASSERT_TRUE(looker.start());
  double last = 0;
  std::thread looking([&] {
    for (;;) {
      const auto stats = looker.stats();
      if (!stats) return;
      last = std::max(last, static_cast<double>(stats->cpu_us.value_or(0)) / 1e6);
      std::this_thread::sleep_for(10ms);
    }
  });
  const auto result = box.exec(use_up({"burn", "1", "0"}));
  looking.join();
  ASSERT_FALSE(result) << text_of(result);
  EXPECT_EQ(result.error().code, Code::kBoxDied);
  EXPECT_EQ(box.end_reason(), "cpu_over") << result.error().to_string();
  EXPECT_THAT(result.error().to_string(), ::testing::HasSubstr("--cpu"));
  // Looked at every 10 ms; keeper looks every 50 ms; several CPUs at once use up more between.
  EXPECT_GE(last, 0.8 * seconds);
  EXPECT_LE(last, seconds + (is_slow_machine() ? 2 : 0.6));
}

// Whoever stops the sandbox and kills session must not have the box, and its caller, for ever:
// between looks at its CPU time keeper's patience with helper once began anew.
TEST_P(CpuLimit, ADeadSessionIsTheEndAlsoWhileTheTimeIsLookedAt) {
  Box box = start(kBox, {.limits = {.cpu_seconds = 3}, .platform = GetParam()});
  if (const auto why = lacking(box); !why.empty()) GTEST_SKIP() << why;
  const Generation generation(processes(kBox));
  const auto& pids = generation.processes();
  for (const pid_t pid : {pids.runsc, pids.gofer, pids.sandbox}) {
    ASSERT_GT(pid, 0);
    ASSERT_EQ(kill(pid, SIGSTOP), 0);
  }
  ASSERT_EQ(kill(pids.session, SIGKILL), 0);
  EXPECT_EQ(generation.wait_for_end(static_cast<int>(patience(15).count())), "");
  EXPECT_THAT(audit(kBox), ::testing::HasSubstr("\"reason\":\"session_died\""));
}

}  // namespace
}  // namespace temenos::testing
