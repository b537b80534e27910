// What a user can get wrong, and what is not there yet: one line that says what to do, the right
// status, nothing started and nothing left.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/integration/program.h"

namespace temenos::testing {
namespace {

using ::testing::HasSubstr;

class BadInputTest : public IntegrationTest {};

TEST_F(BadInputTest, WrongUsageIs2) {
  struct {
    std::vector<std::string> args;
    std::string_view text;
  } const cases[] = {
      {{"bogus"}, "see 'temenos --help'"},
      {{"--bogus"}, "see 'temenos --help'"},
      {{"run", "--bogus", "--", "true"}, "--bogus: see 'temenos run --help'"},
      {{"run", "--no-net", "true"}, "see 'temenos run --help'"},
      {{"run", "--no-net"}, "no command to run: put it after '--'"},
      {{"run", "--no-net", "--"}, "no command to run: put it after '--'"},
      {{"run", "--net", "some", "--", "true"}, "'some' is not one of none, filtered, nat, host"},
      {{"run", "--net", "host", "--no-net", "--", "true"}, "contradict each other"},
      {{"run", "--no-net", "--allow-host", "x.org", "--", "true"}, "contradict each other"},
      {{"run", "--no-net", "--ephemeral", "--review", "--", "true"}, "contradict each other"},
      {{"run", "--no-net", "--platform", "xen", "--", "true"}, "'xen' is not one of auto"},
      {{"run", "--no-net", "--volume", "/x", "--", "true"}, "is not HOST:TARGET[:ro|rw]"},
      {{"run", "--no-net", "--volume", "/x:/y:rx", "--", "true"}, "'rx' is not one of ro, rw"},
      {{"run", "--no-net", "--secret-file", "/x", "--", "true"}, "is not HOST:TARGET"},
      {{"run", "--no-net", "--env", "=x", "--", "true"}, "is not K=V"},
      {{"run", "--no-net", "--env", "x", "--", "true"}, "is not K=V"},
      {{"run", "--no-net", "--read", "", "--", "true"}, "an empty path"},
      {{"run", "--no-net", "--allow-danger", "all", "--", "true"}, "'all' is not one of home-bind"},
      {{"run", "--no-net", "--timeout", "-1", "--", "true"}, "--timeout"},
      {{"run", "--no-net", "--timeout", "nan", "--", "true"}, "--timeout"},
      {{"run", "--no-net", "--timeout", "soon", "--", "true"}, "--timeout"},
      {{"run", "--no-net", "--output", "much", "--", "true"}, "--output"},
      {{"doctor", "extra"}, "see 'temenos doctor --help'"},
      {{"selftest", "--platform", "xen"}, "see 'temenos selftest --help'"},
  };
  for (const auto& one : cases) {
    SCOPED_TRACE(one.args.back() + " " + std::string(one.text));
    expect_error(host_.temenos(one.args), 2, {one.text});
  }
}

TEST_F(BadInputTest, BadValuesAreNamed) {
  ASSERT_EQ(mkfifo((host_.path() + "/fifo").c_str(), 0644), 0);
  struct {
    std::vector<std::string> args;
    std::string_view text;
  } const cases[] = {
      {{"--env", "A-B=x"}, "A-B"},
      {{"--output", "0"}, "output_mb"},
      {{"--output", "-5"}, "output_mb"},
      {{"--volume", "/usr:relative"}, "relative"},
      {{"--volume", "/usr/share:/"}, "/"},
      {{"--read", "/no/such/path"},
       "cannot mount /no/such/path: No such file or directory: give a"},
      {{"--read", "/dev/null"}, "/dev/null"},
      {{"--read", host_.path() + "/fifo"}, "only directories and regular files"},
      {{"--write", "/no/such\n\x1b[31m"}, "/no/such\\n\\x1b[31m"},
  };
  for (const auto& one : cases) {
    SCOPED_TRACE(one.args.back());
    expect_error(run(one.args, "true"), 125, {one.text});
  }
}

TEST_F(BadInputTest, PolicyFiles) {
  struct {
    const char* name;
    const char* text;
    std::string_view expected;
  } const cases[] = {
      {"a.json", "{", "a.json"},
      {"b.json", "", "b.json"},
      {"c.json", R"({"netwrok":"none"})", "netwrok"},
      {"d.json", R"({"network":{"mode":7}})", "network"},
      {"e.json", R"({"mounts":[{"source":"x"}]})", "mounts"},
      {"f.toml", "network = \n", "f.toml"},
      {"g.toml", "unknown = 1\n", "unknown"},
  };
  for (const auto& one : cases) {
    SCOPED_TRACE(one.name);
    const auto path = host_.file(one.name, one.text);
    expect_error(host_.temenos({"run", "--policy", path, "--", "true"}), 125, {one.expected});
  }
  expect_error(host_.temenos({"run", "--policy", "/no/such.json", "--", "true"}), 125,
               {"--policy", "/no/such.json", "give a file that can be read"});
  expect_error(host_.temenos({"run", "--policy", host_.path(), "--", "true"}), 125,
               {"--policy", "give a file that can be read"});
  const auto ok = host_.file("ok.toml", "network = \"none\"\n[env]\nA = \"toml\"\n");
  // Nothing that a box can write decides what the next one may do.
  const auto own = host_.dir("own");
  const auto in_own =
      host_.file("own/p.json", R"({"network":"none","mounts":[{"source":")" + own +
                                   R"(","target":")" + own + R"(","access":"write"}]})");
  expect_error(host_.temenos({"run", "--policy", in_own, "--", "true"}), 125,
               {"p.json", "which this policy lets the box write"});
  host_.dir("repository/.git");
  const auto in_repository = host_.file("repository/p.json", R"({"network":"none"})");
  expect_error(host_.temenos({"run", "--policy", in_repository, "--", "true"}), 125,
               {"p.json", "where boxes write"});
  const auto below = host_.dir("below");
  const auto project = host_.dir("project/mm/in");
  const std::string outer = host_.path() + "/project";
  const auto covered = host_.file(
      "covered.json", R"({"network":"none","mounts":[{"source":")" + outer + R"(","target":")" +
                          outer + R"(","access":"write"},{"source":")" + below + R"(","target":")" +
                          project + R"("}],"volumes":[{"target":")" + outer +
                          R"(/mm","access":"write","memory":{"size_mb":1}}]})");
  expect_error(host_.temenos({"run", "--policy", covered, "--", "true"}), 125,
               {"cannot mount at", "memory volume"});
  const auto good = host_.temenos({"run", "--policy", ok, "--", "sh", "-c", "echo $A"});
  EXPECT_EQ(good.out, "toml\n") << good.err;
}

