#include "init/process_trees.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <string>

#include "init/spawn.h"

namespace temenos::init {
namespace {

// Rounds as init makes them, reaping between; how many it took, or -1.
int kill_tree(ProcessTrees& trees, std::uint32_t id) {
  for (int round = 0; round < 2'000; ++round) {
    if (trees.kill_round(id)) return round;
    while (waitpid(-1, nullptr, WNOHANG) > 0) {
    }
    usleep(1'000);
  }
  return -1;
}

// A group of the host's pids hierarchy that stands for the box's root group.
class ProcessTreesTest : public testing::Test {
 protected:
  void SetUp() override {
    path_ = "/sys/fs/cgroup/pids/temenos-test-" + std::to_string(getpid());
    if (mkdir(path_.c_str(), 0700) != 0) {
      path_.clear();
      GTEST_SKIP() << "needs a writable cgroup v1 pids hierarchy";
    }
    root_ = open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
  }
  void TearDown() override {
    if (path_.empty()) return;
    for (const auto& name : {"/x1/inner", "/x1", "/x2", "/other", ""})
      rmdir((path_ + name).c_str());
    EXPECT_NE(access(path_.c_str(), F_OK), 0) << "something was left in the group";
  }

  pid_t start(ProcessTrees& trees, std::uint32_t id, const std::string& script) {
    EXPECT_TRUE(trees.add(id));
    box_wire::Exec exec;
    exec.cwd = "/";
    exec.argv = {"/bin/sh", "-c", script};
    const UniqueFd null(open("/dev/null", O_RDWR | O_CLOEXEC));
    SpawnRequest request;
    request.exec = &exec;
    for (int& fd : request.stdio) fd = null.get();
    request.group_dir = trees.group_dir();
    request.group_file = trees.group_file(id);
    SpawnFailure failure;
    const pid_t pid = spawn(request, failure);
    EXPECT_GT(pid, 0) << failure.error;
    trees.set_leader(id, pid);
    return pid;
  }
  void wait_for(ProcessTrees& trees, std::uint32_t id, std::size_t count) {
    for (int i = 0; i < 20'000 && trees.members(id).size() != count; ++i) usleep(1'000);
    ASSERT_EQ(trees.members(id).size(), count);
  }
  // Until that many processes are in that group itself.
  void wait_for_group(const std::string& group, std::ptrdiff_t count) {
    std::ptrdiff_t seen = -1;
    for (int i = 0; i < 20'000 && seen != count; ++i) {
      std::ifstream procs(path_ + group + "/cgroup.procs");
      seen = std::count(std::istreambuf_iterator<char>(procs), {}, '\n');
      if (seen != count) usleep(1'000);
    }
    ASSERT_EQ(seen, count) << group;
  }

  std::string path_;
  int root_ = -1;
};

TEST_F(ProcessTreesTest, ATreeWithDaemonsAndForkChainsIsEndedAndAnotherIsNot) {
  ProcessTrees trees{UniqueFd(root_)};
  ASSERT_TRUE(trees.grouped());
  const pid_t kept = start(trees, 2, "exec sleep 1000");
  // A daemon, and chains that fork, change their session and leave their parent for ever.
  start(trees, 1,
        "setsid sh -c 'setsid sleep 1000 & exit' & sleep 1000 &"
        "for i in 1 2 3 4; do sh -c 'f() { (setsid sh -c \"sleep 0.01; true\" &); }; while :; do "
        "f; done' & done; wait");
  while (trees.members(1).size() < 8) usleep(1'000);
  EXPECT_GE(kill_tree(trees, 1), 0);
  EXPECT_TRUE(trees.finish(1).empty());
  EXPECT_EQ(kill(kept, 0), 0);
  EXPECT_GE(kill_tree(trees, 2), 0);
  EXPECT_TRUE(trees.finish(2).empty());
}

TEST_F(ProcessTreesTest, FugitivesInTheRootGroupAndInGroupsOfTheirOwnDieWithTheNextTree) {
  ProcessTrees trees{UniqueFd(root_)};
  const std::string root_procs = path_ + "/cgroup.procs";
  start(trees, 1,
        "mkdir " + path_ + "/x1/inner " + path_ +
            "/other;"
            "sh -c 'echo $$ > " +
            root_procs +
            "; exec sleep 1000' &"
            "sh -c 'echo $$ > " +
            path_ +
            "/x1/inner/cgroup.procs; exec sleep 1000' &"
            "sh -c 'echo $$ > " +
            path_ +
            "/other/cgroup.procs; exec sleep 1000' &"
            "sleep 1000");
  // The shell forks before its children go where they go: what counts is where all have arrived.
  for (const char* group : {"", "/x1/inner", "/other"}) wait_for_group(group, 1);
  wait_for_group("/x1", 2);  // the shell and its sleep
  EXPECT_GE(kill_tree(trees, 1), 0);
  // Nobody is left anywhere below: TearDown removes every group, which works for empty ones only.
  rmdir((path_ + "/x1/inner").c_str());
  EXPECT_TRUE(trees.finish(1).empty());
}

TEST_F(ProcessTreesTest, WhatLivesOnIsReportedAndSweptWhenItHasEnded) {
  ProcessTrees trees{UniqueFd(root_)};
  const pid_t leader = start(trees, 1, "setsid sleep 1000 & exit 0");
  ASSERT_EQ(waitpid(leader, nullptr, 0), leader);
  wait_for(trees, 1, 1);
  const auto left = trees.finish(1);
  ASSERT_EQ(left.size(), 1u);
  trees.sweep();
  EXPECT_EQ(access((path_ + "/x1").c_str(), F_OK), 0);
  kill(left[0], SIGKILL);
  ASSERT_EQ(waitpid(left[0], nullptr, 0), left[0]);
  trees.sweep();
  EXPECT_NE(access((path_ + "/x1").c_str(), F_OK), 0);
}

// Without groups; all that is left when a test ends would be this process's, so it can tell.
class ProcessTreesWalkTest : public testing::Test {
 protected:
  void SetUp() override { prctl(PR_SET_CHILD_SUBREAPER, 1); }
  void TearDown() override {
    EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1) << "a process was left";
    while (waitpid(-1, nullptr, WNOHANG) >= 0) trees_.kill_all();
  }
  pid_t start(std::uint32_t id, void (*body)()) {
    EXPECT_TRUE(trees_.add(id));
    const pid_t leader = fork();
    if (leader == 0) {
      setsid();
      body();
      _exit(127);
    }
    trees_.set_leader(id, leader);
    return leader;
  }

  ProcessTrees trees_{UniqueFd()};
};

TEST_F(ProcessTreesWalkTest, FindsDaemonsWithoutGroups) {
  ASSERT_FALSE(trees_.grouped());
  ASSERT_TRUE(trees_.add(1));
  EXPECT_TRUE(trees_.members(1).empty());  // not started: nobody is suspected
  start(1, [] {
    execl("/bin/sh", "sh", "-c", "setsid sleep 1000 & setsid sleep 1000 & wait", nullptr);
  });
  for (int i = 0; i < 2'000 && trees_.members(1).size() < 3; ++i) usleep(1'000);
  EXPECT_EQ(trees_.members(1).size(), 3u);
  EXPECT_FALSE(trees_.kill_round(1));
  while (waitpid(-1, nullptr, 0) > 0) {
  }
  EXPECT_TRUE(trees_.kill_round(1));
  EXPECT_TRUE(trees_.finish(1).empty());
}

TEST_F(ProcessTreesWalkTest, WhoDiesDuringAWalkLeavesNobodyUnseen) {
  for (int run = 0; run < 20; ++run) {
    // A daemon that is another process every few milliseconds: it often forks and ends between the
    // walk's list of pids and its look at each of them.
    start(1, [] {
      for (;;) {
        if (fork() > 0) _exit(0);
        setsid();
        usleep(200 + getpid() * 7919u % 3'000);
      }
    });
    EXPECT_GE(kill_tree(trees_, 1), 0);
    // With nobody else below this process, the kernel can be asked, and at one moment.
    ASSERT_EQ(waitpid(-1, nullptr, WNOHANG), -1) << "in run " << run;
    EXPECT_TRUE(trees_.finish(1).empty());
  }
}

TEST_F(ProcessTreesWalkTest, AnUnreapedChildMakesARoundUncertainUnlessAnotherExecKnowsIt) {
  const pid_t leader = start(1, [] { execl("/bin/sleep", "sleep", "1000", nullptr); });
  const pid_t other = start(2, [] { _exit(0); });
  siginfo_t info{};
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(other), &info, WEXITED | WNOWAIT), 0);
  EXPECT_FALSE(trees_.kill_round(1));
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(leader), &info, WEXITED | WNOWAIT), 0);
  EXPECT_FALSE(trees_.kill_round(1));
  ASSERT_EQ(waitpid(leader, nullptr, 0), leader);
  EXPECT_TRUE(trees_.kill_round(1));
  ASSERT_EQ(waitpid(other, nullptr, 0), other);
  EXPECT_TRUE(trees_.finish(1).empty());
  EXPECT_TRUE(trees_.finish(2).empty());
}

TEST_F(ProcessTreesWalkTest, KillAllEndsWhatFinishedExecsLeft) {
  const pid_t leader =
      start(1, [] { execl("/bin/sh", "sh", "-c", "setsid sleep 1000 & exit 0", nullptr); });
  ASSERT_EQ(waitpid(leader, nullptr, 0), leader);
  ASSERT_EQ(trees_.finish(1).size(), 1u);
  trees_.kill_all();
  EXPECT_GT(waitpid(-1, nullptr, 0), 0);
}

TEST(Spawn, CandidatesFollowThePathOfTheExec) {
  using Strings = std::vector<std::string>;
  EXPECT_EQ(program_candidates("ls", {"A=1", "PATH=/a::b"}), (Strings{"/a/ls", "ls", "b/ls"}));
  EXPECT_EQ(program_candidates("./ls", {"PATH=/a"}), (Strings{"./ls"}));
  EXPECT_EQ(program_candidates("", {"PATH=/a"}), Strings{});
  EXPECT_EQ(program_candidates("x", {}).front(), "/usr/local/sbin/x");
}

}  // namespace
}  // namespace temenos::init
