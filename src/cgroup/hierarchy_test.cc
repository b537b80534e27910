#include "cgroup/hierarchy.h"

#include <gtest/gtest.h>

namespace temenos::cgroup {
namespace {

TEST(Hierarchies, OfAMachineWithTheUnifiedOneOnly) {
  const auto found =
      parse_hierarchies("24 1 0:22 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n",
                        "0::/user.slice/user-1000.slice/session-3.scope\n");
  EXPECT_TRUE(found.only_unified());
  EXPECT_EQ(found.unified.mount, "/sys/fs/cgroup");
  EXPECT_EQ(found.unified.own, "/sys/fs/cgroup/user.slice/user-1000.slice/session-3.scope");
}

TEST(Hierarchies, OfAMachineWithBoth) {
  const auto found = parse_hierarchies(
      "30 24 0:26 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
      "31 24 0:27 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
      "32 24 0:28 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n",
      "2:cpu,cpuacct:/a\n1:memory:/b:c/d\n0::/\n");
  EXPECT_FALSE(found.only_unified());
  EXPECT_EQ(found.v1.at("memory").own, "/sys/fs/cgroup/memory/b:c/d");
  EXPECT_EQ(found.v1.at("cpu").own, "/sys/fs/cgroup/cpu,cpuacct/a");
  EXPECT_EQ(found.v1.at("cpuacct").own, "/sys/fs/cgroup/cpu,cpuacct/a");
  EXPECT_EQ(found.unified.own, "/sys/fs/cgroup/unified");
}

TEST(Hierarchies, AGroupOutsideOfTheMountIsNotSeen) {
  // A container that sees a part of the hierarchy, and a process that was moved out of it.
  const std::string mount = "24 1 0:22 /pod/a /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
  EXPECT_EQ(parse_hierarchies(mount, "0::/pod/a/b\n").unified.own, "/sys/fs/cgroup/b");
  EXPECT_EQ(parse_hierarchies(mount, "0::/pod/a\n").unified.own, "/sys/fs/cgroup");
  EXPECT_EQ(parse_hierarchies(mount, "0::/pod/ab\n").unified.own, "");
  EXPECT_EQ(parse_hierarchies(mount, "0::/\n").unified.own, "");
  EXPECT_EQ(parse_hierarchies(mount, "0::/../c\n").unified.own, "");
}

TEST(Hierarchies, NamesMayHoldAnyByte) {
  const auto found = parse_hierarchies(
      "24 1 0:22 / /sys/fs/a\\040b rw shared:3 - cgroup2 cgroup2 rw\n", "0::/c d:e\n");
  EXPECT_EQ(found.unified.own, "/sys/fs/a b/c d:e");
}

TEST(Hierarchies, BrokenTextsGiveNothing) {
  for (const char* text : {"", "\n", "x", "1 2 3 - cgroup2", " - ", "a b c d e f - cgroup2 x"}) {
    EXPECT_TRUE(parse_hierarchies(text, "0::/\n").unified.mount.empty()) << text;
  }
  EXPECT_TRUE(
      parse_hierarchies("24 1 0:22 / /c rw - cgroup2 cgroup2 rw\n", "0:\n0\n").unified.own.empty());
}

}  // namespace
}  // namespace temenos::cgroup
