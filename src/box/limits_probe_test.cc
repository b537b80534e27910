#include "box/limits_probe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <sstream>
#include <thread>

#include "base/text.h"
#include "box/scratch_tree.h"

namespace temenos::box {
namespace {

using ::testing::HasSubstr;
using namespace std::chrono_literals;

// A host whose trials end as told, by a keeper that is a script.
class LimitsProbeTest : public ::testing::Test {
 protected:
  void SetUp() override {
    dirs_.cache = tree_.above();
    dirs_.libexec = tree_.path();
    keeper("cat " + tree_.above() + "/answer");
    tree_.file("temenos-scope");
    ASSERT_EQ(chmod((tree_.path() + "/temenos-scope").c_str(), 0755), 0);
  }
  void keeper(const std::string& script) {
    tree_.file("temenos-keeper",
               "#!/bin/sh\necho asked >>" + tree_.above() + "/asked\n" + script + "\n");
    ASSERT_EQ(chmod((tree_.path() + "/temenos-keeper").c_str(), 0755), 0);
  }
  void host_has(bool memory, bool rest, bool no_answer) const {
    const auto flag = [](bool value) { return value ? "true" : "false"; };
    std::ofstream(tree_.above() + "/answer")
        << R"({"trials":[{"driver":"systemd-user","memory":)" << flag(memory) << R"(,"cpu":)"
        << flag(rest) << R"(,"tasks":)" << flag(rest) << R"(,"no_answer":)" << flag(no_answer)
        << R"(,"why":"w","fix":"f"}]})";
  }
  cgroup::Trial probe(bool required = false) const {
    const auto trials = probe_limits(dirs_, required, -1);
    EXPECT_TRUE(trials) << trials.error().to_string();
    return trials ? cgroup::best_of(*trials) : cgroup::Trial();
  }
  long asked() const {
    std::ifstream in(tree_.above() + "/asked");
    return std::count(std::istreambuf_iterator<char>(in), {}, '\n');
  }
  // What is remembered was found out so many seconds earlier.
  void age(std::int64_t seconds) const {
    const std::string path = tree_.above() + "/limits.json";
    std::stringstream text;
    text << std::ifstream(path).rdbuf();
    std::string all = text.str();
    const std::string key = "\"found_s\":";
    const auto at = all.find(key);
    ASSERT_NE(at, all.npos) << all;
    const auto begin = at + key.size();
    const auto end = all.find_first_not_of("-0123456789", begin);
    const auto then = std::stoll(all.substr(begin, end - begin)) - seconds;
    all.replace(begin, end - begin, std::to_string(then));
    std::ofstream(path) << all;
  }
  ScratchTree tree_;
  HostDirs dirs_;
};

TEST_F(LimitsProbeTest, WhatHoldsIsAskedForOnceABoot) {
  host_has(true, true, false);
  for (int n = 0; n < 3; ++n) EXPECT_TRUE(probe(n == 1).controls.all());
  EXPECT_EQ(asked(), 1);
  age(1'000'000);
  EXPECT_TRUE(probe().controls.all());
  EXPECT_EQ(asked(), 1);
  // Of another boot, or another user.
  const auto limits = tree_.above() + "/limits.json";
  std::ofstream(limits) << R"({"key":"other","found_s":0,"trials":"{}"})";
  EXPECT_TRUE(probe().controls.all());
  EXPECT_EQ(asked(), 2);
  ASSERT_TRUE(try_limits(dirs_, -1));
  EXPECT_EQ(asked(), 3);
}

// Somebody is about to mend it, and it costs nothing much.
TEST_F(LimitsProbeTest, WhereNothingHoldsItIsAskedEachTime) {
  host_has(false, false, false);
  for (int n = 0; n < 3; ++n) EXPECT_FALSE(probe().controls.any());
  EXPECT_EQ(asked(), 3);
}

TEST_F(LimitsProbeTest, NoAnswerIsRememberedForAWhile) {
  host_has(false, false, true);
  for (int n = 0; n < 3; ++n) {
    EXPECT_TRUE(probe().no_answer);
    EXPECT_EQ(probe().why, "w");
  }
  EXPECT_EQ(asked(), 1);
  age(9 * 60);
  EXPECT_FALSE(probe().controls.any());
  EXPECT_EQ(asked(), 1);
  // It answers again, and nobody has said so.
  host_has(true, true, false);
  age(60);
  EXPECT_TRUE(probe().controls.all());
  EXPECT_EQ(asked(), 2);
  EXPECT_TRUE(probe().controls.all());
  EXPECT_EQ(asked(), 2);
}

TEST_F(LimitsProbeTest, ABoxIsNeverRefusedForARememberedSilence) {
  host_has(false, false, true);
  EXPECT_FALSE(probe().controls.any());
  EXPECT_FALSE(probe(true).controls.any());
  EXPECT_FALSE(probe(true).controls.any());
  EXPECT_EQ(asked(), 3);
  host_has(true, true, false);
  EXPECT_TRUE(probe(true).controls.all());
  EXPECT_EQ(asked(), 4);
}

// The user is about to mend it, and it was another mount namespace perhaps.
TEST_F(LimitsProbeTest, APartIsRememberedForAWhile) {
  host_has(true, false, false);
  for (int n = 0; n < 3; ++n) EXPECT_TRUE(probe().controls.memory);
  EXPECT_EQ(asked(), 1);
  EXPECT_TRUE(probe(true).controls.memory);
  EXPECT_EQ(asked(), 2);
  age(601);
  EXPECT_TRUE(probe().controls.memory);
  EXPECT_EQ(asked(), 3);
}

TEST_F(LimitsProbeTest, ForgottenItIsAskedAnew) {
  host_has(true, true, false);
  EXPECT_TRUE(probe().controls.all());
  forget_limits(dirs_);
  EXPECT_TRUE(probe().controls.all());
  EXPECT_EQ(asked(), 2);
}

TEST_F(LimitsProbeTest, AnInterruptEndsATrialAtOnce) {
  ASSERT_EQ(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
  // One that goes when it is asked to, and one that does not; with what they have started.
  for (const char* script : {"sleep 1000 & echo $! >%; wait",
                             "trap '' TERM; sleep 1000 & echo $! "
                             ">%; wait; sleep 1000"}) {
    SCOPED_TRACE(script);
    std::string text = script;
    const std::string pid_file = tree_.above() + "/pid";
    text.replace(text.find('%'), 1, pid_file + ".new; mv " + pid_file + ".new " + pid_file);
    keeper(text);
    const UniqueFd cancel(eventfd(0, EFD_CLOEXEC));
    std::thread interrupt([&] {
      while (access(pid_file.c_str(), F_OK) != 0) std::this_thread::sleep_for(1ms);
      eventfd_write(cancel.get(), 1);
    });
    const auto begin = std::chrono::steady_clock::now();
    const auto trials = probe_limits(dirs_, false, cancel.get());
    interrupt.join();
    ASSERT_FALSE(trials);
    EXPECT_EQ(trials.error().code, Code::kBoxDied);
    EXPECT_THAT(trials.error().to_string(), HasSubstr("given up"));
    EXPECT_LT(std::chrono::steady_clock::now() - begin, 20s);
    int pid = 0;
    std::ifstream(pid_file) >> pid;
    ASSERT_GT(pid, 0);
    // It was killed; its end is a moment away, and has become ours to hear.
    pid_t ended = 0;
    for (int n = 0; n < 2000 && ended == 0; ++n) {
      ended = waitpid(pid, nullptr, WNOHANG);
      if (ended == 0) std::this_thread::sleep_for(5ms);
    }
    EXPECT_EQ(ended, pid) << "what it had started lives on";
    unlink(pid_file.c_str());
  }
}

}  // namespace
}  // namespace temenos::box
