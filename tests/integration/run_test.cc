// temenos run: exit statuses, signals, time-outs, the result as JSON and the environment.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

#include "codec/json.h"
#include "tests/integration/program.h"

namespace temenos::testing {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;

class PlatformTest : public IntegrationTest, public ::testing::WithParamInterface<std::string> {};
INSTANTIATE_TEST_SUITE_P(Each, PlatformTest, ::testing::ValuesIn(platforms()),
                         [](const auto& info) { return info.param; });

TEST_P(PlatformTest, RunsPython) {
  const auto result = host_.temenos(
      {"run", "--no-net", "--platform", GetParam(), "--", "python3", "-c", "print(6*7)"});
  EXPECT_EQ(result.status, 0);
  EXPECT_EQ(result.out, "42\n");
  EXPECT_EQ(result.err, "");
}

TEST_P(PlatformTest, StatusesAreTheCommands) {
  EXPECT_EQ(run({"--platform", GetParam()}, "exit 3").status, 3);
  EXPECT_EQ(run({"--platform", GetParam()}, "kill -9 $$").status, 128 + SIGKILL);
  EXPECT_EQ(run({"--platform", GetParam()}, "kill -SEGV $$").status, 128 + SIGSEGV);
}

TEST_P(PlatformTest, ATimeoutEndsTheWholeTree) {
  // The grandchild holds stdout: the call must not wait for it, and it must not live on.
  const auto result = run({"--platform", GetParam(), "--timeout", "1", "--json"},
                          "setsid sh -c 'trap \"\" TERM HUP; echo up; sleep 1000' & wait");
  EXPECT_EQ(result.status, 124);
  const auto json = parse_json(result.out, {});
  ASSERT_TRUE(json) << result.out;
  EXPECT_TRUE(json->at("timed_out").as_bool());
  EXPECT_EQ(json->at("stdout").as_string(), "up\n");
  EXPECT_TRUE(json->at("left_running").as_array().empty());
  EXPECT_LT(json->at("duration_ms").as_int64(), 15'000);
}

class RunTest : public IntegrationTest {};

TEST_F(RunTest, CannotBeRunIs126AndNotFoundIs127) {
  struct {
    std::vector<std::string> command;
    int status;
    const char* text;
  } const cases[] = {
      {{"no-such-program"}, 127, "no-such-program: no such program in the box"},
      {{"/no/such/program"}, 127, "/no/such/program: no such program in the box"},
      {{"/etc/passwd"}, 126, "/etc/passwd: cannot be executed in the box"},
      {{"/tmp"}, 126, "/tmp: cannot be executed in the box"},
  };
  for (const auto& one : cases) {
    std::vector<std::string> args{"run", "--no-net", "--"};
    args.insert(args.end(), one.command.begin(), one.command.end());
    expect_error(host_.temenos(args), one.status, {one.text});
  }
}

TEST_F(RunTest, TimeoutSaysSo) {
  const auto result = run({"--timeout", "0.5"}, "echo before; sleep 1000");
  EXPECT_EQ(result.status, 124);
  EXPECT_EQ(result.out, "before\n");
  EXPECT_THAT(result.err, HasSubstr("temenos: timed out after "));
  // One that ends in time is not touched.
  EXPECT_EQ(run({"--timeout", "50"}, "exit 9").status, 9);
}

TEST_F(RunTest, SignalsReachTheCommand) {
  for (const int number : {SIGTERM, SIGINT, SIGHUP}) {
    Program program(host_, argv({},
                                "trap 'echo got; exit 5' TERM INT HUP; echo up; "
                                "while :; do sleep 1000 & wait; done"));
    ASSERT_TRUE(program.wait_for("up\n"));
    program.send(number);
    const auto result = program.finish();
    EXPECT_EQ(result.status, 5) << "signal " << number;
    EXPECT_EQ(result.out, "up\ngot\n");
  }
}

TEST_F(RunTest, ASignalThatEndsTheCommandIsItsStatus) {
  for (const int number : {SIGTERM, SIGINT}) {
    Program program(host_, {temenos_program(), "run", "--no-net", "--", "python3", "-c",
                            "import signal; signal.signal(signal.SIGINT, signal.SIG_DFL); "
                            "print('up', flush=True); signal.pause()"});
    ASSERT_TRUE(program.wait_for("up\n"));
    program.send(number);
    EXPECT_EQ(program.finish().status, 128 + number);
  }
}

TEST_F(RunTest, JsonIsOneValueWithEveryField) {
  const auto result = run({"--json"}, "echo out; echo err >&2; exit 7");
  EXPECT_EQ(result.status, 7);
  EXPECT_EQ(result.err, "");
  EXPECT_EQ(result.out.find('\n'), result.out.size() - 1);
  const auto json = parse_json(result.out, {});
  ASSERT_TRUE(json) << result.out;
  const auto& object = json->as_object();
  EXPECT_EQ(object.at("exit_code").as_int64(), 7);
  EXPECT_TRUE(object.at("signal").is_null());
  for (const char* name : {"timed_out", "oom", "truncated"}) {
    EXPECT_FALSE(object.at(name).as_bool()) << name;
  }
  EXPECT_GE(object.at("duration_ms").as_int64(), 0);
  EXPECT_EQ(object.at("stdout").as_string(), "out\n");
  EXPECT_EQ(object.at("stderr").as_string(), "err\n");
  EXPECT_TRUE(object.at("denials").as_array().empty());
  EXPECT_TRUE(object.at("left_running").as_array().empty());
  EXPECT_FALSE(object.contains("job")) << "nothing was detached";
}

TEST_F(RunTest, JsonNamesTheSignalAndKeepsEveryByte) {
  const auto result = run({"--json"}, "printf '\\377\\000x'; printf ok >&2; kill -TERM $$");
  EXPECT_EQ(result.status, 128 + SIGTERM);
  const auto json = parse_json(result.out, {});
  ASSERT_TRUE(json) << result.out;
  const auto& object = json->as_object();
  EXPECT_TRUE(object.at("exit_code").is_null());
  EXPECT_EQ(object.at("signal").as_string(), "SIGTERM");
  EXPECT_EQ(object.at("stdout_base64").as_string(), "/wB4");
  EXPECT_FALSE(object.contains("stdout"));
  EXPECT_EQ(object.at("stderr").as_string(), "ok");
}

TEST_F(RunTest, JsonReportsWhatLivesOn) {
  const auto result = run({"--json"}, "sleep 1000 >/dev/null 2>&1 & echo $!");
  EXPECT_EQ(result.status, 0);
  const auto json = parse_json(result.out, {});
  ASSERT_TRUE(json) << result.out;
  const auto& left = json->at("left_running").as_array();
  ASSERT_EQ(left.size(), 1u);
  EXPECT_EQ(std::to_string(left[0].to_number<int>()) + "\n", json->at("stdout").as_string());
}

TEST_F(RunTest, TheEnvironmentIsTheBoxs) {
  const auto result = host_.temenos({"run", "--no-net", "--env", "GREETING=a=b c", "--env",
                                     "LANG=en_US.UTF-8", "--env", "EMPTY=", "--", "env"},
                                    "", "", {{"TEMENOS_CANARY", "host-only"}});
  EXPECT_EQ(result.status, 0);
  for (const char* line :
       {"GREETING=a=b c\n", "LANG=en_US.UTF-8\n", "EMPTY=\n", "HOME=/root\n", "TMPDIR=/tmp\n",
        "USER=root\n", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\n"}) {
    EXPECT_THAT(result.out, HasSubstr(line));
  }
  EXPECT_THAT(result.out, Not(HasSubstr("host-only")));
  EXPECT_THAT(run({}, "echo $LANG").out, "C.UTF-8\n");
  EXPECT_EQ(run({}, "cd && touch f && cd \"$TMPDIR\" && touch f && pwd").out, "/tmp\n");
}

TEST_F(RunTest, TheWorkingDirectoryCanBeChosen) {
  EXPECT_EQ(run({}, "pwd").out, "/root\n");
  EXPECT_EQ(run({"--cwd", "/usr/bin"}, "pwd").out, "/usr/bin\n");
  expect_error(run({"--cwd", "/no/such"}, "pwd"), 125, {"cannot enter", "--cwd"});
}

TEST_F(RunTest, HostNetworkIsWarnedAbout) {
  const auto result = host_.temenos({"run", "--net", "host", "--", "true"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("temenos: warning: the box has the host's network"));
}

TEST_F(RunTest, ABoxStartsEmptyEveryTime) {
  EXPECT_EQ(run({}, "touch ~/mark /var/tmp/mark; ls ~").out, "mark\n");
  EXPECT_EQ(run({}, "ls /root /var/tmp | grep mark").out, "");
}

}  // namespace
}  // namespace temenos::testing
