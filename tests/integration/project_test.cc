// The project and other host directories in a box: where they are mounted, who sees which change,
// and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>

#include "tests/integration/program.h"

namespace temenos::testing {
namespace {

using ::testing::HasSubstr;

class ProjectTest : public IntegrationTest {
 protected:
  std::string repository(const std::string& name = "repo") {
    host_.file(name + "/.git/HEAD", "ref: refs/heads/main\n");
    host_.file(name + "/.git/config", "[core]\n");
    host_.file(name + "/file", "content\n");
    host_.dir(name + "/.git/objects");
    host_.dir(name + "/.git/refs");
    return host_.path() + "/" + name;
  }
  std::string content(const std::string& path) { return host_shell("cat '" + path + "'"); }
};

TEST_F(ProjectTest, IsMountedAtItsOwnPathAndIsTheWorkingDirectory) {
  const auto repo = repository();
  const auto result = run({}, "pwd; cat file; echo new >made; mkdir d", repo);
  EXPECT_EQ(result.out, repo + "\ncontent\n");
  EXPECT_EQ(result.err, "");
  EXPECT_EQ(content(repo + "/made"), "new\n");
  struct stat st{};
  ASSERT_EQ(lstat((repo + "/d").c_str(), &st), 0);
  EXPECT_EQ(st.st_uid, geteuid());
}

TEST_F(ProjectTest, BelowItsRootTheUserStaysWhereHeIs) {
  const auto repo = repository();
  const auto below = host_.dir("repo/a/b");
  const auto result = run({}, "pwd; cat ../../file; touch here", below);
  EXPECT_EQ(result.out, below + "\ncontent\n") << result.err;
  EXPECT_EQ(access((below + "/here").c_str(), F_OK), 0);
  EXPECT_EQ(run({"--cwd", "/usr"}, "pwd", below).out, "/usr\n");
}

TEST_F(ProjectTest, EphemeralIsReadOnly) {
  const auto repo = repository();
  const auto result = run({"--ephemeral"}, "pwd; cat file; echo x >made || echo x >>file", repo);
  EXPECT_NE(result.status, 0);
  EXPECT_EQ(result.out, repo + "\ncontent\n");
  EXPECT_THAT(result.err, HasSubstr("Read-only file system"));
  EXPECT_NE(access((repo + "/made").c_str(), F_OK), 0);
  EXPECT_EQ(content(repo + "/file"), "content\n");
}

TEST_F(ProjectTest, NoProjectIsNotThere) {
  const auto repo = repository();
  EXPECT_EQ(run({"--no-project"}, "pwd; ls '" + repo + "' 2>/dev/null || echo absent", repo).out,
            "/root\nabsent\n");
}

TEST_F(ProjectTest, HomeAndRootAreNeverOne) {
  repository("home");
  const auto below = host_.dir("home/src");
  EXPECT_EQ(run({}, "pwd; ls '" + host_.path() + "' 2>/dev/null || echo absent", below).out,
            "/root\nabsent\n");
  // A repository below it is one.
  const auto repo = repository("home/src/repo");
  EXPECT_EQ(run({}, "pwd; ls '" + host_.path() + "/home'", repo).out, repo + "\nsrc\n");
  EXPECT_EQ(run({}, "pwd", "/").out, "/root\n");
}

TEST_F(ProjectTest, AWorktreeIsOne) {
  // .git is a file there, and names a directory that is not mounted.
  host_.file("tree/.git", "gitdir: /elsewhere/.git/worktrees/tree\n");
  const auto tree = host_.path() + "/tree";
  const auto result =
      run({}, "pwd; touch made; echo gitdir: x >.git || rm .git || mv .git g || echo held", tree);
  EXPECT_EQ(result.out, tree + "\nheld\n");
  EXPECT_EQ(content(tree + "/.git"), "gitdir: /elsewhere/.git/worktrees/tree\n");
}

TEST_F(ProjectTest, RealGitWorksInIt) {
  if (host_shell("command -v git").empty()) {
    if (getenv("TEMENOS_MUST_WORK") != nullptr) FAIL() << "git is not installed";
    GTEST_SKIP() << "git is not installed";
  }
  const auto repo = host_.dir("real");
  ASSERT_EQ(
      host_shell("cd '" + repo +
                 "' && git init -q -b main . && echo a >a && git add a && "
                 "git -c user.name=t -c user.email=t@t commit -q -m one && git log --format=%s"),
      "one\n");
  const auto result = run({},
                          "git -c safe.directory=* status --short && echo b >b && git add b && "
                          "git -c user.name=t -c user.email=t@t commit -q -m two && "
                          "git log --format=%s",
                          repo);
  EXPECT_EQ(result.out, "two\none\n") << result.err;
  EXPECT_EQ(host_shell("git -C '" + repo + "' log --format=%s"), "two\none\n");
}

TEST_F(ProjectTest, EditsAreSeenAtOnceOnBothSides) {
  const auto repo = repository();
  Program program(host_,
                  argv({"-i"},
                       "cat file; echo box >file; echo ready; read go; cat file; "
                       "ls made; rm made"),
                  {}, repo);
  ASSERT_TRUE(program.wait_for("content\nready\n"));
  EXPECT_EQ(content(repo + "/file"), "box\n");
  host_.file("repo/file", "host\n");
  host_.file("repo/made", "");
  ASSERT_EQ(write(program.in(), "go\n", 3), 3);
  EXPECT_EQ(program.finish().out, "content\nready\nhost\nmade\n");
  EXPECT_NE(access((repo + "/made").c_str(), F_OK), 0);
}

TEST_F(ProjectTest, NewFilesThatHostProgramsObeyAreReported) {
  const auto repo = repository();
  const auto result = run({}, "mkdir -p a/.vscode && echo '{}' >a/.vscode/tasks.json", repo);
  EXPECT_EQ(result.status, 0);
  EXPECT_THAT(result.err, HasSubstr("temenos: the box made " + repo + "/a/.vscode, which host"));
}

TEST_F(ProjectTest, ReadAndWrite) {
  host_.file("in/file", "in\n");
  const auto in = host_.path() + "/in";
  const auto out = host_.dir("out");
  const auto result =
      run({"--read", in, "--write", out, "--read", in + "/file"},
          "cat '" + in + "/file'; echo x >'" + in + "/new' || echo y >'" + out + "/new'");
  EXPECT_EQ(result.out, "in\n");
  EXPECT_EQ(content(out + "/new"), "y\n");
  EXPECT_NE(access((in + "/new").c_str(), F_OK), 0);
  // Relative to where the user stands.
  EXPECT_EQ(run({"--read", "in"}, "cat '" + in + "/file'", host_.path()).out, "in\n");
  EXPECT_EQ(run({"--read", "./../in/."}, "cat '" + in + "/file'", out).out, "in\n");
}

TEST_F(ProjectTest, Volumes) {
  host_.file("data/file", "data\n");
  const auto data = host_.path() + "/data";
  EXPECT_EQ(
      run({"--volume", data + ":/srv/a:ro", "--volume", data + ":/new/deep/place"},
          "cat /srv/a/file; echo w >/new/deep/place/w; touch /srv/a/x 2>/dev/null || echo ro; "
          "cat /srv/a/w")
          .out,
      "data\nro\nw\n");
  EXPECT_EQ(content(data + "/w"), "w\n");
}

TEST_F(ProjectTest, ASecretFileIsReadOnlyAndAtItsTarget) {
  const auto secret = host_.file("token", "s3cret\n", 0600);
  const auto result = run({"--secret-file", secret + ":/srv/.token"},
                          "cat /srv/.token; echo x >/srv/.token || rm /srv/.token");
  EXPECT_NE(result.status, 0);
  EXPECT_EQ(result.out, "s3cret\n");
  EXPECT_EQ(content(secret), "s3cret\n");
}

TEST_F(ProjectTest, NestedMounts) {
  host_.file("outer/inner/hidden", "");
  host_.file("other/shown", "");
  const auto outer = host_.path() + "/outer";
  // A directory before what lies in it, in whatever order they are named.
  for (const bool first : {true, false}) {
    std::vector<std::string> args{"--volume", host_.path() + "/other:" + outer + "/inner:ro"};
    args.insert(first ? args.begin() : args.end(), {"--write", outer});
    const auto result = run(args, "ls '" + outer + "/inner'; touch '" + outer + "/w'; touch '" +
                                      outer + "/inner/x' 2>/dev/null || echo ro");
    EXPECT_EQ(result.out, "shown\nro\n") << result.err;
  }
  EXPECT_EQ(host_shell("ls -A '" + outer + "/inner'; ls -A '" + host_.path() + "/other'"),
            "hidden\nshown\n");
}

TEST_F(ProjectTest, AMissingTargetInAnotherMountMakesNothingOnTheHost) {
  const auto outer = host_.dir("outer");
  const auto other = host_.dir("other");
  const auto file = host_.file("f", "");
  expect_error(
      run({"--write", outer, "--volume", other + ":" + outer + "/none"}, "true"), 125,
      {"cannot mount at " + outer + "/none", "there is no such directory", "make it first"});
  expect_error(run({"--write", outer, "--secret-file", file + ":" + outer + "/none"}, "true"), 125,
               {"there is no such file", "make it first"});
  EXPECT_EQ(host_shell("ls -A '" + outer + "'"), "");
}

TEST_F(ProjectTest, AHomeDirectoryNeedsItsNamedFlag) {
  const std::string home = host_.path() + "/home";
  host_.file("home/file", "home\n");
  expect_error(run({"--read", home}, "true"), 125,
               {home + " is a home directory", "--allow-danger home-bind"});
  expect_error(run({"--write", host_.path()}, "true"), 125,
               {"holds a home directory", "--allow-danger home-bind"});
  expect_error(run({"--read", "/"}, "true"), 125, {"/"});
  // Named, it is there, without what is temenos' own.
  const auto result = run({"--read", home, "--allow-danger", "home-bind"},
                          "cat '" + home + "/file'; ls -A '" + home + "/data/temenos'");
  EXPECT_EQ(result.out, "home\n") << result.err;
}

TEST_F(ProjectTest, TemenosOwnDirectoriesAreRefused) {
  ASSERT_EQ(run({}, "true").status, 0);
  expect_error(run({"--write", host_.path() + "/home/data/temenos"}, "true"), 125,
               {"belongs to temenos itself"});
}

}  // namespace
}  // namespace temenos::testing
