// The groups of boxes: they are gone when their boxes are, however those ended, and keeper goes
// when it is asked to.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <csignal>
#include <filesystem>
#include <fstream>

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

TEST_F(GroupsTest, StatsAreWhatTheSandboxUses) {
  Box box = start(kBox, {});
  const auto idle = box.stats();
  ASSERT_TRUE(idle) << idle.error().to_string();
  if (!idle->memory_held) {
    EXPECT_FALSE(idle->memory_bytes || idle->memory_peak_bytes) << "of no group";
    GTEST_SKIP() << "this host keeps no limit of memory (driver " << idle->driver << ")";
  }
  constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
  const auto job = box.start_job(use_up({"memory", "100"}));
  ASSERT_TRUE(job) << job.error().to_string();
  const auto end = std::chrono::steady_clock::now() + patience(30);
  while (box.job_log(*job, 0, 64)->chunks.empty() && std::chrono::steady_clock::now() < end) {
    usleep(10'000);
  }
  const auto used = box.stats();
  ASSERT_TRUE(used) << used.error().to_string();
  EXPECT_GE(used->memory_bytes.value(), idle->memory_bytes.value() + 95 * kMiB);
  EXPECT_LE(used->memory_bytes.value(), idle->memory_bytes.value() + 150 * kMiB);
  EXPECT_GE(used->memory_peak_bytes.value_or(~0ull), used->memory_bytes.value());
  EXPECT_GT(used->cpu_us.value(), idle->cpu_us.value());
  EXPECT_GT(used->tasks.value(), idle->tasks.value());
  EXPECT_LE(used->tasks.value(), static_cast<std::uint64_t>(host_tasks(kBox)));
  EXPECT_GE(used->tasks_peak.value_or(~0ull), used->tasks.value());
  EXPECT_NE(used->driver, "none");
  EXPECT_EQ(used->trouble, "");
  // Pressure is for groups of cgroup v2, of kernels that have it turned on.
  if (used->driver == "cgroup1") EXPECT_FALSE(used->memory_pressure);
  ASSERT_TRUE(box.signal_job(*job, 0));
  EXPECT_TRUE(box.wait_job(*job, patience(30)));
  // gVisor gives an ended process's memory back by and by.
  const auto freed = std::chrono::steady_clock::now() + patience(30);
  auto after = box.stats();
  while (after && after->memory_bytes.value() >= used->memory_bytes.value() - 50 * kMiB &&
         std::chrono::steady_clock::now() < freed) {
    usleep(10'000);
    after = box.stats();
  }
  ASSERT_TRUE(after) << after.error().to_string();
  EXPECT_LT(after->memory_bytes.value(), used->memory_bytes.value() - 50 * kMiB);
  if (after->memory_peak_bytes) {
    EXPECT_GE(*after->memory_peak_bytes, used->memory_bytes.value());
  }
}

// The scope of a box beside its sandbox has room for temenos' own processes, and is shown by name.
TEST_F(GroupsTest, AScopeOfSystemdIsShownAndHasItsReserve) {
  Box box = start(kBox, {.limits = {.memory_mb = 200, .cpus = 0.5, .pids = 10}});
  const auto directories = started(box);
  if (directories.empty() || directories[0].find(".scope/") == std::string::npos) {
    GTEST_SKIP() << "no systemd makes the groups here";
  }
  const std::string scope = directories[0].substr(0, directories[0].rfind('/'));
  const std::string unit = scope.substr(scope.rfind('/') + 1);
  const auto limit = [](const std::string& path) {
    std::ifstream in(path);
    std::string word;
    in >> word;
    return word;
  };
  const auto tasks = std::stoull(limit(directories[0] + "/pids.max"));
  EXPECT_EQ(limit(directories[0] + "/memory.max"), std::to_string(200ull << 20));
  EXPECT_EQ(limit(scope + "/memory.max"), std::to_string(296ull << 20));
  EXPECT_EQ(limit(directories[0] + "/memory.swap.max"), "0");
  EXPECT_EQ(limit(scope + "/memory.swap.max"), "0");
  EXPECT_EQ(limit(scope + "/pids.max"), std::to_string(tasks + 64));
  EXPECT_EQ(limit(directories[0] + "/cpu.max"), "50000");
  EXPECT_EQ(limit(scope + "/cpu.max"), "100000");
  EXPECT_THAT(unit, ::testing::StartsWith("temenos-" + std::string(kBox) + "-"));
  const std::string mode = "m=--user; test $(id -u) != 0 || m=--system; systemctl $m ";
  EXPECT_EQ(host_shell(mode + "show -P Description '" + unit + "'").rfind("temenos box ", 0), 0u);
  EXPECT_EQ(host_shell(mode + "stop '" + unit + "' && echo stopped"), "stopped\n");
  EXPECT_FALSE(box.is_alive());
  EXPECT_THAT(audit(kBox), HasSubstr("\"reason\":\"stopped\""));
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
