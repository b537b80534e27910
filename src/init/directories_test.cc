#include "init/directories.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace temenos::init {
namespace {

using namespace box_wire;
namespace fs = std::filesystem;

class DirectoriesTest : public testing::Test {
 protected:
  void SetUp() override {
    char pattern[] = "/dev/shm/temenos-directories-XXXXXX";
    ASSERT_NE(mkdtemp(pattern), nullptr);
    dir_ = pattern;
  }
  void TearDown() override {
    std::uint64_t count = 0;
    EXPECT_EQ(remove(dir_, true, count), 0);
    EXPECT_FALSE(fs::exists(dir_));
  }

  void file(const std::string& name) const { std::ofstream(dir_ + "/" + name) << name; }
  // To its end; errno or 0.
  static int remove(const std::string& path, bool recursive, std::uint64_t& count) {
    int error = 0;
    auto removal = TreeRemoval::start({recursive, path}, error, count);
    if (!removal) return error;
    auto progress = TreeRemoval::Progress::kMore;
    while (progress == TreeRemoval::Progress::kMore) progress = removal->step();
    count = removal->count();
    return removal->error();
  }
  // The errno of MKDIR, or minus what FILE_DONE counted.
  int make(const std::string& path, std::uint32_t mode, bool parents) {
    ByteQueue out;
    make_directory(7, {parents, mode, path}, out);
    iovec part[1];
    EXPECT_EQ(out.peek(part), 1u);
    FrameReader reader(out.size());
    const auto* from = static_cast<const std::uint8_t*>(part[0].iov_base);
    std::copy_n(from, part[0].iov_len, reader.space().begin());
    reader.commit(part[0].iov_len);
    Frame frame;
    EXPECT_EQ(reader.peek(frame), FrameReader::Status::kFrame);
    EXPECT_EQ(frame.header.id, 7u);
    FileDone done;
    ErrorReply error;
    if (static_cast<Type>(frame.header.type) == Type::kFileDone && decode(frame.payload, done)) {
      return -static_cast<int>(done.count);
    }
    EXPECT_TRUE(decode(frame.payload, error));
    EXPECT_EQ(error.stage, Stage::kFile);
    return error.error;
  }
  static mode_t mode_of(const std::string& path) {
    struct stat info{};
    EXPECT_EQ(lstat(path.c_str(), &info), 0) << path;
    return info.st_mode & 07777;
  }

