// Mount points stay where they are, masks hold, and a source is what was checked.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/fs.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <map>
#include <thread>

#include "leak/leak.h"

namespace temenos::leak {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;

class Mounts : public ::testing::TestWithParam<std::string> {};

std::string make_repository(const TestHost& host, const std::string& name) {
  host.file(name + "/.git/HEAD", "ref: refs/heads/main\n");
  host.dir(name + "/.git/objects");
  host.dir(name + "/.git/refs");
  host.file(name + "/.git/config", "[core]\n\trepositoryformatversion = 0\n");
  host.file(name + "/.git/hooks/pre-commit", "#!/bin/sh\n", 0755);
  return host.path() + "/" + name;
}

TEST_P(Mounts, WhatLiesAboveAProtectedFileCannotBeMoved) {
  const TestHost host;
  const std::string project = make_repository(host, "project");
  make_repository(host, "project/deep/er/nested");
  host.file("project/deep/er/nested/file", "");
  const Words pinned{project + "/.git",           project + "/.git/config",
                     project + "/.git/hooks",     project + "/deep/er/nested/.git",
                     project + "/deep/er/nested", project + "/deep/er",
                     project + "/deep",           project + "/deep/er/nested/.git/config"};
  ASSERT_EQ(testing::host_shell("chmod -R a+w " + project), "");
  const Tree before = tree_of(project + "/.git");
  Words words{"three", "move"};
  words.insert(words.end(), pinned.begin(), pinned.end());
  const auto all = attempts(host.temenos(attack(GetParam(), {}, words), "", project));
  std::map<std::string, int> tried;
  for (const auto& attempt : all) {
    ++tried[attempt.attacker + " " + attempt.on];
    if (attempt.what == "rename") {
      // The one that a mount point gives; EACCES or EPERM when that attacker may not even try.
      EXPECT_THAT(attempt.outcome, AnyOf("EBUSY", "EPERM", "EACCES")) << attempt.text();
    }
    EXPECT_THAT(attempt.outcome, AnyOf("EBUSY", "EPERM", "EACCES", "EXDEV", "EROFS", "ENOTEMPTY",
                                       "EISDIR", "ENOTDIR", "EINVAL", "EEXIST", "ENOSYS"))
        << attempt.text();
  }
  for (const auto& attacker : kAttackers) {
    for (const auto& path : pinned) EXPECT_EQ(tried[attacker + " " + path], 7) << attacker << path;
  }
  for (const auto& path : pinned) EXPECT_EQ(access(path.c_str(), F_OK), 0) << path;
  // Nothing took its place: what is protected in it is the same file as before.
  const Tree after = tree_of(project + "/.git");
  for (const char* path : {"config", "hooks", "hooks/pre-commit", "HEAD"}) {
    EXPECT_EQ(before.at(path), after.at(path)) << path;
  }
}

TEST_P(Mounts, MovingAwayAndMakingAnew) {
  const TestHost host;
  const std::string project = make_repository(host, "project");
  const auto result = host.temenos(
      run(GetParam(), {},
          {"sh", "-c",
           "mv .git x; mv -T .git x; rm -rf .git/config; rmdir .git; mkdir .git; "
           "mv ../project ../other; cp -r .git y; mv -T y .git; "
           "python3 -c 'import os; os.rename(\".git\", \"z\")'; ls -d .git x z; true"}),
      "", project);
  EXPECT_EQ(result.out, ".git\n") << result.err;
  EXPECT_THAT(result.err, HasSubstr("Device or resource busy"));
  EXPECT_EQ(read_text(project + "/.git/config"), "[core]\n\trepositoryformatversion = 0\n");
}

// What of temenos' own a box sees or changes below `top`, by `script`.
struct OwnDirs {
  std::string data, config, cache, runtime, prefix;
};

// temenos' own directories and the program itself all lie in `top`.
OwnDirs own_dirs_in(const TestHost& host, const std::string& top) {
  OwnDirs out{host.dir(top + "/data"), host.dir(top + "/config"), host.dir(top + "/cache"),
              host.dir(top + "/runtime"), host.dir(top + "/prefix")};
  host.file(top + "/config/temenos/kept", "own\n");
  host.file(top + "/runtime/temenos/kept", "own\n");
  return out;
}

std::map<std::string, std::string> environment_of(const OwnDirs& dirs) {
  return {{"XDG_DATA_HOME", dirs.data},
          {"XDG_CONFIG_HOME", dirs.config},
          {"XDG_CACHE_HOME", dirs.cache},
          {"XDG_RUNTIME_DIR", dirs.runtime}};
}

std::string attack_own(const OwnDirs& dirs) {
  std::string script;
  for (const auto& dir : {dirs.data, dirs.config, dirs.cache, dirs.runtime}) {
    const std::string own = dir + "/temenos";
    script += "ls -A " + own + "; touch " + own + "/new; rm -rf " + own + "/*; mv " + own + " " +
              own + ".away && mkdir " + own + "; mv " + dir + " " + dir + ".away; ";
  }
  const std::string program = dirs.prefix + "/bin/temenos";
  script += "ls -A " + dirs.prefix + "/libexec/temenos; touch " + dirs.prefix +
            "/libexec/temenos/temenos-init; echo x >" + program + "; rm -f " + program + "; mv " +
            program + " " + program + ".away; mv " + dirs.prefix + "/bin " + dirs.prefix +
            "/bin.away; mv " + dirs.prefix + " " + dirs.prefix +
            ".away; cp /bin/true /tmp/t; mv -f "
            "/tmp/t " +
            program + "; test -x " + program + " && echo program; true";
  return "exec 2>/dev/null; " + script;
}

void expect_own_untouched(const OwnDirs& dirs, const Tree& prefix_before) {
  EXPECT_EQ(read_text(dirs.config + "/temenos/kept"), "own\n");
  EXPECT_EQ(read_text(dirs.runtime + "/temenos/kept"), "own\n");
  EXPECT_EQ(testing::host_shell("ls -A " + dirs.data + "/temenos/run"), "");
  EXPECT_EQ(difference(prefix_before, tree_of(dirs.prefix)), "");
}

TEST_P(Mounts, OwnDirectoriesAreHiddenInAProject) {
  const TestHost host;
  const std::string project = make_repository(host, "project");
  const OwnDirs dirs = own_dirs_in(host, "project");
  const StagedProduct staged(dirs.prefix);
  const Tree before = tree_of(dirs.prefix);
  const auto result = host.temenos(run(GetParam(), {}, {"sh", "-c", attack_own(dirs)}), "", project,
                                   environment_of(dirs));
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.out, "program\n") << "something of them was seen";
  expect_own_untouched(dirs, before);
}

