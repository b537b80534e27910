// SIGKILL to each process that a box is made of: the box ends, what ended it is named, and nothing
// is left.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <csignal>
#include <set>

#include "tests/integration/program.h"

namespace temenos::testing {
namespace {

using ::testing::HasSubstr;

// Writes in its upper for as long as it lives, so that a removal that does not wait for its end
// shows.
constexpr char kBusy[] =
    "cd /root; echo up; i=0; while :; do mkdir -p d$i; echo x >d$i/f; i=$((i+1)); done";

class CrashTest : public IntegrationTest {
 protected:
  std::string run_directory() const { return host_.path() + "/home/data/temenos/run"; }
  void kill_one(pid_t BoxProcesses::* which, std::string_view reason) {
    Program program(host_, argv({}, kBusy));
    ASSERT_TRUE(program.wait_for("up\n"));
    const pid_t victim = box_processes(program.pid()).*which;
    ASSERT_GT(victim, 0);
    ASSERT_EQ(kill(victim, SIGKILL), 0);
    const auto result = program.finish();
    EXPECT_EQ(result.status, 125) << result.err;
    EXPECT_THAT(result.err, HasSubstr(reason));
    EXPECT_EQ(result.err.find('\n'), result.err.size() - 1) << result.err;
    EXPECT_TRUE(wait_for_descendants(30));
    EXPECT_EQ(host_shell("ls -A '" + run_directory() + "'"), "");
  }
};

TEST_F(CrashTest, Keeper) { kill_one(&BoxProcesses::keeper, "the keeper of the box was killed"); }
TEST_F(CrashTest, Session) {
  kill_one(&BoxProcesses::session, "the session process of the box died");
}
TEST_F(CrashTest, Helper) {
  kill_one(&BoxProcesses::helper, "the helper process of the box was killed");
}
TEST_F(CrashTest, Runsc) { kill_one(&BoxProcesses::runsc, "runsc was ended by signal 9"); }
TEST_F(CrashTest, Sandbox) { kill_one(&BoxProcesses::sandbox, "runsc exited with status"); }

TEST_F(CrashTest, CliAndTheNextRunSweeps) {
  {
    Program program(host_, argv({}, kBusy));
    ASSERT_TRUE(program.wait_for("up\n"));
    program.send(SIGKILL);
    EXPECT_EQ(program.finish().status, 1000 + SIGKILL);
    // The keeper sees that its launcher is gone, ends the box and removes its files.
    EXPECT_TRUE(wait_for_descendants(30));
    EXPECT_EQ(host_shell("find '" + run_directory() + "' -mindepth 2 -type d"), "");
  }
  EXPECT_EQ(run({}, "echo next").out, "next\n");
  EXPECT_EQ(host_shell("ls -A '" + run_directory() + "'"), "");
}

TEST_F(CrashTest, CliAndKeeperAndTheNextRunSweeps) {
  {
    Program program(host_, argv({}, kBusy));
    ASSERT_TRUE(program.wait_for("up\n"));
    const auto box = box_processes(program.pid());
    ASSERT_GT(box.keeper, 0);
    // Stopped, so that neither can clean up after the other.
    program.send(SIGSTOP);
    ASSERT_EQ(kill(box.keeper, SIGKILL), 0);
    program.send(SIGKILL);
    EXPECT_EQ(program.finish().status, 1000 + SIGKILL);
    EXPECT_TRUE(wait_for_descendants(30));
    EXPECT_NE(host_shell("find '" + run_directory() + "' -name upper 2>/dev/null"), "")
        << "nothing to sweep";
  }
  EXPECT_EQ(run({}, "echo next").out, "next\n");
  EXPECT_EQ(host_shell("ls -A '" + run_directory() + "'"), "");
}

TEST_F(CrashTest, TheSweepLeavesLiveBoxesAlone) {
  Program live(host_, argv({"-i"}, "echo up; read line; touch ~/f && echo \"$line\""));
  ASSERT_TRUE(live.wait_for("up\n"));
  EXPECT_EQ(run({}, "echo other").out, "other\n");
  ASSERT_EQ(write(live.in(), "still here\n", 11), 11);
  EXPECT_EQ(live.finish().out, "up\nstill here\n");
}

// At whatever point of a start the signal comes: the box ends, and a status of 128+n or the
// command's own end is the answer.
TEST_F(CrashTest, CtrlCDuringTheStart) {
  ASSERT_EQ(run({}, "true").status, 0);  // so that no platform trial is due below
  for (const int step : {0, 1, 2, 3}) {
    SCOPED_TRACE(step);
    Program program(host_, argv({}, "exec sleep 1000"));
    ASSERT_TRUE(program.wait_until([&] {
      const auto box = box_processes(program.pid());
      return step == 0 || (step == 1 && box.keeper > 0) || (step == 2 && box.helper > 0) ||
             (step == 3 && box.runsc > 0);
    })) << program.finish().err;
    // Before main() has blocked it, SIGINT's own action is to end the program.
    program.send(SIGINT);
    const auto result = program.finish(30);
    EXPECT_TRUE(result.status == 128 + SIGINT || (step == 0 && result.status == 1000 + SIGINT))
        << result.status << " " << result.err;
    EXPECT_TRUE(wait_for_descendants(30));
  }
}

TEST_F(CrashTest, WhatTheBoxWroteInABindStays) {
  const auto dir = host_.dir("shared");
  Program program(host_,
                  argv({"--write", dir}, "echo kept >" + dir + "/file; echo up; sleep 1000"));
  ASSERT_TRUE(program.wait_for("up\n"));
  ASSERT_EQ(kill(box_processes(program.pid()).sandbox, SIGKILL), 0);
  EXPECT_EQ(program.finish().status, 125);
  EXPECT_EQ(host_shell("cat '" + dir + "/file'"), "kept\n");
}

}  // namespace
}  // namespace temenos::testing
