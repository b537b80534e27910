#include "box/limit_plan.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "base/text.h"
#include "cgroup/hierarchy.h"

namespace temenos::box {
namespace {

const cgroup::Trial kAll{cgroup::Driver::kCgroup1, {true, true, true}, "", ""};
const cgroup::Trial kNothing{cgroup::Driver::kNone, {}, "no systemd runs", "sudo fix-it"};
constexpr HostSize kHost{8192, 32768};

TEST(LimitPlan, WhatIsAskedForIsSetAndTheHostHasRoomForIt) {
  Limits limits;
  limits.memory_mb = 128;
  limits.cpus = 0.5;
  limits.cpu_seconds = 30;
  limits.pids = 100;
  const auto plan = plan_limits(limits, LimitsMode::kRequired, kAll, "systrap", kHost);
  ASSERT_TRUE(plan) << plan.error().to_string();
  EXPECT_EQ(plan->driver, "cgroup1");
  EXPECT_TRUE(plan->required);
  EXPECT_EQ(plan->memory_mb, 128);
  EXPECT_EQ(plan->cpu_thousandths, 500);
  EXPECT_EQ(plan->cpu_seconds, 30);
  EXPECT_EQ(plan->guest_tasks, 101);  // and the box's init
  EXPECT_EQ(plan->host_tasks, 128 + 8 * 101);
  EXPECT_EQ(plan->note, "");
}

TEST(LimitPlan, TheHostsTasksForThoseOfTheBox) {
  EXPECT_EQ(host_tasks_for(100, "systrap"), 128 + 8 * 100);
  EXPECT_EQ(host_tasks_for(100, "ptrace"), 256 + 16 * 100);
  EXPECT_EQ(host_tasks_for(100, "kvm"), 256 + 16 * 100);
}

TEST(LimitPlan, ABoxThatNobodyLimitedLeavesTheHostAPart) {
  const auto plan = plan_limits({}, LimitsMode::kBestEffort, kAll, "systrap", kHost);
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->memory_mb, 6144);
  EXPECT_EQ(plan->cpu_thousandths, 0);
  EXPECT_LE(plan->host_tasks, 32768 / 8 + 8);
  EXPECT_GE(plan->host_tasks, 32768 / 9);
  EXPECT_EQ(plan->guest_tasks, (4096 - 128) / 8 + 1);
  const auto small = plan_limits({}, LimitsMode::kBestEffort, kAll, "ptrace", {64, 1000});
  ASSERT_TRUE(small);
  EXPECT_EQ(small->memory_mb, 64);
  EXPECT_EQ(small->guest_tasks, 257);
  const auto large = plan_limits({}, LimitsMode::kBestEffort, kAll, "ptrace", {1u << 20, 1u << 22});
  ASSERT_TRUE(large);
  EXPECT_EQ(large->guest_tasks, 4097);
}

// A group of the older hierarchy below the test's own, and this process in it.
class InGroup : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const auto now = cgroup::read_hierarchies();
    ASSERT_TRUE(now);
    const auto found = now->v1.find(GetParam());
    if (found == now->v1.end() || found->second.own.empty()) GTEST_SKIP() << "no such hierarchy";
    before_ = found->second.own;
    outer_ = before_ + "/temenos-test-" + random_hex(6);
    if (mkdir(outer_.c_str(), 0755) != 0) GTEST_SKIP() << "no group can be made";
    inner_ = outer_ + "/inner";
    ASSERT_EQ(mkdir(inner_.c_str(), 0755), 0);
    ASSERT_TRUE(put(inner_ + "/cgroup.procs", "0"));
  }
  void TearDown() override {
    if (inner_.empty()) return;
    EXPECT_TRUE(put(before_ + "/cgroup.procs", "0"));
    EXPECT_EQ(rmdir(inner_.c_str()), 0);
    EXPECT_EQ(rmdir(outer_.c_str()), 0);
  }
  static bool put(const std::string& file, const std::string& text) {
    return static_cast<bool>(std::ofstream(file) << text << std::flush);
  }
  std::string before_;
  std::string outer_;
  std::string inner_;
};
INSTANTIATE_TEST_SUITE_P(Of, InGroup, ::testing::Values("memory", "pids"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(InGroup, TheHostIsNoLargerThanTheLeastLimitAboveThisProcess) {
  const HostSize whole = host_size();
  const bool memory = GetParam() == std::string("memory");
  const char* file = memory ? "/memory.limit_in_bytes" : "/pids.max";
  const auto size = [memory] { return memory ? host_size().memory_mb : host_size().tasks; };
  EXPECT_EQ(size(), memory ? whole.memory_mb : whole.tasks);
  ASSERT_TRUE(put(outer_ + file, memory ? "512M" : "500"));
  EXPECT_EQ(size(), memory ? 512u : 500u);
  ASSERT_TRUE(put(inner_ + file, memory ? "1G" : "600"));
  EXPECT_EQ(size(), memory ? 512u : 500u);
  ASSERT_TRUE(put(inner_ + file, memory ? "256M" : "400"));
  EXPECT_EQ(size(), memory ? 256u : 400u);
}

TEST(LimitPlan, RequiredRefusesWhatTheHostDoesNotKeepAndNamesTheFix) {
  Limits limits;
  limits.memory_mb = 128;
  const auto plan = plan_limits(limits, LimitsMode::kRequired, kNothing, "systrap", kHost);
  ASSERT_FALSE(plan);
  EXPECT_EQ(plan.error().code, Code::kUnsupported);
  EXPECT_EQ(plan.error().to_string(),
            "limits are required, and this host keeps no limit of memory (no systemd runs): "
            "sudo fix-it");
  // A limit of CPU is required where one was asked for.
  const cgroup::Trial no_cpu{cgroup::Driver::kSystemdUser, {true, false, true}, "no cpu", "fix"};
  EXPECT_TRUE(plan_limits(limits, LimitsMode::kRequired, no_cpu, "systrap", kHost));
  limits.cpus = 1;
  EXPECT_FALSE(plan_limits(limits, LimitsMode::kRequired, no_cpu, "systrap", kHost));
}

TEST(LimitPlan, BestEffortWarnsOnce) {
  const auto plan = plan_limits({}, LimitsMode::kBestEffort, kNothing, "systrap", kHost);
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->note,
            "no limit of memory and CPU holds for this box (no systemd runs): sudo fix-it");
}

}  // namespace
}  // namespace temenos::box
