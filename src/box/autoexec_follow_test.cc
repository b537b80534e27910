#include "box/autoexec_follow.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>

#include "box/autoexec_report.h"
#include "box/scratch_tree.h"
#include "git/index_text.h"

namespace temenos::box {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::IsSupersetOf;
using ::testing::Not;

class Follow : public ::testing::Test {
 protected:
  AutoexecScan look(const std::string& libexec = TEMENOS_LIBEXEC) const {
    FileReader reader(libexec);
    auto scan = look_for_autoexec(tree_.fd(), tree_.path(), reader);
    EXPECT_TRUE(scan);
    return std::move(*scan);
  }
  static std::vector<std::string> protected_in(const AutoexecScan& scan) {
    std::vector<std::string> out;
    for (const auto& [path, found] : scan.found) {
      if (found.is_protected()) out.push_back(path);
    }
    return out;
  }
  BoxEnd report(const AutoexecScan& before) const {
    BoxEnd end;
    report_autoexec(tree_.fd(), tree_.path(), before, TEMENOS_LIBEXEC, end);
    return end;
  }
  std::vector<std::string> made(const AutoexecScan& before) const {
    std::vector<std::string> out;
    for (const auto& file : report(before).made) {
      out.push_back(file.path.substr(tree_.path().size() + 1));
    }
    return out;
  }
  void repository(const std::string& config, const std::string& where = ".git/") const {
    tree_.shell("git init -q .");
    std::ofstream(tree_.path() + "/" + where + "config", std::ios::app) << config;
  }
  ScratchTree tree_;
};

TEST_F(Follow, WhatAConfigurationNames) {
  for (const char* name : {"t/ext.cfg", "t/ext2.cfg", "t/fsm", "t/clean", "t/textconv", "t/pager",
                           "t/editor", "t/ssh", "t/gpg", "t/cred", "t/alias", "t/merge", "attrs",
                           "t/my tool", "t/top", "x.sh", "t/untouched"}) {
    tree_.file(name);
  }
  tree_.file("t/ext.cfg", "[include]\n path = ext2.cfg\n");
  tree_.file("t/ext2.cfg", "[gpg]\n program = ./t/gpg\n");
  tree_.file("hooks/pre-commit");
  repository(
      "[include]\n path = ../t/ext.cfg\n"
      "[core]\n hooksPath = hooks\n fsmonitor = ./t/fsm\n pager = \"LESS=R t/pager\"\n"
      " editor = sh -c './t/editor \"$@\"'\n sshCommand = ssh -F t/ssh\n attributesFile = attrs\n"
      "[filter \"x\"]\n clean = t/clean %f\n[diff \"y\"]\n textconv = ./t/textconv\n"
      " command = \"$(git rev-parse --show-toplevel)/t/top\"\n"
      "[credential]\n helper = !./t/cred\n[alias]\n a = !./t/alias\n b = !sh x.sh\n"
      "[merge \"m\"]\n driver = ./t/merge %O\n[difftool \"d\"]\n path = ./t/my tool\n");
  const auto scan = look();
  EXPECT_THAT(scan.trouble, IsEmpty());
  const auto found = protected_in(scan);
  for (const char* name : {"t/ext.cfg", "t/ext2.cfg", "t/fsm", "t/clean", "t/textconv", "t/pager",
                           "t/editor", "t/ssh", "t/gpg", "t/cred", "t/alias", "t/merge", "attrs",
                           "t/my tool", "t/top", "x.sh", "hooks", ".git/config"}) {
    EXPECT_THAT(found, Contains(name));
  }
  EXPECT_THAT(found, Not(Contains("t/untouched")));
  EXPECT_THAT(found, Not(Contains("t")));
  EXPECT_EQ(scan.found.at("t/gpg").reason,
            "git: named by gpg.program in " + tree_.path() + "/t/ext2.cfg");
}

TEST_F(Follow, WhatGitAndTheBoxMustWriteStaysWritable) {
  tree_.shell(
      "git init -q -b main . && git config user.email a@b && git config user.name src &&"
      "mkdir -p src refs/heads lib && touch main src/x refs/heads/main && git add -A && "
      "git commit -qm i && git config branch.main.merge refs/heads/main && "
      "git config remote.origin.url ./lib && git config alias.s '!cd src && ls ./src' && "
      "git config x.y ./.git/refs/heads/main && git config x.z ./.git/index && "
      "git config x.w .git/HEAD && git config init.defaultBranch main");
  EXPECT_THAT(protected_in(look()),
              ElementsAre(".git/branches", ".git/config", ".git/hooks", ".git/info"));
}

TEST_F(Follow, ConfigurationsOfSubmodulesAndWorktrees) {
  tree_.file(".git/modules/target/HEAD");
  tree_.file(".git/modules/target/objects/x");
  tree_.file(".git/modules/target/refs/x");
  tree_.file(".git/modules/target/config",
             "[core]\n worktree = ../../../sub\n fsmonitor = ./fsm\n");
  tree_.file("sub/.git", "gitdir: ../.git/modules/target\n");
  tree_.file("sub/fsm");
  tree_.file("fsm");
  tree_.file("linked/.git", "gitdir: ../.git/worktrees/l\n");
  tree_.file("linked/pager");
  tree_.file(".git/worktrees/l/HEAD");
  tree_.file(".git/worktrees/l/commondir", "../..\n");
  tree_.file(".git/config", "[core]\n pager = ./pager\n");
  const auto found = protected_in(look());
  EXPECT_THAT(found, IsSupersetOf({"sub/fsm", "linked/pager", ".git/modules/target/config"}));
  EXPECT_THAT(found, Not(Contains("fsm")));
}

TEST_F(Follow, AGitDirectoryOfAnotherName) {
  tree_.shell(
      "git init -q --separate-git-dir=.gitdata . && git config filter.x.clean ./tools/clean");
  tree_.file("tools/clean");
  EXPECT_THAT(protected_in(look()), IsSupersetOf({".gitdata/config", "tools/clean"}));
}

TEST_F(Follow, ASubmoduleWhoseNameIsNotItsPath) {
  tree_.shell(
      "git init -q .. && mkdir -p ../.git/modules && "
      "git init -q --separate-git-dir=../.git/modules/other . && "
      "git config filter.x.clean ./tools/clean");
  tree_.file("tools/clean");
  EXPECT_THAT(protected_in(look()), Contains("tools/clean"));
}

TEST_F(Follow, TheTreesOwnComesBeforeWhatABoxPutBesideIt) {
  tree_.shell(
      "git init -q . && git config filter.x.clean ./tools/clean && "
      "for i in $(seq 1005); do mkdir -p \"!$i/.git\" && : >\"!$i/.git/config\"; done");
  tree_.file("tools/clean");
  EXPECT_THAT(protected_in(look()), Contains("tools/clean"));
}

TEST_F(Follow, TheUsersOwnAndThatOfARepositoryAround) {
  tree_.shell(
      "git init -q .. && git config -f ../.git/config core.fsmonitor ./bind/fsm && "
      "ln -s ../../bind/hook ../.git/hooks/pre-commit");
  for (const char* name : {"fsm", "hook", "mine", "dot/gitconfig", "dot/extra"}) tree_.file(name);
  tree_.file("dot/gitconfig", "[core]\n pager = bind/mine\n[include]\n path = extra\n");
  ASSERT_EQ(symlink("../bind/dot/gitconfig", (tree_.home() + "/.gitconfig").c_str()), 0);
  EXPECT_THAT(protected_in(look()), IsSupersetOf({"fsm", "hook", "mine", "dot/gitconfig"}));
}

TEST_F(Follow, SymlinksHopByHopAndInProtectedDirectories) {
  tree_.file("c2/env");
  tree_.link("conf", "c2");
  tree_.link(".envrc", "conf/env");
  tree_.file("scripts/hook");
  tree_.file("conf2/tasks.json");
  tree_.file("shared/husky/pre-push");
  tree_.link(".vscode/tasks.json", "../conf2/tasks.json");
  tree_.link(".husky", "shared/husky");
  tree_.link("shared/husky/pre-commit", "../../scripts/hook");
  const auto before = look();
  EXPECT_THAT(protected_in(before),
              ElementsAre(".vscode", "c2/env", "conf2/tasks.json", "scripts/hook", "shared/husky"));
  tree_.file("c3/env", "evil");
  tree_.shell("rm conf && ln -s c3 conf");
  EXPECT_THAT(made(before), ElementsAre("c3/env", "conf"));
}

TEST_F(Follow, WhatDoesNotExistYetIsReportedWhenItIsMade) {
  tree_.link(".envrc", "later/env");
  repository("[include]\n path = ../tools/extra.cfg\n[core]\n hooksPath = myhooks\n pager = ./p\n");
  const auto before = look();
  EXPECT_THAT(made(before), IsEmpty());
  tree_.file("tools/extra.cfg", "[core]\n fsmonitor = ./src/fsm\n");
  tree_.file("src/fsm");
  tree_.file("myhooks/pre-commit");
  tree_.file("p");
  tree_.file("later/env");
  EXPECT_THAT(made(before), ElementsAre("later/env", "myhooks", "p", "tools/extra.cfg"));
}

TEST_F(Follow, OngoingRebasesAreReportedAndNotProtected) {
  repository("");
  tree_.file(".git/rebase-merge/git-rebase-todo", "pick x\n");
  const auto before = look();
  EXPECT_THAT(protected_in(before), Not(Contains(".git/rebase-merge")));
  EXPECT_THAT(made(before), IsEmpty());
  tree_.shell(
      "cp -p .git/rebase-merge/git-rebase-todo t && echo exec evil > t && "
      "cat t > .git/rebase-merge/git-rebase-todo");
  tree_.file(".git/sequencer/todo", "exec x\n");
  EXPECT_THAT(made(before), ElementsAre(".git/rebase-merge", ".git/sequencer"));
}

TEST_F(Follow, IndexesWithNamesThatGitRefuses) {
  tree_.shell(
      "git init -q . && git init -q --object-format=sha256 two && "
      "touch a two/b && git add a && git -C two add b");
  const auto before = look();
  EXPECT_THAT(report(before).indexes, IsEmpty());
  EXPECT_THAT(before.sha256, ElementsAre("two/.git"));
  tree_.file(".git/index", git::index_text(2, {{".git/hooks/post-checkout"}, {"a"}}));
  tree_.file("two/.git/sharedindex.x",
             git::index_text(4, {{".GIT/config"}}, git::HashSize::kSha256));
  tree_.file(".git/modules/m/HEAD");
  tree_.file(".git/modules/m/refs/x");
  tree_.file(".git/modules/m/objects/x");
  tree_.file(".git/modules/m/index", "DIRC");
  EXPECT_THAT(report(before).indexes,
              ElementsAre(HasSubstr(".git/index holds the name '.git/hooks/post-checkout'"),
                          HasSubstr(".git/modules/m/index cannot be judged"),
                          HasSubstr("two/.git/sharedindex.x holds the name '.GIT/config'")));
  ASSERT_EQ(unlink((tree_.path() + "/.git/index").c_str()), 0);
  ASSERT_EQ(mkfifo((tree_.path() + "/.git/index").c_str(), 0600), 0);
  EXPECT_THAT(report(before).indexes[0], HasSubstr("no regular file"));
}

TEST_F(Follow, WhatCannotBeReadOrFollowedIsSaid) {
  repository("");
  std::ofstream(tree_.path() + "/.git/config", std::ios::app) << std::string(2 << 20, '#');
  tree_.link(".envrc", ".envrc");
  tree_.link(".vscode/all", "..");
  EXPECT_THAT(look().trouble, ElementsAre(HasSubstr(".envrc leads further"),
                                          HasSubstr(".vscode/all leads to all of"),
                                          HasSubstr(".git/config cannot be read (")));
}

TEST_F(Follow, OtherNamesOfAFileAreSaid) {
  repository("[core]\n pager = ./p\n");
  tree_.file(".envrc");
  tree_.file("p");
  tree_.shell("ln .envrc x; ln p y; ln .git/hooks/*pre-commit* z");
  EXPECT_THAT(look().trouble, ElementsAre(HasSubstr("/.envrc has another name"),
                                          HasSubstr(".git/hooks/pre-commit.sample has another"),
                                          HasSubstr("/p has another name")));
}

TEST_F(Follow, WithoutItsReaderNothingIsGuessed) {
  repository("[core]\n pager = ./p\n");
  tree_.file("p");
  const auto scan = look("/nonexistent");
  EXPECT_THAT(scan.trouble, Contains(HasSubstr(".git/config cannot be read (")));
  // A reader that dies at once.
  std::ofstream(tree_.above() + "/temenos-reader") << "#!/bin/false\n";
  ASSERT_EQ(chmod((tree_.above() + "/temenos-reader").c_str(), 0755), 0);
  EXPECT_THAT(look(tree_.above()).trouble,
              Contains(HasSubstr(".git/config cannot be read (its reader died")));
}

TEST_F(Follow, ATreeWithoutGitStartsNoReader) {
  tree_.file(".envrc");
  EXPECT_THAT(look("/nonexistent").trouble, IsEmpty());
}

TEST_F(Follow, ManySymlinksAreCutOffAndSaid) {
  tree_.shell(
      "mkdir -p .vscode t && cd .vscode && "
      "for i in $(seq 1100); do : > ../t/$i && ln -s ../t/$i $i; done");
  const auto scan = look();
  EXPECT_THAT(scan.trouble, ElementsAre(HasSubstr("more than 1000 files")));
  EXPECT_EQ(protected_in(scan).size(), 1001u);
}

}  // namespace
}  // namespace temenos::box