TEST_F(BadInputTest, UnreadablePaths) {
  if (geteuid() == 0) GTEST_SKIP() << "root can read everything";
  const auto closed = host_.file("closed/file", "secret", 0600);
  host_shell("chmod 0 '" + host_.path() + "/closed'");
  expect_error(run({"--read", closed}, "true"), 125, {"Permission denied", "give a path"});
  expect_error(host_.temenos({"run", "--policy", closed, "--", "true"}), 125,
               {"Permission denied", "give a file that can be read"});
  host_shell("chmod 755 '" + host_.path() + "/closed'");
}

TEST_F(BadInputTest, AWorkingDirectoryThatIsGone) {
  const auto gone = host_.dir("gone");
  Program program(host_,
                  {"/bin/sh", "-c", "rmdir \"$PWD\"; exec \"$@\"", "sh", temenos_program(), "run",
                   "--no-net", "--", "true"},
                  {}, gone);
  expect_error(program.finish(), 125, {"working directory", "change to a directory that exists"});
}

// Said before anything runs: this runsc would leave a mark, and the cache is empty, so a platform
// trial would be due.
TEST_F(BadInputTest, WhatIsNotBuiltStartsNothing) {
  const auto runsc = host_.file("runsc", "#!/bin/sh\ntouch '" + host_.path() + "/ran'\n", 0755);
  struct {
    std::vector<std::string> args;
    std::string_view text;
  } const cases[] = {
      {{"--net", "nat"}, "the network mode 'nat' is not built yet: say --no-net"},
      {{"--no-net", "--image", "debian"}, "images are not built yet"},
      {{"--no-net", "--review"}, "--review is not built yet: use --ephemeral"},
  };
  for (const auto& one : cases) {
    SCOPED_TRACE(one.text);
    std::vector<std::string> args{"run"};
    args.insert(args.end(), one.args.begin(), one.args.end());
    args.insert(args.end(), {"--", "true"});
    expect_error(host_.temenos(args, "", "",
                               {{"TEMENOS_RUNSC", runsc}, {"XDG_CACHE_HOME", host_.dir("cache")}}),
                 125, {one.text, "not built yet"});
    EXPECT_NE(access((host_.path() + "/ran").c_str(), F_OK), 0) << "runsc was started";
  }
  EXPECT_EQ(host_shell("ls -A '" + host_.path() + "/cache/temenos' 2>/dev/null"), "");
}

}  // namespace
}  // namespace temenos::testing
