// Everything that is mounted read-only stays as it is, whatever the box does with its mounts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <set>

#include "leak/leak.h"

namespace temenos::leak {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

class ReadOnly : public ::testing::TestWithParam<std::string> {};

// What an attempt may end with besides EROFS, EPERM and EACCES, and why that is no way through.
bool allowed(const Attempt& attempt) {
  static const std::set<std::string> refused{"EROFS", "EPERM", "EACCES"};
  static const std::map<std::string, std::set<std::string>> also{
      // From another mount, or of a mount point itself.
      {"move over", {"EXDEV", "EBUSY", "EISDIR"}},
      {"rename away", {"EXDEV", "EBUSY"}},
      // EMFILE: gVisor's own overlay, which copies up all that lies below before it looks for a
      // mount.
      {"rename", {"EBUSY", "EXDEV", "EMFILE"}},
      {"unlink", {"EBUSY", "EISDIR"}},
      {"rmdir", {"EBUSY", "ENOTEMPTY"}},
      {"link away", {"EXDEV"}},
      // What the sandbox does not have at all.
      {"temporary file", {"EOPNOTSUPP", "EISDIR", "ENOSYS"}},
      {"setxattr", {"EOPNOTSUPP"}},
      {"removexattr", {"EOPNOTSUPP", "ENODATA"}},
      {"map shared", {"ENODEV"}},
      // It cannot even be seen by this attacker.
      {"stat", {"EACCES", "ENOENT"}},
  };
  // A fifo the sandbox keeps in its own memory. To the others it says yes although the host said no
  // to it, since it keeps no attributes of its own (--file-access=shared): that nothing came of
  // them, the trees tell.
  static const std::set<std::string> not_on_host{"chmod", "fchmod", "chown", "utimes"};
  if (attempt.outcome == "ok" || attempt.outcome == "EEXIST") {
    return attempt.what == "fifo" || not_on_host.contains(attempt.what);
  }
  if (refused.contains(attempt.outcome)) return true;
  const auto more = also.find(attempt.what);
  return more != also.end() && more->second.contains(attempt.outcome);
}

// Every attacker tried to write each of `paths`, before and after the mounts were loosened.
void expect_refused(const std::vector<Attempt>& all, const Words& paths) {
  std::map<std::string, int> tried;
  for (const auto& attempt : all) {
    EXPECT_TRUE(allowed(attempt)) << attempt.text();
    ++tried[attempt.attacker + " " + attempt.on];
  }
  for (const auto& attacker : kAttackers) {
    for (const auto& path : paths) EXPECT_GE(tried[attacker + " " + path], 2) << attacker << path;
  }
}

void with_attribute(const std::string& path) {
  (void)setxattr(path.c_str(), "user.kept", "kept", 4, 0);
}

Words each_path(const Words& verb, const Words& paths) {
  Words out = verb;
  out.insert(out.end(), paths.begin(), paths.end());
  return out;
}

TEST_P(ReadOnly, BaseAndBindsOfEveryKind) {
  const TestHost host;
  const std::string read = host.dir("read");
  host.file("read/file", "read\n", 0666);
  host.file("read/deep/er/file", "deep\n", 0666);
  const std::string single = host.file("single/file", "single\n", 0666);
  const std::string volume = host.dir("volume");
  host.file("volume/file", "volume\n", 0666);
  const std::string secret = host.file("secret/token", "secret\n", 0644);
  const std::string write = host.dir("write");
  const std::string nested = host.dir("write/nested");
  host.file("write/nested/file", "nested\n", 0666);
  for (const auto& path : {read, read + "/file", single, volume, secret, nested}) {
    with_attribute(path);
  }
  ASSERT_EQ(testing::host_shell("chmod 0777 " + read + " " + read + "/deep/er " + volume + " " +
                                nested + " 2>&1"),
            "");
  const Words paths{
      "/usr",          "/usr/bin",          "/usr/bin/env",         "/etc",
      "/etc/passwd",   "/etc/ld.so.cache",  "/etc/ssl/certs",       "/etc/alternatives",
      "/run/temenos",  "/run/temenos/init", "/leak/attack",         read,
      read + "/file",  read + "/deep/er",   read + "/deep/er/file", single,
      "/leak/volume",  "/leak/volume/file", "/leak/token",          nested,
      nested + "/file"};
  std::map<std::string, Tree> trees;
  for (const auto& path : {read, host.path() + "/single", volume, host.path() + "/secret", nested,
                           testing::guest("leak_attack"), std::string("/etc/alternatives")}) {
    trees[path] = tree_of(path);
  }
  std::map<std::string, std::string> states;
  for (const auto& path : paths) states[path] = state_of(path);
  const auto result = host.temenos(
      attack(GetParam(),
             {"--read", read, "--read", single, "--volume", volume + ":/leak/volume:ro",
              "--secret-file", secret + ":/leak/token", "--write", write, "--read", nested},
             each_path({"three", "write"}, paths)));
  expect_refused(attempts(result), paths);
  for (const auto& [path, tree] : trees) EXPECT_EQ(difference(tree, tree_of(path)), "") << path;
  for (const auto& [path, state] : states) EXPECT_EQ(state_of(path), state) << path;
}

// A repository as git makes it, without git.
void make_repository(const TestHost& host, const std::string& name) {
  host.file(name + "/.git/HEAD", "ref: refs/heads/main\n");
  host.dir(name + "/.git/objects");
  host.dir(name + "/.git/refs");
  host.file(name + "/.git/config", "[core]\n\trepositoryformatversion = 0\n", 0666);
  host.file(name + "/.git/hooks/pre-commit", "#!/bin/sh\n", 0777);
  host.file(name + "/.git/info/exclude", "", 0666);
  host.file(name + "/src/main.c", "", 0666);
}

TEST_P(ReadOnly, WhatHostProgramsObeyInALiveProject) {
  const TestHost host;
  make_repository(host, "project");
  const std::string project = host.path() + "/project";
  host.file("project/.envrc", "", 0666);
  host.file("project/.vscode/tasks.json", "{}", 0666);
  host.file("project/sub/.claude/settings.json", "{}", 0666);
  const Words paths{project + "/.git/config",
                    project + "/.git/hooks",
                    project + "/.git/hooks/pre-commit",
                    project + "/.git/info",
                    project + "/.git/info/exclude",
                    project + "/.envrc",
                    project + "/.vscode",
                    project + "/.vscode/tasks.json",
                    project + "/sub/.claude",
                    project + "/sub/.claude/settings.json"};
  std::map<std::string, Tree> trees;
  for (const auto& path : paths) trees[path] = tree_of(path);
  const auto result =
      host.temenos(attack(GetParam(), {}, each_path({"three", "write"}, paths)), "", project);
  expect_refused(attempts(result), paths);
  for (const auto& [path, tree] : trees) EXPECT_EQ(difference(tree, tree_of(path)), "") << path;
}

TEST_P(ReadOnly, AnEphemeralProject) {
  const TestHost host;
  make_repository(host, "project");
  const std::string project = host.path() + "/project";
  const Words paths{project, project + "/.git", project + "/.git/config", project + "/src",
                    project + "/src/main.c"};
  const Tree before = tree_of(project);
  const auto result = host.temenos(
      attack(GetParam(), {"--ephemeral"}, each_path({"three", "write"}, paths)), "", project);
  expect_refused(attempts(result), paths);
  EXPECT_EQ(difference(before, tree_of(project)), "");
}

// A mount below the source of a bind is read-only like the bind.
TEST(ReadOnlyMounts, WhatIsMountedBelowASource) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can mount something below a source";
  const TestHost host;
  const std::string read = host.dir("read");
  host.dir("read/below");
  std::string command;
  for (const auto& word : attack("systrap", {"--read", read},
                                 {"three", "write", read + "/below", read + "/below/file"})) {
    command += " '" + word + "'";
  }
  // In a mount namespace of its own, so that the mount ends with it.
  const std::string script = "mount -t tmpfs none " + read + "/below && echo x >" + read +
                             "/below/file && chmod 0777 " + read + "/below && chmod 0666 " + read +
                             "/below/file && " + testing::temenos_program() + command + " && ls " +
                             read + "/below";
  std::string environment = "env -i";
  for (const auto& variable : host.environment()) environment += " '" + variable + "'";
  CliResult result;
  result.out = testing::host_shell("cd " + host.path() + "/empty && " + environment +
                                   " unshare -m sh -c \"" + script + "\" 2>&1");
  ASSERT_THAT(result.out, ::testing::EndsWith("file\n"));
  result.out.resize(result.out.size() - strlen("file\n"));
  result.status = 0;
  expect_refused(attempts(result), {read + "/below", read + "/below/file"});
}

INSTANTIATE_TEST_SUITE_P(On, ReadOnly, ::testing::ValuesIn(boxes()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace temenos::leak
