// The limit of processes: bombs of every kind, in many boxes at once, have their share of the
// host's tasks and no more, and everybody else goes on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <thread>

#include "box/limit_plan.h"
#include "tests/limits/limits_test.h"

namespace temenos::testing {
namespace {

using std::chrono::steady_clock;
using namespace std::chrono_literals;
using ::testing::AnyOf;
using ::testing::HasSubstr;

constexpr std::int64_t kPids = 64;
constexpr std::int64_t kMemoryMb = 512;

// The user can still make processes.
int forks(int count) {
  std::vector<pid_t> children;
  for (int n = 0; n < count; ++n) {
    const pid_t child = fork();
    if (child == 0) {
      pause();
      _exit(0);
    }
    if (child > 0) children.push_back(child);
  }
  for (const pid_t child : children) {
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
  }
  return static_cast<int>(children.size());
}

class ProcessLimit : public LimitsTest, public ::testing::WithParamInterface<std::string> {
 protected:
  // Of the host, for one box: what is set, a few that RLIMIT_NPROC grants beside it, and helper
  // with what starts the sandbox.
  long cap() const { return static_cast<long>(box::host_tasks_for(kPids + 1, GetParam())) + 32; }
  Box bombed(const std::string& name, const std::vector<std::string>& argv) {
    Box box =
        start(name, {.limits = {.memory_mb = kMemoryMb, .pids = kPids}, .platform = GetParam()});
    const auto stats = box.stats();
    EXPECT_TRUE(stats) << stats.error().to_string();
    held_ = stats && stats->tasks_held;
    auto request = command(argv);
    // A time-out would end the bomb, or, where the bomb is faster than its kill, the box.
    request.timeout = {};
    const auto job = box.start_job(request);
    EXPECT_TRUE(job) << job.error().to_string();
    return box;
  }
  // Looks at all of them for a time, and on a machine that has much to do until they have exploded.
  // A bomb that is none proves nothing: together they have at least so many. (Of the host: on
  // systrap the threads of a guest's process share a few.)
  void watch(const std::vector<std::string>& names, std::chrono::milliseconds time,
             long at_least = kPids) {
    long most = 0;
    const auto begin = steady_clock::now();
    const auto goes_on = [&] {
      const auto now = steady_clock::now();
      return now < begin + time || (most <= at_least && now < begin + patience(30));
    };
    while (goes_on()) {
      for (const auto& name : names) {
        const long now = host_tasks(name);
        EXPECT_LE(now, cap()) << name;
        most = std::max(most, now);
      }
      EXPECT_EQ(forks(50), 50) << "the user has no processes left";
      std::this_thread::sleep_for(50ms);
    }
    RecordProperty("most_host_tasks", std::to_string(most));
    EXPECT_GT(most, at_least) << "nothing has exploded";
  }
  // It lives, or its keeper has written down why it ended: by a limit.
  void expect_named(const Box& box, const std::string& name) {
    if (box.is_alive()) return;
    EXPECT_THAT(audit(name), AnyOf(HasSubstr("\"reason\":\"process_limit\""),
                                   HasSubstr("\"reason\":\"out_of_memory\"")));
  }
  // Of the bomb of that name.
  void expect_its_share(const std::string& name);
  bool held_ = false;
};
INSTANTIATE_TEST_SUITE_P(Each, ProcessLimit, ::testing::ValuesIn(platforms()),
                         [](const auto& info) { return info.param; });

struct Bomb {
  const char* name;
  std::vector<std::string> argv;
};
const std::vector<Bomb>& bombs() {
  static const std::vector<Bomb> all{
      {"plain", {"/use/up", "bomb"}},
      {"shell", {"bash", "-c", "f() { f | f & }; f; wait"}},
      {"userns", {"unshare", "-U", "/use/up", "bomb"}},
      {"ids", {"/use/up", "bomb-ids"}},
      {"threads", {"/use/up", "bomb-threads"}},
  };
  return all;
}

void ProcessLimit::expect_its_share(const std::string& name) {
  const auto bomb = std::find_if(bombs().begin(), bombs().end(),
                                 [&name](const Bomb& one) { return one.name == name; });
  ASSERT_NE(bomb, bombs().end());
  Box box = bombed(name, bomb->argv);
  watch({name}, is_slow_machine() ? 20'000ms : 1500ms, name == "threads" ? kPids / 4 : kPids);
  expect_named(box, name);
}

TEST_P(ProcessLimit, ABombHasItsShare) { expect_its_share("plain"); }
TEST_P(ProcessLimit, ABombOfShellsHasItsShare) { expect_its_share("shell"); }
TEST_P(ProcessLimit, ABombInUserNamespacesHasItsShare) { expect_its_share("userns"); }
TEST_P(ProcessLimit, ABombOfManyUserIdsHasItsShare) { expect_its_share("ids"); }
TEST_P(ProcessLimit, ABombOfThreadsHasItsShare) { expect_its_share("threads"); }

TEST_P(ProcessLimit, TenBoxesAtOnceLeaveRoomForOthers) {
  Box witness = start("witness", {.platform = GetParam()});
  const int times = is_slow_machine() ? 7 : 41;
  const double quiet = exec_ms(witness, times);
  std::vector<std::string> names;
  std::vector<Box> boxes;
  // Where nobody holds their CPU time they have all of the machine, and more of them show no more.
  const int count = is_slow_machine() ? 3 : witness.stats()->cpu_held ? 10 : 4;
  for (int n = 0; n < count; ++n) {
    const auto& bomb = bombs()[static_cast<std::size_t>(n) % bombs().size()];
    names.push_back(std::string(bomb.name) + std::to_string(n));
    boxes.push_back(bombed(names.back(), bomb.argv));
  }
  watch(names, is_slow_machine() ? 20'000ms : 3000ms);
  // Other tests share the machine's CPUs, the bombs' ten groups with them: of three looks the best.
  double busy = exec_ms(witness, times);
  for (int n = 0; n < 2 && busy >= 10 * quiet; ++n) {
    busy = std::min(busy, exec_ms(witness, times));
  }
  // Else it was busy with nothing: a bomb that has ended its box burdens nobody.
  long still = 0;
  for (const auto& name : names) still += host_tasks(name);
  EXPECT_GT(still, kPids) << "all bombs were over before they were measured";
  RecordProperty("quiet_ms", std::to_string(quiet));
  RecordProperty("busy_ms", std::to_string(busy));
  if (witness.stats()->cpu_held) EXPECT_LT(busy, 10 * quiet);
  EXPECT_EQ(output(witness, "echo well"), "well\n");
  if (geteuid() == 0) {
    EXPECT_EQ(
        host_shell("setpriv --reuid=65534 --regid=65534 --clear-groups sh -c 'echo in | cat'"),
        "in\n");
  }
  for (std::size_t n = 0; n < boxes.size(); ++n) expect_named(boxes[n], names[n]);
}

// The most usual way to meet it.
TEST_P(ProcessLimit, ACommandThatWantsTooManyIsToldAndTheBoxLives) {
  Box box = start("small", {.limits = {.pids = 5}, .platform = GetParam()});
  EXPECT_THAT(output(box, "for n in 1 2 3 4 5 6 7 8; do sleep 30 & done; wait"),
              HasSubstr("Cannot fork"));
  EXPECT_EQ(output(box, "echo well"), "well\n");
}

TEST_P(ProcessLimit, AHundredThousandThreadsAreNotToBeHad) {
  Box box = start("threads", {.limits = {.pids = kPids}, .platform = GetParam()});
  const auto job = box.start_job(use_up({"threads", "100000"}));
  ASSERT_TRUE(job) << job.error().to_string();
  watch({"threads"}, is_slow_machine() ? 20'000ms : 1000ms, kPids / 4);
  EXPECT_TRUE(box.signal_job(*job, 0));
  EXPECT_TRUE(box.wait_job(*job, patience(30)));
  const auto log = box.job_log(*job, 0, 4096);
  ASSERT_TRUE(log) << log.error().to_string();
  // Init, use_up and its threads.
  if (!log->chunks.empty()) EXPECT_LE(atol(log->chunks[0].bytes.c_str()), kPids);
}

TEST_P(ProcessLimit, ItIsCountedExactly) {
  Box box = start("exact", {.limits = {.pids = kPids}, .platform = GetParam()});
  // Use_up itself is the first.
  const auto job = box.start_job(use_up({"threads", "100000"}));
  ASSERT_TRUE(job) << job.error().to_string();
  std::string said;
  for (const auto end = steady_clock::now() + patience(30);
       said.empty() && steady_clock::now() < end; std::this_thread::sleep_for(10ms)) {
    const auto log = box.job_log(*job, 0, 4096);
    ASSERT_TRUE(log) << log.error().to_string();
    if (!log->chunks.empty()) said = log->chunks[0].bytes;
  }
  EXPECT_EQ(said, std::to_string(kPids - 1) + "\n");
  const auto more = box.exec(command({"true"}));
  ASSERT_FALSE(more) << text_of(more);
  EXPECT_EQ(more.error().sys_errno, EAGAIN) << more.error().to_string();
  ASSERT_TRUE(box.signal_job(*job, 0));
  EXPECT_TRUE(box.wait_job(*job, patience(30)));
  EXPECT_EQ(output(box, "echo well"), "well\n");
}

// Whatever his boxes may have, and without a group: a quarter of what he can have at all is not
// theirs.
TEST_P(ProcessLimit, AQuarterOfTheUsersOwnIsNotForBoxes) {
  if (geteuid() == 0) GTEST_SKIP() << "root has no limit of processes";
  // Not a bomb, which would be gone: as many as would stay, and leave him next to none of his 800.
  const std::string count = GetParam() == "ptrace" ? "150" : "340";
  // Then he starts a hundred more.
  const std::string script =
      "ulimit -u 800; \"$@\" >out 2>err & box=$!; until grep -q done out || ! kill -0 $box; do "
      "sleep 0.1; done 2>/dev/null; for n in $(seq 100); do sleep 1000 & done; "
      "jobs -r | grep -c sleep; kill -TERM $box 2>/dev/null; kill $(jobs -p); wait";
  Program program(host_,
                  with_tasks_of_its_own(
                      script, {temenos_program(), "run", "--no-net", "--platform", GetParam(),
                               "--pids", "100000", "--volume", guest("use_up") + ":/use/up:ro",
                               "--", "/use/up", "processes", count, "1"}),
                  {}, host_.path());
  const auto result = program.finish(static_cast<int>(patience(60).count()));
  EXPECT_EQ(result.out, "100\n") << result.err;
}

// Ordinary work within what a box gets that nobody has limited.
TEST_P(ProcessLimit, ABoxThatNobodyHasLimitedHasEnough) {
  Box box = start("usual", {.platform = GetParam()});
  EXPECT_EQ(output(box, "for n in $(seq 120); do sleep 5 & done; wait; echo all"), "all\n");
}

}  // namespace
}  // namespace temenos::testing
