#include "keeper/oom_watch.h"

#include <gtest/gtest.h>

namespace temenos::keeper {
namespace {

TEST(OomWatch, ReadsTheCounterOfEachKindOfFile) {
  EXPECT_EQ(oom_kills("oom_kill_disable 0\nunder_oom 0\noom_kill 3\n"), 3u);
  EXPECT_EQ(oom_kills("low 0\nhigh 0\nmax 7\noom 1\noom_kill 2\noom_group_kill 1\n"), 2u);
  EXPECT_EQ(oom_kills("drop_slab 0\noom_kill 18446744073709551615\n"), UINT64_MAX);
  for (const char* text : {"", "oom_kill", "oom_kill \n", "oom_kill x\n", "oom_kill 1x\n",
                           "xoom_kill 1\n", "oom_kill -1\n", "oom_kill 18446744073709551616\n"}) {
    EXPECT_EQ(oom_kills(text), std::nullopt) << text;
  }
}

TEST(OomWatch, FindsTheGroup) {
  const std::string v1 = "9:name=systemd:/\n4:cpu,memory:/user.slice/a:b\n0::/user.slice\n";
  EXPECT_EQ(memory_group_v1(v1), "/sys/fs/cgroup/memory/user.slice/a:b/memory.oom_control");
  EXPECT_EQ(memory_group_v2(v1), "/sys/fs/cgroup/user.slice/memory.events");
  EXPECT_EQ(memory_group_v1("0::/\n"), "");
  EXPECT_EQ(memory_group_v2("4:memory:/x\n"), "");
  EXPECT_EQ(memory_group_v1("nonsense\n:\n"), "");
}

TEST(OomWatch, SeesNothingWhereNothingWasKilled) {
  // Whatever this machine has to read: nothing is killed while this runs, but for somebody else's
  // death where only the machine's count is there.
  EXPECT_EQ(OomWatch::begin().evidence(), "");
}

}  // namespace
}  // namespace temenos::keeper
