#include "box/host_dirs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "box/scratch_tree.h"

namespace temenos::box {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

class HostDirsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* name :
         {"XDG_DATA_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR"}) {
      unsetenv(name);
    }
  }
  void TearDown() override { SetUp(); }
  static mode_t mode(const std::string& path) {
    struct stat st{};
    return lstat(path.c_str(), &st) == 0 ? st.st_mode & 07777 : 0;
  }
  ScratchTree tree_;
};

TEST_F(HostDirsTest, BelowHomeAndPrivate) {
  const auto dirs = host_dirs();
  ASSERT_TRUE(dirs) << dirs.error().to_string();
  EXPECT_EQ(dirs->data, tree_.home() + "/.local/share/temenos");
  EXPECT_EQ(dirs->config, tree_.home() + "/.config/temenos");
  EXPECT_EQ(dirs->cache, tree_.home() + "/.cache/temenos");
  EXPECT_EQ(dirs->runtime, "");
  for (const auto& path : {dirs->data, dirs->config, dirs->cache}) EXPECT_EQ(mode(path), 0700u);
  EXPECT_THAT(dirs->libexec, HasSubstr("/libexec/temenos"));
}

TEST_F(HostDirsTest, VariablesCountWhenTheyAreAbsolute) {
  setenv("XDG_DATA_HOME", (tree_.above() + "/data/deep").c_str(), 1);
  setenv("XDG_CONFIG_HOME", "relative", 1);
  setenv("XDG_RUNTIME_DIR", tree_.path().c_str(), 1);
  const auto dirs = host_dirs();
  ASSERT_TRUE(dirs) << dirs.error().to_string();
  EXPECT_EQ(dirs->data, tree_.above() + "/data/deep/temenos");
  EXPECT_EQ(dirs->config, tree_.home() + "/.config/temenos");
  EXPECT_EQ(dirs->runtime, tree_.path() + "/temenos");
  // Each of them is hidden from boxes, whatever is mounted.
  for (const auto& path : {dirs->data, dirs->config, dirs->cache, dirs->runtime, dirs->libexec}) {
    EXPECT_THAT(dirs->own(), Contains(path));
  }
}

TEST_F(HostDirsTest, TheUsualPlacesAreHiddenTooWhenAVariableSaysOtherwise) {
  const auto before = host_dirs();
  ASSERT_TRUE(before);
  setenv("XDG_DATA_HOME", (tree_.above() + "/data").c_str(), 1);
  const auto dirs = host_dirs();
  ASSERT_TRUE(dirs);
  EXPECT_THAT(dirs->own(), Contains(before->data));
}

TEST_F(HostDirsTest, SymlinksAboveAreResolvedAndOneInItsPlaceIsRefused) {
  std::filesystem::create_directories(tree_.above() + "/real");
  tree_.outside_link("link", "real");
  setenv("XDG_DATA_HOME", (tree_.above() + "/link").c_str(), 1);
  EXPECT_EQ(host_dirs()->data, tree_.above() + "/real/temenos");
  std::filesystem::create_directories(tree_.above() + "/other");
  ASSERT_EQ(symlink(tree_.path().c_str(), (tree_.above() + "/other/temenos").c_str()), 0);
  setenv("XDG_DATA_HOME", (tree_.above() + "/other").c_str(), 1);
  const auto refused = host_dirs();
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kPermissionDenied);
  EXPECT_FALSE(refused.error().hint.empty());
}

TEST_F(HostDirsTest, OpenModesAreClosed) {
  std::filesystem::create_directories(tree_.home() + "/.cache/temenos");
  ASSERT_EQ(chmod((tree_.home() + "/.cache/temenos").c_str(), 0755), 0);
  ASSERT_TRUE(host_dirs());
  EXPECT_EQ(mode(tree_.home() + "/.cache/temenos"), 0700u);
}

TEST_F(HostDirsTest, AFileInTheWayIsNamed) {
  tree_.file("file");
  setenv("XDG_DATA_HOME", (tree_.path() + "/file").c_str(), 1);
  const auto dirs = host_dirs();
  ASSERT_FALSE(dirs);
  EXPECT_THAT(dirs.error().to_string(), HasSubstr(tree_.path() + "/file"));
}

TEST_F(HostDirsTest, HomeFromPasswdWhenTheVariableIsNone) {
  setenv("HOME", (tree_.home() + "//").c_str(), 1);
  EXPECT_EQ(home_directory(), tree_.home());
  setenv("HOME", "relative", 1);
  EXPECT_THAT(home_directory(), Not(HasSubstr("relative")));
}

}  // namespace
}  // namespace temenos::box