  std::string dir_;
};

TEST_F(DirectoriesTest, MakesOneWithItsModeWhateverTheUmask) {
  const mode_t before = umask(022);
  EXPECT_EQ(make(dir_ + "/a", 0700, false), -1);
  EXPECT_EQ(make(dir_ + "/b/", 01777, false), -1);
  EXPECT_EQ(make(dir_ + "/c", 0555, false), -1);
  umask(before);
  EXPECT_EQ(mode_of(dir_ + "/a"), 0700u);
  EXPECT_EQ(mode_of(dir_ + "/b"), 01777u);
  EXPECT_EQ(mode_of(dir_ + "/c"), 0555u);
  EXPECT_EQ(make(dir_ + "/a", 0755, false), EEXIST);
  EXPECT_EQ(make(dir_ + "/x/y", 0755, false), ENOENT);
}

TEST_F(DirectoriesTest, MakesWhatIsMissingAboveItWhenAsked) {
  EXPECT_EQ(make(dir_ + "/x//y/z", 0700, true), -1);
  EXPECT_EQ(mode_of(dir_ + "/x"), 0755u);
  EXPECT_EQ(mode_of(dir_ + "/x/y/z"), 0700u);
  EXPECT_EQ(make(dir_ + "/x/y/z", 0755, true), 0);
  EXPECT_EQ(mode_of(dir_ + "/x/y/z"), 0700u);
  file("plain");
  EXPECT_EQ(make(dir_ + "/plain", 0755, true), EEXIST);
  EXPECT_EQ(make(dir_ + "/plain/below", 0755, true), ENOTDIR);
  EXPECT_EQ(make("/", 0755, true), 0);
  ASSERT_EQ(symlink("x", (dir_ + "/link").c_str()), 0);
  EXPECT_EQ(make(dir_ + "/link", 0755, true), 0);
  EXPECT_EQ(make(dir_ + "/link/new", 0755, true), -1);
  EXPECT_TRUE(fs::exists(dir_ + "/x/new"));
}

TEST_F(DirectoriesTest, WithoutRecursionOnlyWhatIsEmptyGoes) {
  std::uint64_t count = 0;
  file("plain");
  EXPECT_EQ(remove(dir_ + "/plain", false, count), 0);
  EXPECT_EQ(count, 1u);
  fs::create_directories(dir_ + "/full/inner");
  EXPECT_EQ(remove(dir_ + "/full", false, count), ENOTEMPTY);
  EXPECT_EQ(count, 0u);
  EXPECT_EQ(remove(dir_ + "/full/inner/", false, count), 0);
  EXPECT_EQ(remove(dir_ + "/nothing", false, count), ENOENT);
  EXPECT_EQ(remove(dir_ + "/nothing", true, count), ENOENT);
}

TEST_F(DirectoriesTest, LinksGoAndWhatTheyLeadToStays) {
  fs::create_directories(dir_ + "/keep/inner");
  file("keep/file");
  fs::create_directories(dir_ + "/tree");
  ASSERT_EQ(symlink("../keep", (dir_ + "/tree/link").c_str()), 0);
  ASSERT_EQ(symlink("nowhere", (dir_ + "/tree/dangling").c_str()), 0);
  ASSERT_EQ(symlink("keep", (dir_ + "/itself").c_str()), 0);
  ASSERT_EQ(mkfifo((dir_ + "/tree/fifo").c_str(), 0600), 0);
  std::uint64_t count = 0;
  EXPECT_EQ(remove(dir_ + "/tree", true, count), 0);
  EXPECT_EQ(count, 4u);
  EXPECT_EQ(remove(dir_ + "/itself", true, count), 0);
  EXPECT_EQ(count, 1u);
  EXPECT_TRUE(fs::exists(dir_ + "/keep/file"));
  EXPECT_TRUE(fs::exists(dir_ + "/keep/inner"));
}

TEST_F(DirectoriesTest, MountPointsAndTheRootAreRefusedUntouched) {
  std::uint64_t count = 0;
  EXPECT_EQ(remove("/", true, count), EBUSY);
  EXPECT_EQ(remove("//", true, count), EBUSY);
  EXPECT_EQ(remove("/proc", true, count), EBUSY);
  EXPECT_EQ(remove("/dev/pts/", true, count), EBUSY);
  EXPECT_EQ(remove(dir_ + "/.", true, count), EINVAL);
  EXPECT_EQ(remove(dir_ + "/x/..", true, count), EINVAL);
}

TEST_F(DirectoriesTest, WideTreesAreCounted) {
  for (int i = 0; i < 200; ++i) {
    const std::string below = "w/" + std::to_string(i);
    fs::create_directories(dir_ + "/" + below);
    for (int j = 0; j < 20; ++j) file(below + "/" + std::to_string(j));
  }
  std::uint64_t count = 0;
  EXPECT_EQ(remove(dir_ + "/w", true, count), 0);
  EXPECT_EQ(count, 1u + 200 + 200 * 20);
}

int open_descriptors() {
  return static_cast<int>(std::distance(fs::directory_iterator("/proc/self/fd"), {}));
}

// Deeper than any path, with something beside each directory.
int build_deep(const std::string& top, int levels, UniqueFd& last) {
  last.reset(open(top.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  for (int i = 0; i < levels; ++i) {
    if (mkdirat(last.get(), "d", 0700) != 0 || mkdirat(last.get(), "e", 0700) != 0) return errno;
    last.reset(openat(last.get(), "d", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!last) return errno;
  }
  return 0;
}

TEST_F(DirectoriesTest, AnyDepthWithAFewDescriptors) {
  constexpr int kLevels = 2'500;
  UniqueFd last;
  fs::create_directories(dir_ + "/deep");
  ASSERT_EQ(build_deep(dir_ + "/deep", kLevels, last), 0);
  last.reset();
  const int before = open_descriptors();
  int error = 0;
  std::uint64_t count = 0;
  auto removal = TreeRemoval::start({true, dir_ + "/deep"}, error, count);
  ASSERT_NE(removal, nullptr) << error;
  int most = 0;
  int steps = 0;
  auto progress = TreeRemoval::Progress::kMore;
  while (progress == TreeRemoval::Progress::kMore) {
    progress = removal->step();
    most = std::max(most, open_descriptors());
    ++steps;
  }
  EXPECT_EQ(progress, TreeRemoval::Progress::kDone) << removal->error();
  EXPECT_EQ(removal->count(), 1u + 2 * kLevels);
  EXPECT_GT(steps, 1);
  EXPECT_LT(most - before, 40);
  removal.reset();
  EXPECT_EQ(open_descriptors(), before);
}

TEST_F(DirectoriesTest, AWorkingPlaceThatIsMovedAwayLeadsNowhereElse) {
  UniqueFd last;
  fs::create_directories(dir_ + "/deep");
  fs::create_directories(dir_ + "/victim/inner");
  file("victim/file");
  ASSERT_EQ(build_deep(dir_ + "/deep", 100, last), 0);
  // Much to do at the bottom, so that it is there when the branch moves.
  for (int i = 0; i < 10'000; ++i) {
    const UniqueFd made(openat(last.get(), ("f" + std::to_string(i)).c_str(),
                               O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    ASSERT_TRUE(made);
  }
  int error = 0;
  std::uint64_t count = 0;
  auto removal = TreeRemoval::start({true, dir_ + "/deep"}, error, count);
  ASSERT_NE(removal, nullptr);
  auto progress = TreeRemoval::Progress::kMore;
  // Its first files are gone: it is at the bottom.
  while (progress == TreeRemoval::Progress::kMore && removal->count() < 100) {
    progress = removal->step();
  }
  ASSERT_EQ(progress, TreeRemoval::Progress::kMore);
  // The bottom directory goes into another tree; its ".." is that from now on.
  UniqueFd above(openat(last.get(), "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  ASSERT_EQ(renameat(above.get(), "d", AT_FDCWD, (dir_ + "/victim/moved").c_str()), 0);
  while (progress == TreeRemoval::Progress::kMore) progress = removal->step();
  EXPECT_EQ(progress, TreeRemoval::Progress::kFailed);
  EXPECT_EQ(removal->error(), ESTALE);
  EXPECT_TRUE(fs::exists(dir_ + "/victim/file"));
  EXPECT_TRUE(fs::exists(dir_ + "/victim/inner"));
}

TEST_F(DirectoriesTest, TheFirstEntryThatStaysEndsIt) {
  if (geteuid() == 0) GTEST_SKIP() << "root may remove everything";
  fs::create_directories(dir_ + "/top/sub");
  file("top/sub/one");
  ASSERT_EQ(chmod((dir_ + "/top/sub").c_str(), 0500), 0);
  std::uint64_t count = 0;
  EXPECT_EQ(remove(dir_ + "/top", true, count), EACCES);
  EXPECT_EQ(count, 0u);
  ASSERT_EQ(chmod((dir_ + "/top/sub").c_str(), 0700), 0);
}

}  // namespace
}  // namespace temenos::init
