#include "box/source_path.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "box/git_worktree.h"
#include "box/scratch_tree.h"

namespace temenos::box {
namespace {

class SourcePath : public ::testing::Test {
 protected:
  std::string at(const std::string& name) const { return tree_.path() + "/" + name; }
  void link(const std::string& target, const std::string& name) {
    ASSERT_EQ(symlink(target.c_str(), at(name).c_str()), 0);
  }
  Code code_of(const std::string& name) const {
    const auto opened = paths_.open(at(name));
    EXPECT_FALSE(opened) << name;
    return opened ? Code::kInternal : opened.error().code;
  }

  ScratchTree tree_;
  SourcePaths paths_{"/nonexistent"};
};

TEST_F(SourcePath, FollowsThePersonsOwnLinks) {
  tree_.file("real/data/x", "");
  link("real", "one");
  link("one/data", "two");
  const auto opened = paths_.open(at("two"));
  ASSERT_TRUE(opened) << opened.error().to_string();
  EXPECT_EQ(opened->path, at("real/data"));
  EXPECT_EQ(paths_.open(at("one/../real/./data"))->path, at("real/data"));
  link("loop", "loop");
  EXPECT_FALSE(paths_.open(at("loop")));
  EXPECT_EQ(code_of("absent"), Code::kNotFound);
}

TEST_F(SourcePath, NoLinkInARepositoryIsFollowed) {
  tree_.file("secret/key", "");
  tree_.file("repo/.git/HEAD", "ref: refs/heads/main\n");
  tree_.file("repo/plain/x", "");
  link("../secret", "repo/out");
  link(at("secret"), "repo/absolute");
  link("repo", "way");  // the person's own, into the repository
  EXPECT_EQ(code_of("repo/out"), Code::kPolicyViolation);
  EXPECT_EQ(code_of("repo/out/key"), Code::kPolicyViolation);
  EXPECT_EQ(code_of("repo/absolute"), Code::kPolicyViolation);
  EXPECT_EQ(code_of("way/out"), Code::kPolicyViolation);
  EXPECT_EQ(code_of("repo/plain/../out/key"), Code::kPolicyViolation);
  EXPECT_EQ(paths_.open(at("way/plain"))->path, at("repo/plain"));
}

TEST_F(SourcePath, NoLinkInAWritablePlaceIsFollowed) {
  tree_.file("secret/key", "");
  tree_.file("work/sub/x", "");
  link("../../secret", "work/sub/out");
  ASSERT_TRUE(paths_.open(at("work/sub/out")));  // nobody but the person writes there
  paths_.add_writable(at("work"));
  EXPECT_EQ(code_of("work/sub/out"), Code::kPolicyViolation);
  EXPECT_TRUE(paths_.open(at("work/sub")));
}

TEST_F(SourcePath, VolumesAreMadeBelowWhatIsThere) {
  tree_.file("real/x", "");
  link("real", "link");
  const auto made = paths_.open(DiskVolume{at("link/new/deep"), true, ""});
  ASSERT_TRUE(made) << made.error().to_string();
  EXPECT_EQ(made->path, at("real/new/deep"));
  EXPECT_FALSE(paths_.open(DiskVolume{at("real/other"), false, ""}));
  EXPECT_NE(access(at("real/other").c_str(), F_OK), 0);
}

TEST_F(SourcePath, BelowAnAllowedRootNoLinkAtAllIsFollowed) {
  tree_.file("root/in/x", "");
  tree_.file("outside/x", "");
  link("../outside", "root/out");
  link("in", "root/inner");
  link("root", "alias");
  EXPECT_TRUE(paths_.open(DiskVolume{at("root/in"), false, at("root")}));
  EXPECT_TRUE(paths_.open(DiskVolume{at("alias/in"), false, at("alias")}));
  for (const char* name : {"root/out", "root/inner"}) {
    EXPECT_FALSE(paths_.open(DiskVolume{at(name), false, at("root")})) << name;
    EXPECT_FALSE(paths_.open(DiskVolume{at(name) + "/new", true, at("root")})) << name;
  }
  const auto beside = paths_.open(DiskVolume{at("outside"), false, at("root")});
  ASSERT_FALSE(beside);
  EXPECT_EQ(beside.error().code, Code::kPolicyViolation);
  EXPECT_NE(access(at("outside/new").c_str(), F_OK), 0);
}

class Worktree : public SourcePath {
 protected:
  void SetUp() override {
    for (const char* part : {"objects", "refs", "logs"}) {
      tree_.file(std::string("main/.git/") + part + "/x", "");
    }
    tree_.file("main/.git/worktrees/wt/commondir", "../..\n");
    tree_.file("main/.git/worktrees/wt/gitdir", at("wt/.git") + "\n");
    tree_.file("wt/.git", "gitdir: " + at("main/.git/worktrees/wt") + "\n");
  }
  std::vector<std::string> written() const {
    std::vector<std::string> out;
    if (const auto found = find_git_worktree(at("wt"))) {
      for (const auto& part : found->written) out.push_back(part.path);
    }
    return out;
  }
};

TEST_F(Worktree, GetsWhatGitWrites) {
  EXPECT_EQ(find_git_worktree(at("wt"))->common.path, at("main/.git"));
  EXPECT_EQ(written(),
            (std::vector<std::string>{at("main/.git/worktrees/wt"), at("main/.git/objects"),
                                      at("main/.git/refs"), at("main/.git/logs")}));
}

TEST_F(Worktree, IsNotBelievedWhenThePlaceDoesNotNameItInReturn) {
  tree_.file("main/.git/worktrees/wt/gitdir", at("other/.git") + "\n");
  EXPECT_FALSE(find_git_worktree(at("wt")));
  tree_.file("main/.git/worktrees/wt/gitdir", at("wt/.git") + "\n");
  EXPECT_TRUE(find_git_worktree(at("wt")));
  tree_.file("main/.git/worktrees/wt/commondir", "../../..\n");
  EXPECT_FALSE(find_git_worktree(at("wt")));
}

TEST_F(Worktree, NoPlaceInTheWorktreeItselfAndNoOtherForm) {
  for (const std::string& text :
       {"gitdir: " + at("wt/fake/worktrees/wt") + "\n", std::string("gitdir: \n"), std::string("x"),
        "gitdir: " + at("main/.git") + "\n", "gitdir: " + at("main") + "\nmore\n"}) {
    tree_.file("wt/.git", text);
    EXPECT_FALSE(find_git_worktree(at("wt"))) << text;
  }
}

TEST_F(Worktree, ALinkInThePlaceOfRefsIsNotWritten) {
  tree_.file("secret/key", "");
  ASSERT_EQ(rename(at("main/.git/refs").c_str(), at("main/.git/r2").c_str()), 0);
  link(at("secret"), "main/.git/refs");
  for (const auto& path : written()) EXPECT_NE(path, at("main/.git/refs"));
}

}  // namespace
}  // namespace temenos::box
