// An init that breaks the protocol costs its box, and nothing else.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <thread>

#include "leak/leak.h"

namespace temenos::leak {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using Clock = std::chrono::steady_clock;

// What session may ever hold; its own limit of address space is higher.
constexpr long kMaxSessionKb = 32 * 1024;
// Far above what any of these takes; far below a hang.
constexpr std::chrono::seconds kMaxTime{25};

// Watches the sessions whose keeper was started by this process, until it is destroyed.
class SessionWatch {
 public:
  SessionWatch()
      : thread_([this] {
          // Often enough to see what lives for a few hundred milliseconds, and no busy loop.
          for (; !done_; std::this_thread::sleep_for(std::chrono::milliseconds(2))) {
            for (const auto& [pid, name] : descendants(getpid())) {
              if (name != "temenos-session") continue;
              const std::string status = read_text("/proc/" + std::to_string(pid) + "/status");
              const auto at = status.find("VmHWM:");
              if (at == std::string::npos) continue;
              peak_kb_ = std::max(peak_kb_.load(), strtol(status.c_str() + at + 6, nullptr, 10));
            }
          }
        }) {}
  ~SessionWatch() { stop(); }
  // The highest resident memory seen, in KiB; 0: none was seen.
  long stop() {
    done_ = true;
    if (thread_.joinable()) thread_.join();
    return peak_kb_;
  }

 private:
  std::atomic<bool> done_ = false;
  std::atomic<long> peak_kb_ = 0;
  std::thread thread_;
};

class HostileInit : public ::testing::TestWithParam<const char*> {
 protected:
  HostileInit() : product_(host_.dir("prefix")) {
    const std::string init = product_.libexec() + "/temenos-init";
    EXPECT_EQ(testing::host_shell("rm " + init + " && cp " + testing::guest("leak_hostile_init") +
                                  " " + init + " 2>&1"),
              "");
  }

  CliResult run_with(const std::string& way, const Words& flags = {}) {
    host_.file("way", way);
    Words all{"--volume", host_.path() + "/way:/leak/way:ro"};
    all.insert(all.end(), flags.begin(), flags.end());
    const auto begin = Clock::now();
    auto result = host_.temenos(run("systrap", all, {"true"}));
    spent_ = Clock::now() - begin;
    return result;
  }

  const TestHost host_;
  const StagedProduct product_;
  Clock::duration spent_{};
};

void expect_one_error_line(const CliResult& result) {
  EXPECT_EQ(result.status, 125);
  EXPECT_THAT(result.err, ::testing::StartsWith("temenos: "));
  EXPECT_EQ(result.err.find('\n'), result.err.size() - 1) << result.err;
}

TEST_P(HostileInit, CostsItsBox) {
  const testing::Leftovers leftovers(host_);
  SessionWatch watch;
  const auto result = run_with(GetParam());
  const long peak = watch.stop();
  expect_one_error_line(result);
  EXPECT_THAT(result.err, AnyOf(HasSubstr("protocol"), HasSubstr("ended with status")));
  EXPECT_LT(spent_, kMaxTime);
  EXPECT_GT(peak, 0) << "the session was never seen";
  EXPECT_LT(peak, kMaxSessionKb);
  EXPECT_EQ(leftovers.check(), "");
}

// What breaks no rule but never ends is ended by the command's own time-out.
TEST_F(HostileInit, WhatNeverEndsEndsAtTheTimeOut) {
  const testing::Leftovers leftovers(host_);
  for (const char* way : {"silent", "half", "small flood"}) {
    SessionWatch watch;
    const auto result = run_with(way, {"--timeout", "1"});
    EXPECT_LT(watch.stop(), kMaxSessionKb) << way;
    // A flood may run out of credit before, when nobody reads as fast.
    EXPECT_THAT(result.status, AnyOf(124, 125)) << way;
    EXPECT_THAT(result.err, AnyOf(HasSubstr("timed out after"), HasSubstr("protocol"))) << way;
    EXPECT_LT(spent_, kMaxTime);
  }
  EXPECT_EQ(leftovers.check(), "");
}

// Silence before it ends at the time-out of a start.
TEST_F(HostileInit, ABoxThatNeverGreets) {
  const testing::Leftovers leftovers(host_);
  const auto result = run_with("drip");
  expect_one_error_line(result);
  EXPECT_THAT(result.err, HasSubstr("did not start in time"));
  EXPECT_LT(spent_, 2 * kMaxTime);
  EXPECT_EQ(leftovers.check(), "");
}

INSTANTIATE_TEST_SUITE_P(By, HostileInit,
                         ::testing::Values("magic", "version", "hello id", "length", "flags",
                                           "garbage", "no hello", "exit", "foreign id", "huge id",
                                           "exited first", "started twice", "unknown type",
                                           "client type", "long frame", "empty output",
                                           "stat reply", "stream", "hello twice", "flood",
                                           "credit flood", "pong flood", "done flood", "more",
                                           "after eof", "signal 200", "exited twice", "processes"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), ' ', '_');
                           return name;
                         });

}  // namespace
}  // namespace temenos::leak
