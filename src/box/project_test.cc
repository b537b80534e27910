#include "box/project.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "box/scratch_tree.h"

namespace temenos::box {
namespace {

namespace fs = std::filesystem;

TEST(FindProject, TheNearestRepositoryAtOrAbove) {
  const ScratchTree tree;
  fs::create_directories(tree.path() + "/.git");
  fs::create_directories(tree.path() + "/a/b");
  fs::create_directories(tree.path() + "/sub/x");
  tree.file("sub/.git", "gitdir: ../.git/modules/sub\n");  // a submodule, or a worktree
  EXPECT_EQ(find_project(tree.path(), tree.home()), tree.path());
  EXPECT_EQ(find_project(tree.path() + "/a/b", tree.home()), tree.path());
  EXPECT_EQ(find_project(tree.path() + "/sub/x", tree.home()), tree.path() + "/sub");
  EXPECT_EQ(find_project(tree.above(), tree.home()), "");
  EXPECT_EQ(find_project("/", tree.home()), "");
}

TEST(FindProject, NeverHomeNorAnythingAboveIt) {
  const ScratchTree tree;
  fs::create_directories(tree.home() + "/.git");
  fs::create_directories(tree.above() + "/.git");
  fs::create_directories(tree.home() + "/src/repo/.git");
  EXPECT_EQ(find_project(tree.home(), tree.home()), "");
  EXPECT_EQ(find_project(tree.home() + "/src", tree.home()), "");
  EXPECT_EQ(find_project(tree.home() + "/src/repo", tree.home()), tree.home() + "/src/repo");
}

TEST(FindProject, ASymlinkIsNoRepository) {
  const ScratchTree tree;
  fs::create_directories(tree.above() + "/elsewhere");
  tree.link(".git", "../elsewhere");
  EXPECT_EQ(find_project(tree.path(), tree.home()), "");
}

TEST(OwnProject, AnotherUsersIsAnError) {
  const ScratchTree tree;
  fs::create_directories(tree.path() + "/.git");
  unsetenv("SUDO_UID");
  ASSERT_TRUE(own_project(tree.path(), tree.home()));
  EXPECT_EQ(*own_project(tree.path(), tree.home()), tree.path());
  EXPECT_EQ(*own_project(tree.home(), tree.home()), "");
  if (geteuid() != 0) GTEST_SKIP() << "only root can give a file away";
  ASSERT_EQ(chown((tree.path() + "/.git").c_str(), 12345, 12345), 0);
  const auto foreign = own_project(tree.path(), tree.home());
  ASSERT_FALSE(foreign);
  EXPECT_EQ(foreign.error().code, Code::kPermissionDenied);
  EXPECT_NE(foreign.error().hint.find("--no-project"), std::string::npos);
  // Root on behalf of who called sudo.
  setenv("SUDO_UID", "12345", 1);
  EXPECT_TRUE(own_project(tree.path(), tree.home()));
  for (const char* bad : {"12345x", "", "12346"}) {
    setenv("SUDO_UID", bad, 1);
    EXPECT_FALSE(own_project(tree.path(), tree.home())) << bad;
  }
  unsetenv("SUDO_UID");
}

}  // namespace
}  // namespace temenos::box
