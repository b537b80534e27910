#include "box/watched_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "box/scratch_tree.h"

namespace temenos::box {
namespace {

AutoexecScan sample() {
  AutoexecScan scan;
  AutoexecScan::Found found;
  found.reason = "git runs it";
  found.symlink = true;
  found.link_target = "a\xff\nb";
  found.state = "s";
  found.named_by = ".git/config";
  scan.found[std::string(".git/hooks/\x80")] = found;
  scan.found[".envrc"] = {};
  scan.complete = false;
  scan.git_directories = {".git", "sub/.git"};
  scan.worktrees = {"."};
  scan.closed = {"secret"};
  scan.sha256 = {".git"};
  scan.trouble = {"it cannot be read"};
  return scan;
}

TEST(WatchedFile, ReadsWhatItWrote) {
  std::vector<WatchedBind> binds;
  binds.push_back(
      {"/some/wh\xff"
       "ere",
       -1, sample()});
  binds.push_back({"/other", -1, {}});
  const auto again = watched_from_json(watched_to_json(binds));
  ASSERT_TRUE(again) << again.error().to_string();
  ASSERT_EQ(again->size(), 2u);
  EXPECT_EQ((*again)[0].source, binds[0].source);
  const AutoexecScan& one = (*again)[0].before;
  const AutoexecScan& two = binds[0].before;
  EXPECT_EQ(one.found, two.found);
  EXPECT_EQ(one.complete, two.complete);
  EXPECT_EQ(one.git_directories, two.git_directories);
  EXPECT_EQ(one.worktrees, two.worktrees);
  EXPECT_EQ(one.closed, two.closed);
  EXPECT_EQ(one.sha256, two.sha256);
  EXPECT_EQ(one.trouble, two.trouble);
  EXPECT_TRUE((*again)[1].before.found.empty());
  EXPECT_TRUE((*again)[1].before.complete);
}

TEST(WatchedFile, RefusesWhatIsNotOne) {
  for (const char* bad : {"", "{}", "[{}]", "[1]", "[{\"source\":\"zz\"}]"}) {
    EXPECT_FALSE(watched_from_json(bad)) << bad;
  }
}

class WatchedDirTest : public ::testing::Test {
 protected:
  void SetUp() override {
    dir_.path = tree_.above();
    dir_.directory.reset(open(tree_.above().c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    dirs_.libexec = TEMENOS_LIBEXEC;
  }
  void keep() {
    const UniqueFd root(open(tree_.path().c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    const auto scan = scan_autoexec(root.get());
    ASSERT_TRUE(scan);
    std::vector<WatchedBind> binds;
    binds.push_back({tree_.path(), root.get(), *scan});
    ASSERT_TRUE(keep_watched(dir_, binds));
  }
  ScratchTree tree_;
  store::DataDir dir_;
  HostDirs dirs_;
};

TEST_F(WatchedDirTest, SaysWhatIsNewUntilItIsForgotten) {
  tree_.file(".envrc");
  keep();
  EXPECT_TRUE(look_at_watched(dir_, dirs_).made.empty());
  tree_.file(".vscode/tasks.json");
  for (int again = 0; again < 2; ++again) {
    const BoxEnd end = look_at_watched(dir_, dirs_);
    ASSERT_EQ(end.made.size(), 1u);
    EXPECT_EQ(end.made[0].path, tree_.path() + "/.vscode");
  }
  forget_watched(dir_);
  EXPECT_TRUE(look_at_watched(dir_, dirs_).made.empty());
}

TEST_F(WatchedDirTest, WhatCannotBeLookedAtIsSaid) {
  keep();
  ASSERT_EQ(rename(tree_.path().c_str(), (tree_.above() + "/elsewhere").c_str()), 0);
  EXPECT_EQ(look_at_watched(dir_, dirs_).unseen.size(), 1u);
  ASSERT_EQ(rename((tree_.above() + "/elsewhere").c_str(), tree_.path().c_str()), 0);
  // A record that somebody broke is no record of nothing.
  const UniqueFd broken(open((tree_.above() + "/watched").c_str(), O_WRONLY | O_TRUNC | O_CLOEXEC));
  ASSERT_TRUE(broken);
  EXPECT_EQ(look_at_watched(dir_, dirs_).unseen.size(), 1u);
}

}  // namespace
}  // namespace temenos::box
