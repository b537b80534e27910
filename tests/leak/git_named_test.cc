// What git's configuration, hooks and index lead to, in a project that a box could write in.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "leak/leak.h"

namespace temenos::leak {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// A program or configuration of the tree, and how git on the host comes to obey it.
struct Named {
  const char* path;
  const char* set_up;   // on the host, before the box
  const char* trigger;  // on the host, after it
};

void PrintTo(const Named& named, std::ostream* out) { *out << named.path; }

const Named kNamed[] = {
    {"tools/hook", "ln -s ../../tools/hook .git/hooks/pre-commit",
     "git commit -qm x --allow-empty"},
    {"tools/extra.cfg", "git config include.path ../tools/extra.cfg", "git status"},
    {"tools/home.cfg", "git config includeIf.gitdir:**.path ../tools/home.cfg", "git status"},
    {"tools/fsm", "git config core.fsmonitor ./tools/fsm", "git status"},
    {"tools/clean", "git config filter.x.clean ./tools/clean", "touch f.dat; git diff"},
    {"tools/smudge", "git config filter.x.smudge \"sh ./tools/smudge\"",
     "rm f.dat; git checkout f.dat"},
    {"tools/textconv", "git config diff.x.textconv ./tools/textconv", "git diff HEAD"},
    {"tools/external", "git config diff.external ./tools/external", "git diff HEAD"},
    {"tools/pager", "git config core.pager \"LESS=R ./tools/pager\"",
     "script -qec \"git log\" /dev/null"},
    {"tools/editor", "git config core.editor ./tools/editor", "git commit -q --allow-empty"},
    {"tools/ssh", "git config core.sshCommand \"./tools/ssh -x\"", "git fetch ssh://h.invalid/x"},
    {"tools/gpg", "git config gpg.program tools/gpg", "git commit -qS --allow-empty -m x"},
    {"tools/cred", "git config credential.helper \"!./tools/cred\"",
     "echo url=https://h.invalid | git credential fill"},
    {"tools/alias", "git config alias.y \"!./tools/alias\"", "git y"},
    {"tools/merge", "git config merge.x.driver \"./tools/merge %O %A %B\"",
     "git checkout -q f.dat; git merge -q side; git reset -q --hard ORIG_HEAD"},
    {"myhooks/post-commit", "git config core.hooksPath myhooks", "git commit -qm x --allow-empty"},
};

class GitNamed : public ::testing::TestWithParam<Named> {
 protected:
  GitNamed() : project_(host_.dir("project")), canary_(host_.path() + "/canary") {}

  void SetUp() override {
    if (testing::host_shell("command -v git").empty()) {
      if (getenv("TEMENOS_MUST_WORK") != nullptr) FAIL() << "git is not installed";
      GTEST_SKIP() << "git is not installed";
    }
    ASSERT_EQ(on_host("git init -q -b main . && echo \"*.dat filter=x diff=x merge=x\" "
                      ">.gitattributes && echo a >f.dat && git add -A && git commit -qm one && "
                      "git checkout -q -b side && echo b >f.dat && git commit -qam two && "
                      "git checkout -q main && echo c >f.dat && git commit -qam three && "
                      "mkdir tools myhooks"),
              "");
  }

  std::string on_host(const std::string& script) const {
    return testing::host_shell("cd " + project_ + " && env -i HOME=" + host_.path() +
                               "/home PATH=/usr/bin:/bin GIT_CONFIG_NOSYSTEM=1 "
                               "GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b.c GIT_COMMITTER_NAME=a "
                               "GIT_COMMITTER_EMAIL=a@b.c sh -c '" +
                               script + "' 2>&1");
  }
  CliResult in_box(const std::string& script) const {
    return host_.temenos(run("systrap", {}, {"sh", "-c", script}), "", project_);
  }
  bool canary_sang() const { return access(canary_.c_str(), F_OK) == 0; }

  // Of a program, or of a configuration that names one.
  std::string evil(const std::string& path) const {
    return path.ends_with(".cfg") ? "[core]\n\tfsmonitor = touch " + canary_ + "; false\n"
                                  : "#!/bin/sh\ntouch " + canary_ + "\n";
  }
  void make_harmless(const std::string& path) const {
    host_.file("project/" + path, path.ends_with(".cfg") ? "[core]\n" : "#!/bin/sh\n", 0755);
  }

  const TestHost host_;
  const std::string project_;
  const std::string canary_;
};

// Each row proves first, on an unprotected file, that git would have run it.
TEST_P(GitNamed, CannotBeRewritten) {
  const Named& named = GetParam();
  const std::string path = named.path;
  make_harmless(path);
  ASSERT_EQ(on_host(named.set_up), "");
  const std::string evil_file = host_.file("project/evil", evil(path), 0755);
  const auto result =
      in_box("p=" + path +
             "; { cat evil >$p; cp evil $p.new; mv -f $p.new $p; rm -f $p; mv ${p%/*} away; "
             "ln -sf $PWD/evil $p; } 2>/dev/null; echo z >>f.dat");
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.err, "");
  (void)on_host(named.trigger);
  EXPECT_FALSE(canary_sang());
  ASSERT_EQ(on_host("cp evil " + path), "");
  (void)on_host(named.trigger);
  EXPECT_TRUE(canary_sang()) << "so the test would have seen nothing";
}

