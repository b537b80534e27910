#include "cgroup/hierarchy.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

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

// Files as the kernel's, in directories of the test's.
class Ceilings : public ::testing::Test {
 protected:
  void SetUp() override {
    char path[] = "/tmp/temenos-ceiling-XXXXXX";
    ASSERT_NE(mkdtemp(path), nullptr);
    top_ = path;
    std::filesystem::create_directories(own());
  }
  void TearDown() override { std::filesystem::remove_all(top_); }
  std::string own() const { return top_ + "/mount/slice/service/scope"; }
  void put(const std::string& file, const std::string& text) const {
    std::ofstream(top_ + "/" + file) << text;
  }
  Ceiling unified() const {
    Hierarchies now;
    now.unified = {top_ + "/mount", own()};
    return read_ceiling(now);
  }
  std::string top_;
};

TEST_F(Ceilings, TheLeastOfTheOwnGroupAndThoseAboveIt) {
  EXPECT_FALSE(unified().memory_bytes || unified().tasks) << "there are no files";
  put("mount/slice/service/scope/memory.max", "max\n");
  put("mount/slice/service/scope/pids.max", "300\n");
  EXPECT_FALSE(unified().memory_bytes);
  EXPECT_EQ(unified().tasks, 300u);
  put("mount/slice/service/memory.max", "4294967296\n");
  put("mount/slice/memory.max", "2147483648\n");
  put("mount/slice/pids.max", "200\n");
  EXPECT_EQ(unified().memory_bytes, std::uint64_t{2} << 30);
  EXPECT_EQ(unified().tasks, 200u);
  // In a container the mount itself has a limit, and what is above it is out of sight.
  put("mount/memory.max", "1073741824\n");
  put("memory.max", "5\n");
  EXPECT_EQ(unified().memory_bytes, std::uint64_t{1} << 30);
}

TEST_F(Ceilings, OfTheOlderHierarchies) {
  Hierarchies now;
  now.v1["memory"] = {top_ + "/mount", own()};
  now.v1["pids"] = {top_ + "/mount", own()};
  put("mount/slice/service/scope/memory.stat",
      "cache 1\nhierarchical_memory_limit 2147483648\nhierarchical_memsw_limit 1\n");
  put("mount/slice/pids.max", "200\n");
  EXPECT_EQ(read_ceiling(now).memory_bytes, std::uint64_t{2} << 30);
  EXPECT_EQ(read_ceiling(now).tasks, 200u);
  // Of a group out of sight nothing is known.
  now.v1["memory"].own = now.v1["pids"].own = "";
  EXPECT_FALSE(read_ceiling(now).memory_bytes || read_ceiling(now).tasks);
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
