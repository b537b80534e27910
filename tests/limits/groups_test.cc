// The groups of boxes: they are gone when their boxes are, however those ended, and keeper goes
// when it is asked to.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <csignal>
#include <filesystem>

#include "tests/limits/limits_test.h"

namespace temenos::testing {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

constexpr char kBox[] = "grouped";

class GroupsTest : public LimitsTest {
 protected:
  // Of a host where boxes have any; the directories then.
  std::vector<std::string> started(Box& box) {
    const auto directories = groups(kBox);
    const auto stats = box.stats();
    EXPECT_TRUE(stats) << stats.error().to_string();
    EXPECT_EQ(directories.empty(), !stats || stats->driver == "none");
    for (const auto& directory : directories) {
      EXPECT_TRUE(std::filesystem::exists(directory)) << directory;
    }
    return directories;
  }
  // A scope of systemd goes when its last process has: systemd is told a moment later.
  static void expect_gone(const std::vector<std::string>& directories) {
    const auto deadline = std::chrono::steady_clock::now() + patience(10);
    for (const auto& directory : directories) {
      while (std::filesystem::exists(directory) && std::chrono::steady_clock::now() < deadline) {
        usleep(10'000);
      }
      EXPECT_FALSE(std::filesystem::exists(directory)) << directory;
    }
  }
  // The scopes among them, as systemd knows them.
  static void expect_no_units(const std::set<std::string>& directories) {
    for (const auto& directory : directories) {
      const auto scope = directory.find(".scope");
      if (scope == std::string::npos) continue;
      const std::string path = directory.substr(0, scope + 6);
      const std::string unit = path.substr(path.rfind('/') + 1);
      EXPECT_EQ(host_shell("m=--user; test $(id -u) != 0 || m=--system; systemctl $m show -P "
                           "LoadState '" +
                           unit + "'"),
                "not-found\n")
          << unit;
    }
  }
};

TEST_F(GroupsTest, AreGoneAfterAStop) {
  Box box = start(kBox, {});
  const auto directories = started(box);
  ASSERT_TRUE(box.stop());
  expect_gone(directories);
}

TEST_F(GroupsTest, AreGoneAfterTheDeathOfAnyOfItsProcesses) {
  start(kBox, {});
  const std::vector<std::pair<const char*, pid_t BoxProcesses::*>> victims{
      {"sandbox", &BoxProcesses::sandbox}, {"gofer", &BoxProcesses::gofer},
      {"session", &BoxProcesses::session}, {"helper", &BoxProcesses::helper},
      {"runsc", &BoxProcesses::runsc},     {"keeper", &BoxProcesses::keeper}};
  for (const auto& [name, victim] : victims) {
    SCOPED_TRACE(name);
    Box box = again(kBox);
    ASSERT_TRUE(box.start());
    const auto directories = started(box);
    const Generation generation(processes(kBox));
    const pid_t pid = generation.processes().*victim;
    ASSERT_GT(pid, 0);
    ASSERT_EQ(kill(pid, SIGKILL), 0);
    EXPECT_EQ(generation.wait_for_end(static_cast<int>(patience(30).count())), "");
    if (victim == &BoxProcesses::keeper) {
      // Nobody is left who could: the next who comes does.
      Box next = again(kBox);
      ASSERT_TRUE(next.start());
      ASSERT_TRUE(next.stop());
    }
    expect_gone(directories);
  }
}

TEST_F(GroupsTest, MakingAndRemovingLeavesTheirNumberAsItWas) {
  std::set<std::string> all;
  const int rounds = limit_rounds(500);
  for (int n = 0; n < rounds && !HasFailure(); ++n) {
    Box box = start(kBox, {});
    for (const auto& directory : started(box)) all.insert(directory);
    remove(kBox);
  }
  expect_gone({all.begin(), all.end()});
  expect_no_units(all);
}

// As `systemctl stop` of a box's scope does it.
TEST_F(GroupsTest, AKeeperThatIsAskedToGoEndsItsBoxInOrder) {
  Box box = start(kBox, {});
  const auto directories = started(box);
  ASSERT_EQ(output(box, "echo kept >/root/file; echo done"), "done\n");
  Program user = start_tool({"exec", kBox, "sh", "-c", "echo up; exec sleep 1000"});
  ASSERT_TRUE(user.wait_for("up\n"));
  const Generation generation(processes(kBox));
  ASSERT_GT(generation.processes().keeper, 0);
  ASSERT_EQ(kill(generation.processes().keeper, SIGTERM), 0);
  EXPECT_EQ(generation.wait_for_end(static_cast<int>(patience(30).count())), "");
  const auto told = user.finish();
  EXPECT_EQ(told.status, 125);
  EXPECT_THAT(told.err, HasSubstr("the box was stopped"));
  expect_gone(directories);
  Box next = again(kBox);
  EXPECT_EQ(output(next, "cat /root/file"), "kept\n");
}

}  // namespace
}  // namespace temenos::testing
