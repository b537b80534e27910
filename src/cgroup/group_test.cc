// Real groups of this machine, below the test's own; skipped where there are none.
#include "cgroup/group.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

#include "base/text.h"
#include "cgroup/make.h"
#include "cgroup/trial.h"

namespace temenos::cgroup {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

// The directly made kinds; those of systemd are tried in the test machine.
class RealGroup : public ::testing::TestWithParam<Driver> {
 protected:
  void SetUp() override {
    Request request{GetParam(), "temenos-test-" + random_hex(6), "a test", "", {}};
    auto made = make_group(request);
    if (!made) GTEST_SKIP() << made.error().to_string();
    group_ = std::move(made->group);
  }
  void TearDown() override {
    if (group_) EXPECT_TRUE(group_.remove().empty());
  }
  // Forks a member that runs `work`, with its exit status.
  template <typename F>
  pid_t member(F work) {
    const pid_t pid = fork();
    if (pid != 0) return pid;
    for (const int fd : group_.join_fds()) {
      if (write(fd, "0", 1) != 1) _exit(99);
    }
    _exit(work());
  }
  static int status_of(pid_t pid) {
    int status = 0;
    waitpid(pid, &status, 0);
    return status;
  }
  Group group_;
};

int use(std::size_t bytes) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return 98;
  memset(memory, 1, bytes);
  return 0;
}

TEST_P(RealGroup, KillsWhatUsesTooMuchMemoryAndCountsIt) {
  if (!group_.controls().memory) GTEST_SKIP() << "no memory controller";
  ASSERT_EQ(group_.limit({16 * kMiB, 0, 0}), "");
  EXPECT_EQ(status_of(member([] { return use(4 * kMiB); })), 0);
  EXPECT_EQ(group_.oom_kills(), 0u);
  const int status = status_of(member([] { return use(64 * kMiB); }));
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
  EXPECT_EQ(group_.oom_kills(), 1u);
  pollfd event{group_.memory_event_fd(), group_.memory_events(), 0};
  EXPECT_EQ(poll(&event, 1, 1000), 1);
  group_.clear_memory_event();
  EXPECT_EQ(poll(&event, 1, 0), 0);
  EXPECT_GE(group_.usage().memory_peak_bytes.value_or(16 * kMiB), 15 * kMiB);
}

TEST_P(RealGroup, RefusesTasksBeyondItsLimitAndCountsIt) {
  if (!group_.controls().tasks) GTEST_SKIP() << "no pids controller";
  ASSERT_EQ(group_.limit({0, 0, 2}), "");
  const int status = status_of(member([] {
    const pid_t first = fork();
    if (first == 0) pause();
    const pid_t second = fork();
    if (second == 0) _exit(0);
    kill(first, SIGKILL);
    waitpid(first, nullptr, 0);
    return second < 0 && errno == EAGAIN ? 0 : 1;
  }));
  EXPECT_EQ(status, 0);
  EXPECT_GE(group_.refused_tasks(), 1u);
  EXPECT_EQ(group_.usage().tasks, 0u);
}

