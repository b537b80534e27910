// Real trees of files, and real processes.
#include "disk/use.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "sys/file_sys.h"

namespace temenos::disk {
namespace {

constexpr std::uint64_t kMany = 1'000'000;
constexpr std::uint64_t kMiB = 1 << 20;

class UseTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/temenos-use-XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    path_ = name;
    top_.reset(open(name, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    ASSERT_TRUE(top_);
  }
  void TearDown() override { std::filesystem::remove_all(path_); }

  void write(const std::string& name, std::size_t bytes) const {
    std::ofstream(path_ + "/" + name) << std::string(bytes, 'x');
    const UniqueFd fd(open((path_ + "/" + name).c_str(), O_RDONLY | O_CLOEXEC));
    ASSERT_EQ(fsync(fd.get()), 0);  // blocks that are only promised are not yet all there
  }
  Use use(std::uint64_t max_files = kMany) const {
    const auto use = use_of_tree(top_.get(), max_files);
    EXPECT_TRUE(use) << use.error().to_string();
    return use.value_or(Use{});
  }

  std::string path_;
  UniqueFd top_;
};

TEST_F(UseTest, FilesDirectoriesAndLinksCount) {
  const Use empty = use();
  EXPECT_EQ(empty.files, 1u);
  write("one", 3 * kMiB);
  std::filesystem::create_directories(path_ + "/a/b");
  write("a/b/two", kMiB);
  std::filesystem::create_symlink("/usr", path_ + "/a/link");
  const Use more = use();
  EXPECT_EQ(more.files, 6u);
  EXPECT_GE(more.bytes, empty.bytes + 4 * kMiB);
  EXPECT_LT(more.bytes, empty.bytes + 5 * kMiB) << "a link leads nowhere";
}

TEST_F(UseTest, HolesTakeNothing) {
  write("sparse", 1);
  ASSERT_EQ(truncate((path_ + "/sparse").c_str(), std::int64_t{1} << 36), 0);
  EXPECT_LT(use().bytes, kMiB);
}

TEST_F(UseTest, AFileWithManyNamesCountsOnce) {
  write("file", 8 * kMiB);
  const Use one = use();
  for (int n = 0; n < 30; ++n) {
    std::filesystem::create_hard_link(path_ + "/file", path_ + "/name" + std::to_string(n));
  }
  EXPECT_LT(use().bytes, one.bytes + kMiB);
  EXPECT_GE(use().bytes, 8 * kMiB);
}

TEST_F(UseTest, NoDirectoryIsTooDeep) {
  constexpr std::uint64_t kDeep = 3000;
  const int back = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  ASSERT_EQ(fchdir(top_.get()), 0);
  for (std::uint64_t n = 0; n < kDeep; ++n) {
    ASSERT_EQ(mkdir("d", 0700), 0);
    ASSERT_EQ(chdir("d"), 0);
  }
  ASSERT_EQ(fchdir(back), 0);
  close(back);
  EXPECT_EQ(use().files, kDeep + 1);
}

// What comes after a directory is not lost, and not counted twice.
TEST_F(UseTest, WideDirectoriesAreReadToTheEnd) {
  for (int n = 0; n < 500; ++n) {
    std::filesystem::create_directory(path_ + "/d" + std::to_string(n));
    std::ofstream(path_ + "/d" + std::to_string(n) + "/f");
  }
  EXPECT_EQ(use().files, 1001u);
}

TEST_F(UseTest, StopsAtTheLimit) {
  for (int n = 0; n < 300; ++n) std::ofstream(path_ + "/f" + std::to_string(n));
  EXPECT_EQ(use(100).files, 101u);
}

TEST_F(UseTest, StopsWhenItIsAskedTo) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  const UniqueFd read_end(ends[0]), write_end(ends[1]);
  EXPECT_TRUE(use_of_tree(top_.get(), kMany, read_end.get()));
  ASSERT_EQ(::write(write_end.get(), "x", 1), 1);
  const auto stopped = use_of_tree(top_.get(), kMany, read_end.get());
  ASSERT_FALSE(stopped);
  EXPECT_EQ(stopped.error().code, Code::kConflict);
}

TEST_F(UseTest, FilesWithoutANameCountOnce) {
  const UniqueFd file(open((path_ + "/file").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  const std::string data(2 * kMiB, 'x');
  ASSERT_EQ(::write(file.get(), data.data(), data.size()), static_cast<ssize_t>(data.size()));
  ASSERT_EQ(fsync(file.get()), 0);
  const UniqueFd twice(dup(file.get()));
  std::vector<UniqueFd> self;
  self.emplace_back(open("/proc/self", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  const auto device = sys::stat_fd(file.get())->st_dev;
  EXPECT_EQ(use_of_nameless(self, {device, device})->files, 0u) << "it has a name";
  ASSERT_EQ(unlink((path_ + "/file").c_str()), 0);
  const Use nameless = use_of_nameless(self, {device, device}).value_or(Use{});
  EXPECT_EQ(nameless.files, 1u);
  EXPECT_GE(nameless.bytes, 2 * kMiB);
  EXPECT_LT(nameless.bytes, 3 * kMiB);
  EXPECT_EQ(use_of_nameless(self, {device + 1, device + 1})->files, 0u) << "of another file system";
}

TEST_F(UseTest, WhatCannotBeSeenIsNotTakenForNothing) {
  std::vector<UniqueFd> no_process;
  no_process.emplace_back(open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  EXPECT_EQ(use_of_nameless(no_process, {0, 0})->files, 0u) << "it has ended";
  write("fd", 1);
  EXPECT_FALSE(use_of_nameless(no_process, {0, 0}));
}

// Not even its descriptors can be listed then, but by the host's root.
TEST(NamelessTest, WhoHasEndedAndIsNotReapedHoldsNothing) {
  const pid_t ended = fork();
  if (ended == 0) _exit(0);
  siginfo_t info{};
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(ended), &info, WEXITED | WNOWAIT), 0);
  const pid_t looker = fork();
  if (looker == 0) {
    constexpr uid_t kNobody = 65534;
    if (geteuid() == 0 && (setgid(kNobody) != 0 || setuid(kNobody) != 0)) _exit(2);
    std::vector<UniqueFd> processes;
    processes.emplace_back(
        open(("/proc/" + std::to_string(ended)).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (openat(processes[0].get(), "fd", O_RDONLY | O_CLOEXEC) >= 0 || errno != EACCES) _exit(3);
    const auto use = use_of_nameless(processes, {0, 0});
    _exit(use && use->files == 0 ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(looker, &status, 0), looker);
  EXPECT_EQ(status, 0);
  ASSERT_EQ(waitpid(ended, nullptr, 0), ended);
}

char state_of(pid_t pid) {
  std::string word;
  std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
  stat >> word >> word >> word;
  return word.empty() ? '?' : word[0];
}

TEST(StandStillTest, AsLongAsItLives) {
  const pid_t pid = fork();
  if (pid == 0) {
    for (;;) {
    }
  }
  std::vector<UniqueFd> processes;
  processes.emplace_back(
      open(("/proc/" + std::to_string(pid)).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  int status = 0;
  {
    const StandStill still(processes);
    ASSERT_EQ(waitpid(pid, &status, WUNTRACED), pid);
    EXPECT_TRUE(WIFSTOPPED(status));
    EXPECT_EQ(state_of(pid), 'T');
  }
  ASSERT_EQ(waitpid(pid, &status, WCONTINUED), pid);
  EXPECT_TRUE(WIFCONTINUED(status));
  {
    const StandStill still(processes);
    ASSERT_EQ(waitpid(pid, &status, WUNTRACED), pid);
    kill_all(processes);
    ASSERT_EQ(waitpid(pid, &status, 0), pid);
    EXPECT_TRUE(WIFSIGNALED(status));
  }
}

TEST(LimitTest, OfBytesAndOfFiles) {
  const Limit limit = Limit::of_mb(1);
  EXPECT_FALSE(limit.is_over({kMiB, 256}));
  EXPECT_TRUE(limit.is_over({kMiB + 1, 1}));
  EXPECT_TRUE(limit.is_over({0, 257}));
  EXPECT_EQ(describe(limit), "1 MiB (256 files)");
  EXPECT_EQ(describe(Use{kMiB + 1, 3}), "2 MiB (3 files)");
}

}  // namespace
}  // namespace temenos::disk