TEST_P(GitNamed, IsReportedWhenItIsMade) {
  const Named& named = GetParam();
  const std::string path = named.path;
  ASSERT_EQ(on_host(named.set_up), "");
  ASSERT_EQ(on_host("rmdir myhooks"), "");
  const auto result = in_box("mkdir -p myhooks; echo >" + path);
  EXPECT_EQ(result.status, 0) << result.err;
  const std::string said =
      path.starts_with("myhooks") ? project_ + "/myhooks," : project_ + "/" + path + ",";
  EXPECT_THAT(result.err, HasSubstr(said));
}

INSTANTIATE_TEST_SUITE_P(By, GitNamed, ::testing::ValuesIn(kNamed), [](const auto& info) {
  std::string name = info.param.path;
  for (char& c : name) c = c == '/' || c == '.' || c == '-' ? '_' : c;
  return name;
});

class GitLeads : public GitNamed {};

TEST_F(GitLeads, ALinkOnTheWayThatIsTurnedElsewhereIsReported) {
  host_.file("project/c2/env", "echo harmless\n");
  ASSERT_EQ(on_host("ln -s c2 conf && ln -s conf/env .envrc && mkdir .vscode conf3 && "
                    "echo {} >conf3/tasks.json && ln -s ../conf3/tasks.json .vscode/tasks.json"),
            "");
  const auto result = in_box(
      "echo evil >c2/env; echo evil >conf3/tasks.json; mkdir c4; echo evil >c4/env; "
      "rm conf; ln -s c4 conf");
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(on_host("cat c2/env conf3/tasks.json"), "echo harmless\n{}\n");
  EXPECT_THAT(result.err, HasSubstr(project_ + "/conf,"));
  EXPECT_THAT(result.err, HasSubstr(project_ + "/c4/env,"));
}

TEST_F(GitLeads, ACraftedIndexIsReportedWithWhatToDo) {
  // What `git update-index` refuses to make, by hand: version 2, one entry, a blob that is there.
  const std::string script =
      "b=$(printf '#!/bin/sh\\ntouch " + canary_ +
      "\\n' | git hash-object -w --stdin); perl -e '"
      "use Digest::SHA \"sha1\"; my $n = \".git/hooks/post-checkout\"; "
      "my $e = pack(\"N10\", 0, 0, 0, 0, 0, 0, 0100755, 0, 0, 0) . pack(\"H*\", $ARGV[0]) . "
      "pack(\"n\", length $n) . $n; $e .= \"\\0\" x (8 - length($e) % 8); "
      "my $i = \"DIRC\" . pack(\"NN\", 2, 1) . $e; open my $f, \">\", \".git/index\"; "
      "print $f $i . sha1($i);' $b";
  const auto result = in_box(script);
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr(project_ + "/.git/index holds the name "
                                               "'.git/hooks/post-checkout'"));
  EXPECT_THAT(result.err, HasSubstr("'rm -f " + project_ + "/.git/index "));
  // The remedy is one.
  ASSERT_EQ(on_host("rm -f " + project_ + "/.git/index " + project_ +
                    "/.git/sharedindex.* && git reset -q"),
            "");
  (void)on_host("git restore . && git checkout -q -b z");
  EXPECT_FALSE(canary_sang());
  // And the danger was one.
  (void)in_box(script);
  (void)on_host("git restore . ; git checkout -q -b y");
  EXPECT_TRUE(canary_sang()) << "so the test would have seen nothing";
}

TEST_F(GitLeads, ARebaseThatWaitsForTheHostIsReported) {
  ASSERT_EQ(on_host("git rebase -q side >/dev/null 2>&1; ls .git/rebase-merge/git-rebase-todo"),
            ".git/rebase-merge/git-rebase-todo\n");
  const auto changed =
      in_box("echo exec touch " + canary_ + " >>.git/rebase-merge/git-rebase-todo");
  EXPECT_EQ(changed.status, 0) << changed.err;
  EXPECT_THAT(changed.err, HasSubstr(project_ + "/.git/rebase-merge,"));
  ASSERT_EQ(on_host("git rebase --abort"), "");
  const auto made = in_box("mkdir .git/rebase-apply; echo x >.git/rebase-apply/git-rebase-todo");
  EXPECT_THAT(made.err, HasSubstr(project_ + "/.git/rebase-apply,"));
}

TEST_F(GitLeads, NoNumberOfOthersUncoversWhatIsNear) {
  const auto first =
      in_box("perl -e 'for (1..2100) { mkdir \"!$_\"; open F, \">\", \"!$_/.envrc\" }'");
  EXPECT_THAT(first.err, HasSubstr(project_ + "/!2100/.envrc,"));
  const auto second = in_box("echo x >>.git/config; echo x >.git/hooks/pre-commit");
  EXPECT_THAT(second.err, HasSubstr("than can be protected"));
  EXPECT_THAT(second.err, HasSubstr("cannot create .git/config"));
  EXPECT_THAT(second.err, HasSubstr("cannot create .git/hooks/pre-commit"));
}

TEST_F(GitLeads, GitWorksInTheBox) {
  host_.file("project/tools/clean", "#!/bin/sh\nexec cat\n", 0755);
  ASSERT_EQ(on_host("git config filter.x.clean ./tools/clean && git config branch.main.remote . && "
                    "git config branch.main.merge refs/heads/side"),
            "");
  const auto result = in_box(
      "set -e; export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b.c GIT_COMMITTER_NAME=a "
      "GIT_COMMITTER_EMAIL=a@b.c; echo new >new; git add -A; git commit -qm four; "
      "git checkout -q -b topic; git commit -qm five --allow-empty; git rebase -q main; "
      "git checkout -q main; git merge -q topic; git log --oneline | wc -l; git status --short");
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.out, "4\n") << result.err;
  EXPECT_EQ(result.err, "");
}

}  // namespace
}  // namespace temenos::leak
