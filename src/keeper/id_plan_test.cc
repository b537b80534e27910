#include "keeper/id_plan.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>

#include "base/host_ids.h"
#include "sys/file_sys.h"

namespace temenos::keeper {
namespace {

TEST(SubordinateRange, ByNameOrNumberTheFirstGoodLine) {
  constexpr char kText[] =
      "# comment\nother:100000:65536\nuser:bad:65536\nuser:200000:0\nuser:0:5\nuser:300000:65536\n"
      "user:400000:1\n1001:500000:10\n";
  const auto by_name = subordinate_range(kText, "user", 4242);
  EXPECT_EQ(by_name.outside, 300000u);
  EXPECT_EQ(by_name.count, 65536u);
  EXPECT_EQ(by_name.inside, 1u);
  EXPECT_EQ(subordinate_range(kText, "nobody-here", 1001).outside, 500000u);
  EXPECT_EQ(subordinate_range(kText, "user2", 77).count, 0u);
  EXPECT_EQ(subordinate_range("", "user", 1).count, 0u);
  EXPECT_EQ(subordinate_range("user:1:2:3\nuser:99999999999:5\n", "user", 1).count, 0u);
}

TEST(PlanIds, BoxRootIsNeverHostRoot) {
  const IdPlan plan = plan_ids();
  ASSERT_FALSE(plan.uids.empty());
  EXPECT_EQ(plan.uids[0].inside, 0u);
  for (const auto& lines : {plan.uids, plan.gids}) {
    for (const auto& line : lines) {
      EXPECT_GT(line.outside, 0u);
      EXPECT_GT(line.count, 0u);
    }
  }
  if (geteuid() == 0) {
    EXPECT_TRUE(plan.as_root && plan.range);
    EXPECT_EQ(plan.uids[0].outside, kBoxIdBase);
    EXPECT_EQ(plan.uids[0].count, kBoxIdCount);
  } else {
    EXPECT_FALSE(plan.as_root);
    EXPECT_EQ(plan.uids[0].outside, geteuid());
    EXPECT_EQ(plan.uids[0].count, 1u);
    EXPECT_EQ(plan.range, plan.uids.size() == 2);
    EXPECT_EQ(plan.range, plan.why.empty());
  }
}

TEST(ApplyIds, GivesANamespaceItsMaps) {
  const IdPlan plan = plan_ids();
  auto pair = sys::socket_pair(SOCK_SEQPACKET);
  ASSERT_TRUE(pair);
  const int there = pair->second.get();
  const int here = pair->first.get();
  auto child = sys::start_in_namespaces(CLONE_NEWUSER, [=] {
    close(here);
    char byte;
    return read(there, &byte, 1) == 0 ? 0 : 1;
  });
  ASSERT_TRUE(child);
  ASSERT_TRUE(apply_ids(plan, child->pid()));
  const auto map = sys::read_path("/proc/" + std::to_string(child->pid()) + "/uid_map", 4096);
  ASSERT_TRUE(map);
  unsigned inside = 1, outside = 0, count = 0;
  ASSERT_EQ(sscanf(map->c_str(), "%u %u %u", &inside, &outside, &count), 3);
  EXPECT_EQ(inside, 0u);
  EXPECT_EQ(outside, plan.uids[0].outside);
  EXPECT_EQ(count, plan.uids[0].count);
  pair->first.reset();
  child->wait();
}

}  // namespace
}  // namespace temenos::keeper
