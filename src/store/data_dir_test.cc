#include "store/data_dir.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "sys/file_sys.h"

namespace temenos::store {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// As keeper::remove_box, for boxes whose files are this user's.
Result<void> remove_box(int data_dir) { return sys::remove_tree(data_dir, "box"); }

class DataDirTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char pattern[] = "/tmp/temenos-data-XXXXXX";
    ASSERT_NE(mkdtemp(pattern), nullptr);
    data_ = pattern;
  }
  void TearDown() override { fs::remove_all(data_); }
  DataDir make(Kind kind, const std::string& id) const {
    auto dir = stage(data_, kind);
    EXPECT_TRUE(dir) << dir.error().to_string();
    EXPECT_TRUE(publish(data_, kind, *dir, id));
    return std::move(*dir);
  }
  // All entries, also those that are being made or removed.
  std::size_t entries(const char* kind) const {
    const fs::path all = data_ + "/" + kind;
    return fs::exists(all)
               ? static_cast<std::size_t>(std::distance(fs::directory_iterator(all), {}))
               : 0;
  }
  std::string data_;
};

TEST_F(DataDirTest, IsPrivateLockedAndRemovedWhole) {
  DataDir dir = make(Kind::kRun, "one");
  EXPECT_EQ(dir.path, data_ + "/run/one");
  struct stat st{};
  ASSERT_EQ(stat(dir.path.c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 07777, 0700u);
  EXPECT_TRUE(is_alive(dir));
  fs::create_directories(dir.path + "/box/upper/some/where");
  ASSERT_TRUE(remove(data_, Kind::kRun, std::move(dir), remove_box));
  EXPECT_EQ(entries("run"), 0u);
}

TEST_F(DataDirTest, ANameIsTakenOnce) {
  const DataDir first = make(Kind::kBoxes, "one");
  auto second = stage(data_, Kind::kBoxes);
  ASSERT_TRUE(second);
  const auto published = publish(data_, Kind::kBoxes, *second, "one");
  ASSERT_FALSE(published);
  EXPECT_EQ(published.error().code, Code::kAlreadyExists);
  ASSERT_TRUE(remove(data_, Kind::kBoxes, std::move(*second), remove_box));
  EXPECT_THAT(*list(data_, Kind::kBoxes), ElementsAre("one"));
  EXPECT_EQ(open(data_, Kind::kBoxes, "two").error().code, Code::kNotFound);
}

TEST_F(DataDirTest, ANameIsFreeOnceItsRemovalHasBegun) {
  DataDir dir = make(Kind::kBoxes, "one");
  fs::create_directories(dir.path + "/box");
  dir.life.reset();
  const auto cannot = [](int) -> Result<void> { return fail(Code::kIo, "no"); };
  EXPECT_FALSE(remove(data_, Kind::kBoxes, std::move(dir), cannot));
  const DataDir again = make(Kind::kBoxes, "one");
  EXPECT_EQ(entries("boxes"), 2u);
  // What was left half-removed goes with a sweep; a box with a name stays, alive or not.
  EXPECT_EQ(sweep(data_, Kind::kBoxes, remove_box), 1);
  EXPECT_THAT(*list(data_, Kind::kBoxes), ElementsAre("one"));
}

TEST_F(DataDirTest, TheLockIsFreeWhenTheLastHolderIsGone) {
  DataDir dir = make(Kind::kBoxes, "one");
  auto other = open(data_, Kind::kBoxes, "one");
  ASSERT_TRUE(other);
  EXPECT_EQ(take_life(*other, milliseconds(0)).error().code, Code::kConflict);
  // A process that inherits it holds it on, whatever becomes of the first.
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  const pid_t pid = fork();
  if (pid == 0) {
    char byte;
    close(ends[1]);
    _exit(read(ends[0], &byte, 1) == 0 ? 0 : 1);
  }
  dir.life.reset();
  EXPECT_TRUE(is_alive(*other));
  EXPECT_FALSE(take_life(*other, milliseconds(20)));
  close(ends[0]);
  close(ends[1]);
  ASSERT_TRUE(take_life(*other, milliseconds(10'000)));
  int status = 0;
  ASSERT_EQ(waitpid(pid, &status, 0), pid);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(is_alive(dir));
}

TEST_F(DataDirTest, OneHasTheTurn) {
  DataDir dir = make(Kind::kBoxes, "one");
  auto first = take_turn(dir, milliseconds(0));
  ASSERT_TRUE(first);
  EXPECT_EQ(take_turn(dir, milliseconds(10)).error().code, Code::kConflict);
  first->reset();
  EXPECT_TRUE(take_turn(dir, milliseconds(0)));
  // Who waited for the turn in a box that was removed meanwhile is told so.
  auto late = open(data_, Kind::kBoxes, "one");
  const UniqueFd turn = std::move(*take_turn(dir, milliseconds(0)));
  const UniqueFd waiting(::open((dir.path + "/turn").c_str(), O_RDONLY | O_CLOEXEC));
  ASSERT_TRUE(remove(data_, Kind::kBoxes, std::move(dir), remove_box));
  EXPECT_EQ(take_turn(*late, milliseconds(0)).error().code, Code::kNotFound);
}

TEST_F(DataDirTest, ASweepRemovesWhatNobodyHolds) {
  const DataDir live = make(Kind::kRun, "live");
  {
    const DataDir gone = make(Kind::kRun, "gone");
    fs::create_directories(gone.path + "/box/upper/some/where");
    ASSERT_TRUE(claim_writable(data_, gone, {"/somewhere"}, false));
  }
  EXPECT_EQ(sweep(data_, Kind::kRun, remove_box), 1);
  EXPECT_THAT(*list(data_, Kind::kRun), ElementsAre("live"));
  EXPECT_EQ(sweep(data_, Kind::kRun, remove_box), 0);
}

TEST_F(DataDirTest, ASweepLeavesWhatIsBeingMade) {
  const std::string staged = data_ + "/run/.new-0123";
  fs::create_directories(staged);
  EXPECT_EQ(sweep(data_, Kind::kRun, remove_box), 0);
  EXPECT_EQ(entries("run"), 1u);
  // Until its maker is surely gone.
  timespec times[2] = {{1, 0}, {1, 0}};
  ASSERT_EQ(utimensat(AT_FDCWD, staged.c_str(), times, 0), 0);
  EXPECT_EQ(sweep(data_, Kind::kRun, remove_box), 1);
  EXPECT_EQ(entries("run"), 0u);
}

// Whoever comes to use boxes sweeps, also while another one's removal goes on.
TEST_F(DataDirTest, ASweepLeavesWhatIsBeingRemoved) {
  static std::string data;
  static int swept;
  data = data_;
  swept = -1;
  for (const Kind kind : {Kind::kRun, Kind::kBoxes}) {
    DataDir dir = make(kind, "one");
    fs::create_directories(dir.path + "/box/upper");
    dir.life.reset();
    const auto removed = remove(data_, kind, std::move(dir), [](int data_dir) -> Result<void> {
      swept = 0;
      for (const Kind each : {Kind::kRun, Kind::kBoxes}) swept += sweep(data, each, remove_box);
      return remove_box(data_dir);
    });
    EXPECT_TRUE(removed) << removed.error().to_string();
    EXPECT_EQ(swept, 0);
    EXPECT_EQ(entries("run") + entries("boxes"), 0u);
  }
}

TEST_F(DataDirTest, ATurnAfterAnUnfinishedRemovalIsNone) {
  DataDir dir = make(Kind::kBoxes, "one");
  dir.life.reset();
  const auto waiting = open(data_, Kind::kBoxes, "one");
  const auto cannot = [](int) -> Result<void> { return fail(Code::kIo, "killed"); };
  ASSERT_FALSE(remove(data_, Kind::kBoxes, std::move(dir), cannot));
  const auto turn = take_turn(*waiting, milliseconds(0));
  ASSERT_FALSE(turn);
  EXPECT_EQ(turn.error().code, Code::kNotFound);
  EXPECT_NE(turn.error().hint, "");
  // The same name is another box by now.
  const DataDir other = make(Kind::kBoxes, "one");
  EXPECT_FALSE(take_turn(*waiting, milliseconds(0)));
  EXPECT_TRUE(take_turn(other, milliseconds(0)));
  EXPECT_EQ(sweep(data_, Kind::kBoxes, remove_box), 1);
  const auto gone = take_turn(*waiting, milliseconds(0));
  ASSERT_FALSE(gone);
  EXPECT_EQ(gone.error().code, Code::kNotFound);
  EXPECT_NE(gone.error().hint, "");
}

TEST_F(DataDirTest, ASweepFollowsNoSymlink) {
  fs::create_directories(data_ + "/run");
  fs::create_directories(data_ + "/victim/box/upper");
  std::ofstream(data_ + "/victim/lock") << "";
  fs::create_symlink(data_ + "/victim", data_ + "/run/link");
  EXPECT_EQ(sweep(data_, Kind::kRun, remove_box), 0);
  EXPECT_TRUE(fs::exists(data_ + "/victim/box/upper"));
}

TEST_F(DataDirTest, TwoLiveBoxesDoNotWriteTheSamePlace) {
  DataDir first = make(Kind::kBoxes, "first");
  const DataDir second = make(Kind::kRun, "second");
  ASSERT_TRUE(claim_writable(data_, first, {"/a/b", "/c"}, false));
  for (const char* path : {"/a/b", "/a", "/a/b/c", "/c/d"}) {
    const auto claimed = claim_writable(data_, second, {path}, false);
    ASSERT_FALSE(claimed) << path;
    EXPECT_EQ(claimed.error().code, Code::kConflict);
    EXPECT_THAT(claimed.error().hint, HasSubstr("shared-write"));
  }
  EXPECT_TRUE(claim_writable(data_, second, {"/a/bc", "/d"}, false));
  // By name two may meet.
  DataDir third = make(Kind::kRun, "third");
  EXPECT_TRUE(claim_writable(data_, third, {"/a/b"}, true));
  // A box that is gone or stopped claims nothing.
  first.life.reset();
  ASSERT_TRUE(remove(data_, Kind::kRun, std::move(third), remove_box));
  const DataDir fourth = make(Kind::kRun, "fourth");
  EXPECT_TRUE(claim_writable(data_, fourth, {"/a/b"}, false));
}

TEST_F(DataDirTest, ADirectoryThatCannotBeMadeIsNamedWithWhatToDo) {
  EXPECT_FALSE(stage(data_ + "/none", Kind::kRun));
  std::ofstream(data_ + "/run") << "";
  const auto dir = stage(data_, Kind::kRun);
  ASSERT_FALSE(dir);
  EXPECT_THAT(dir.error().hint, HasSubstr("XDG_DATA_HOME"));
}

}  // namespace
}  // namespace temenos::store