TEST_P(RealGroup, StandsStillWhileFrozen) {
  if (!group_.can_freeze()) GTEST_SKIP() << "no freezer";
  const pid_t pid = member([] {
    for (;;) {
    }
    return 0;
  });
  // It joins before it spins; only then can it be seen to use time.
  const auto used = [this] { return group_.usage().cpu_us.value_or(0); };
  while (used() < 10'000) poll(nullptr, 0, 1);
  ASSERT_TRUE(group_.freeze(true, 2000));
  const auto before = used();
  poll(nullptr, 0, 50);
  EXPECT_LE(used() - before, 5'000u);
  ASSERT_TRUE(group_.freeze(false, 0));
  while (used() < before + 10'000) poll(nullptr, 0, 1);
  kill(pid, SIGKILL);
  status_of(pid);
}

TEST_P(RealGroup, IsNotRemovedWhileSomethingLivesInIt) {
  const std::string path = group_.directories()[0];
  const std::string name = path.substr(path.rfind('/') + 1);
  EXPECT_FALSE(make_group({GetParam(), name, "", "", {}})) << "there is one of this name";
  const pid_t pid = member([] {
    pause();
    return 0;
  });
  while (group_.usage().tasks != 1u) poll(nullptr, 0, 1);
  EXPECT_FALSE(remove_groups(group_.directories(), 0));
  EXPECT_EQ(access(path.c_str(), F_OK), 0);
  kill(pid, SIGKILL);
  status_of(pid);
}

TEST_P(RealGroup, ALimitThatTheKernelRefusesTakesNoOtherWithIt) {
  if (!group_.controls().all()) GTEST_SKIP() << "not all controllers";
  // A quota below what the kernel takes for any group is made one that it takes; memory that no
  // machine has is taken; tasks that no machine has are no limit.
  EXPECT_EQ(group_.limit({std::uint64_t{1} << 50, 1, std::uint64_t{1} << 40}), "");
  EXPECT_TRUE(group_.controls().all());
}

INSTANTIATE_TEST_SUITE_P(Drivers, RealGroup, ::testing::Values(Driver::kCgroup2, Driver::kCgroup1),
                         [](const auto& info) { return std::string(driver_name(info.param)); });

// What was killed between the making of its group and its note.
TEST(Groups, OldEmptyOnesAreSweptAndFreshOnesAreNot) {
  const auto parents = group_parents();
  if (parents.empty()) GTEST_SKIP() << "no groups can be made here without systemd";
  const std::string stem = parents[0] + "/temenos-test-" + random_hex(6);
  const std::string old = stem + "-old";
  const std::string fresh = stem + "-fresh";
  ASSERT_EQ(mkdir(old.c_str(), 0755), 0);
  ASSERT_EQ(mkdir(fresh.c_str(), 0755), 0);
  const timespec then[2] = {{time(nullptr) - 120, 0}, {time(nullptr) - 120, 0}};
  ASSERT_EQ(utimensat(AT_FDCWD, old.c_str(), then, 0), 0);
  sweep_groups();
  EXPECT_NE(access(old.c_str(), F_OK), 0);
  EXPECT_EQ(access(fresh.c_str(), F_OK), 0);
  rmdir(fresh.c_str());
}

TEST(Groups, OnlyNamesOfOursAreRemoved) {
  char path[] = "/tmp/temenos-groups-XXXXXX";
  ASSERT_NE(mkdtemp(path), nullptr);
  const std::string ours = std::string(path) + "/temenos-x";
  const std::string other = std::string(path) + "/other";
  mkdir(ours.c_str(), 0755);
  mkdir(other.c_str(), 0755);
  EXPECT_TRUE(remove_groups({ours, other, "temenos-x", "", "/"}, 0));
  EXPECT_NE(access(ours.c_str(), F_OK), 0);
  EXPECT_EQ(access(other.c_str(), F_OK), 0);
  rmdir(other.c_str());
  rmdir(path);
}

TEST(Trials, TheBestOneKeepsMost) {
  const Trial pids{Driver::kSystemdUser, {false, false, true}, "a", "b"};
  const Trial memory{Driver::kCgroup2, {true, false, false}, "", ""};
  const Trial none{Driver::kSystemdUser, {}, "c", "d"};
  EXPECT_EQ(best_of({pids, memory}).driver, Driver::kCgroup2);
  EXPECT_EQ(best_of({none}).driver, Driver::kNone);
  EXPECT_EQ(best_of({none}).why, "c");
  EXPECT_EQ(best_of({}).driver, Driver::kNone);
}

TEST(Trials, WhatIsTriedOnThisHostIsSaidWithAReasonAndAFix) {
  for (const auto& trial : try_drivers("/nonexistent/temenos-scope")) {
    EXPECT_TRUE(trial.controls.all() || (!trial.why.empty() && !trial.fix.empty()))
        << driver_name(trial.driver);
  }
}

}  // namespace
}  // namespace temenos::cgroup