TEST_P(Mounts, OwnDirectoriesThatAreNotThereYetCannotBeMade) {
  const TestHost host;
  const std::string project = make_repository(host, "project");
  const std::string runtime = host.dir("project/runtime");
  const auto result =
      host.temenos(run(GetParam(), {}, {"sh", "-c", "mkdir -p runtime/temenos/planted; true"}), "",
                   project, {{"XDG_RUNTIME_DIR", runtime}});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_NE(access((runtime + "/temenos/planted").c_str(), F_OK), 0);
}

TEST_P(Mounts, AHomeDirectoryIsRefused) {
  const TestHost host;
  const std::string home = host.path() + "/home";
  for (const Words& flags :
       {Words{"--write", home}, Words{"--read", home}, Words{"--volume", host.path() + ":/all:rw"},
        Words{"--read", "/"}, Words{"--write", "/home"}}) {
    const auto result = host.temenos(run(GetParam(), flags, {"true"}));
    EXPECT_EQ(result.status, 125) << flags[1] << result.err;
    EXPECT_THAT(result.err, HasSubstr("temenos: ")) << flags[1];
  }
}

TEST_P(Mounts, OwnDirectoriesAreHiddenInAHomeDirectory) {
  const TestHost host;
  const OwnDirs dirs = own_dirs_in(host, "home");
  const StagedProduct staged(dirs.prefix);
  const Tree before = tree_of(dirs.prefix);
  const Words flags{"--allow-danger", "home-bind", "--write", host.path() + "/home"};
  const auto result = host.temenos(run(GetParam(), flags, {"sh", "-c", attack_own(dirs)}), "", "",
                                   environment_of(dirs));
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.out, "program\n") << "something of them was seen";
  expect_own_untouched(dirs, before);
  for (const auto& own : {dirs.data + "/temenos", dirs.prefix + "/libexec/temenos"}) {
    EXPECT_EQ(host.temenos(run(GetParam(), {"--read", own}, {"true"}), "", "", environment_of(dirs))
                  .status,
              125)
        << own;
  }
}

