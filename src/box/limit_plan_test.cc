#include "box/limit_plan.h"

#include <gtest/gtest.h>

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
