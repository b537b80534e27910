#include "box/data_dir.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "box/scratch_tree.h"
#include "sys/ids.h"

namespace temenos::box {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class DataDirTest : public ::testing::Test {
 protected:
  void SetUp() override { dirs_.data = tree_.path(); }
  // Of all boxes.
  std::size_t directories() const {
    const fs::path run = tree_.path() + "/run";
    return fs::exists(run)
               ? static_cast<std::size_t>(std::distance(fs::directory_iterator(run), {}))
               : 0;
  }
  ScratchTree tree_;
  HostDirs dirs_;
};

TEST_F(DataDirTest, IsPrivateLockedAndRemovedWhole) {
  auto dir = make_temporary_data_dir(dirs_);
  ASSERT_TRUE(dir) << dir.error().to_string();
  EXPECT_EQ(dir->path, tree_.path() + "/run/" + dir->id);
  struct stat st{};
  ASSERT_EQ(stat(dir->path.c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 07777, 0700u);
  const UniqueFd other(open((dir->path + "/lock").c_str(), O_RDONLY | O_CLOEXEC));
  EXPECT_NE(flock(other.get(), LOCK_EX | LOCK_NB), 0);
  ASSERT_TRUE(remove_data_dir(dirs_, std::move(*dir)));
  EXPECT_EQ(directories(), 0u);
}

TEST_F(DataDirTest, ASweepRemovesWhatNobodyHolds) {
  auto live = make_temporary_data_dir(dirs_);
  ASSERT_TRUE(live);
  std::string dead;
  {
    auto gone = make_temporary_data_dir(dirs_);
    ASSERT_TRUE(gone);
    dead = gone->path;
    fs::create_directories(dead + "/box/upper/some/where");
    for (const auto& entry : fs::recursive_directory_iterator(dead + "/..")) {
      if (geteuid() != 0 || entry.path().string().find("/box") == std::string::npos) continue;
      ASSERT_EQ(lchown(entry.path().c_str(), sys::kBoxIdBase, sys::kBoxIdBase),
                0);  // as keeper does
    }
    ASSERT_TRUE(claim_writable(dirs_, *gone, {"/somewhere"}, false));
  }
  EXPECT_EQ(sweep_temporary_data_dirs(dirs_), 1);
  EXPECT_FALSE(fs::exists(dead));
  EXPECT_TRUE(fs::exists(live->path));
  EXPECT_EQ(sweep_temporary_data_dirs(dirs_), 0);
  ASSERT_TRUE(remove_data_dir(dirs_, std::move(*live)));
}

TEST_F(DataDirTest, ASweepLeavesWhatIsBeingMade) {
  fs::create_directories(tree_.path() + "/run/.new-0123");
  EXPECT_EQ(sweep_temporary_data_dirs(dirs_), 0);
  EXPECT_EQ(directories(), 1u);
  // Until its maker is surely gone.
  timespec times[2] = {{1, 0}, {1, 0}};
  ASSERT_EQ(utimensat(AT_FDCWD, (tree_.path() + "/run/.new-0123").c_str(), times, 0), 0);
  EXPECT_EQ(sweep_temporary_data_dirs(dirs_), 1);
  EXPECT_EQ(directories(), 0u);
}

TEST_F(DataDirTest, ASweepFollowsNoSymlink) {
  fs::create_directories(tree_.path() + "/run");
  fs::create_directories(tree_.above() + "/victim/box/upper");
  std::ofstream(tree_.above() + "/victim/lock") << "";
  tree_.link("run/link", tree_.above() + "/victim");
  EXPECT_EQ(sweep_temporary_data_dirs(dirs_), 0);
  EXPECT_TRUE(fs::exists(tree_.above() + "/victim/box/upper"));
}

TEST_F(DataDirTest, TwoLiveBoxesDoNotWriteTheSamePlace) {
  auto first = make_temporary_data_dir(dirs_);
  auto second = make_temporary_data_dir(dirs_);
  ASSERT_TRUE(first && second);
  ASSERT_TRUE(claim_writable(dirs_, *first, {"/a/b", "/c"}, false));
  for (const char* path : {"/a/b", "/a", "/a/b/c", "/c/d"}) {
    const auto claimed = claim_writable(dirs_, *second, {path}, false);
    ASSERT_FALSE(claimed) << path;
    EXPECT_EQ(claimed.error().code, Code::kConflict);
    EXPECT_THAT(claimed.error().hint, HasSubstr("shared-write"));
  }
  EXPECT_TRUE(claim_writable(dirs_, *second, {"/a/bc", "/d"}, false));
  // By name two may meet.
  auto third = make_temporary_data_dir(dirs_);
  ASSERT_TRUE(third);
  EXPECT_TRUE(claim_writable(dirs_, *third, {"/a/b"}, true));
  // A box that is gone claims nothing.
  ASSERT_TRUE(remove_data_dir(dirs_, std::move(*first)));
  ASSERT_TRUE(remove_data_dir(dirs_, std::move(*third)));
  auto fourth = make_temporary_data_dir(dirs_);
  EXPECT_TRUE(claim_writable(dirs_, *fourth, {"/a/b"}, false));
}

TEST_F(DataDirTest, ADirectoryThatCannotBeMadeIsNamedWithWhatToDo) {
  dirs_.data = tree_.path() + "/none";
  EXPECT_FALSE(make_temporary_data_dir(dirs_));
  dirs_.data = tree_.path();
  tree_.file("run");
  const auto dir = make_temporary_data_dir(dirs_);
  ASSERT_FALSE(dir);
  EXPECT_THAT(dir.error().hint, HasSubstr("XDG_DATA_HOME"));
}

}  // namespace
}  // namespace temenos::box