// --- allowed_root

std::string volume_policy(const TestHost& host, const std::string& platform,
                          const std::string& root, const std::string& volume) {
  return host.file("policy.json", R"({"network": "none", "platform": ")" + platform +
                                      R"(", "volumes": [{"target": "/volume", "access": "write",)" +
                                      R"("disk": {"host_dir": ")" + volume +
                                      R"(", "allowed_root": ")" + root + R"("}}]})");
}

TEST_P(Mounts, AllowedRootHolds) {
  const TestHost host;
  const std::string root = host.dir("root");
  host.file("root/inner/vol/file", "inside\n");
  host.file("secret/file", "leak-canary\n");
  ASSERT_EQ(symlink((host.path() + "/secret").c_str(), (root + "/link").c_str()), 0);
  ASSERT_EQ(symlink("../../secret", (root + "/inner/relative").c_str()), 0);
  auto see = [&](const std::string& volume) {
    return host.temenos({"run", "--policy", volume_policy(host, GetParam(), root, volume), "--",
                         "cat", "/volume/file"});
  };
  EXPECT_EQ(see(root + "/inner/vol").out, "inside\n");
  for (const std::string& volume :
       {root + "/link", root + "/inner/relative", host.path() + "/secret"}) {
    const auto result = see(volume);
    EXPECT_EQ(result.status, 125) << volume;
    EXPECT_EQ(result.out, "");
    EXPECT_THAT(result.err, ::testing::ContainsRegex("allowed.root")) << volume;
  }
}

// Exchanges `path` and `other` until the end of the object.
class Swapper {
 public:
  Swapper(const std::string& path, const std::string& other)
      : thread_([this, path, other] {
          while (!done_) {
            syscall(SYS_renameat2, AT_FDCWD, path.c_str(), AT_FDCWD, other.c_str(),
                    RENAME_EXCHANGE);
            ++swaps_;
          }
        }) {}
  ~Swapper() {
    done_ = true;
    thread_.join();
    EXPECT_GT(swaps_, 1000);
  }

 private:
  std::atomic<bool> done_ = false;
  std::atomic<int> swaps_ = 0;
  std::thread thread_;
};

TEST(MountSources, AllowedRootHoldsAgainstASwap) {
  const TestHost host;
  const std::string root = host.dir("root");
  host.file("root/a/vol/file", "inside\n");
  host.file("secret/file", "leak-canary\n");
  host.file("secret/vol/file", "leak-canary\n");
  // The last component, and one above it.
  ASSERT_EQ(symlink((host.path() + "/secret").c_str(), (root + "/a/swap").c_str()), 0);
  ASSERT_EQ(symlink((host.path() + "/secret").c_str(), (root + "/swap").c_str()), 0);
  const std::string policy = volume_policy(host, "systrap", root, root + "/a/vol");
  for (const auto& [path, other] :
       {std::pair{root + "/a/vol", root + "/a/swap"}, std::pair{root + "/a", root + "/swap"}}) {
    const Swapper swapper(path, other);
    // Until a start has met the directory and another one the link. That every start meets the link
    // somewhere may be; that none does would say that there was no swap.
    std::map<int, int> ends;
    for (int i = 0; i < 40 && (i < 5 || ends[0] == 0 || ends[125] == 0); ++i) {
      const auto result = host.temenos({"run", "--policy", policy, "--", "sh", "-c",
                                        "cat /volume/file; touch /volume/from-the-box"});
      ++ends[result.status];
      ASSERT_THAT(result.status, AnyOf(0, 125)) << result.err;
      ASSERT_THAT(result.out, Not(HasSubstr("canary")));
      ASSERT_NE(access((host.path() + "/secret/from-the-box").c_str(), F_OK), 0);
      ASSERT_NE(access((host.path() + "/secret/vol/from-the-box").c_str(), F_OK), 0);
    }
    EXPECT_GT(ends[125], 0) << path;
  }
}

INSTANTIATE_TEST_SUITE_P(On, Mounts, ::testing::ValuesIn(testing::platforms()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace temenos::leak
