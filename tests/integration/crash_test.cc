// SIGKILL to each process that a box is made of: the box ends, what ended it is named, and nothing
// is left.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <string>
#include <tuple>

#include "codec/json.h"
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
  void expect_ended(const CliResult& result, std::string_view reason, std::string_view words) {
    EXPECT_EQ(result.status, 125) << result.err;
    EXPECT_THAT(result.err, HasSubstr(words));
    EXPECT_EQ(result.err.find('\n'), result.err.size() - 1) << result.err;
    const auto json = parse_json(result.out.substr(result.out.find('{')), {});
    ASSERT_TRUE(json) << result.out;
    EXPECT_EQ(json->at("error").at("end_reason").as_string(), reason);
    EXPECT_NE(json->at("error").at("hint").as_string(), "");
    EXPECT_TRUE(wait_for_descendants(30));
    EXPECT_EQ(host_shell("ls -A '" + run_directory() + "'"), "");
  }
};

struct Victim {
  const char* name;
  pid_t BoxProcesses::* which;
  const char* reason;
  const char* words;
};

// On every platform, because it is gVisor that notices some of these deaths for us.
class CrashOfTest : public CrashTest,
                    public ::testing::WithParamInterface<std::tuple<std::string, Victim>> {};

TEST_P(CrashOfTest, IsNamedAndLeavesNothing) {
  const auto& [platform, victim] = GetParam();
  const std::string mark = host_.dir("mark");
  // With --json the command's output comes at the end, so it says in a file that it is up.
  Program program(host_, argv({"--json", "--platform", platform, "--write", mark},
                              "touch " + mark + "/up; " + std::string(kBusy)));
  ASSERT_TRUE(program.wait_until([&] { return access((mark + "/up").c_str(), F_OK) == 0; }));
  const pid_t pid = box_processes(program.pid()).*(victim.which);
  ASSERT_GT(pid, 0);
  ASSERT_EQ(kill(pid, SIGKILL), 0);
  expect_ended(program.finish(), victim.reason, victim.words);
}

INSTANTIATE_TEST_SUITE_P(
    Of, CrashOfTest,
    ::testing::Combine(
        ::testing::ValuesIn(platforms()),
        ::testing::Values(Victim{"Keeper", &BoxProcesses::keeper, "keeper_died",
                                 "the keeper of the box was killed"},
                          Victim{"Session", &BoxProcesses::session, "session_died",
                                 "the session process of the box died"},
                          Victim{"Helper", &BoxProcesses::helper, "helper_died",
                                 "the helper process of the box was killed"},
                          Victim{"Runsc", &BoxProcesses::runsc, "runsc_died",
                                 "runsc was ended by signal 9"},
                          Victim{"Gofer", &BoxProcesses::gofer, "gofer_died",
                                 "the gofer of the sandbox was killed"},
                          Victim{"Sandbox", &BoxProcesses::sandbox, "sandbox_died",
                                 "the sandbox (gVisor's sentry) was killed by signal 9"})),
    [](const auto& info) { return std::get<1>(info.param).name + std::get<0>(info.param); });

// From inside any root process of the box may do it. It costs that box and nothing else.
class InitDeathTest : public CrashTest, public ::testing::WithParamInterface<std::string> {};
INSTANTIATE_TEST_SUITE_P(On, InitDeathTest, ::testing::ValuesIn(platforms()),
                         [](const auto& info) { return info.param; });

TEST_P(InitDeathTest, IsTheBoxsOwnDoing) {
  for (const auto& [signal, number] : {std::pair{"KILL", 9}, {"SEGV", 11}}) {
    SCOPED_TRACE(signal);
    const auto result = run({"--json", "--platform", GetParam()},
                            std::string("kill -") + signal + " 1; sleep 1000");
    expect_ended(result, "init_died",
                 "the box's init (its process 1) ended by signal " + std::to_string(number));
  }
}

// As some daemons leave it to what they start; it passes through fork and exec.
TEST_F(CrashTest, WithTheEndOfChildrenIgnored) {
  auto words = argv({"--json"}, "kill -9 1; sleep 1000");
  words.insert(words.begin(), {"/usr/bin/env", "--ignore-signal=CHLD"});
  expect_ended(Program(host_, words).finish(), "init_died",
               "the box's init (its process 1) ended by signal 9");
}

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
