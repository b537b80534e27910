#include "store/atomic_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>

#include "base/unique_fd.h"
#include "sys/file_sys.h"

namespace temenos::store {
namespace {

class AtomicFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char pattern[] = "/tmp/temenos-atomic-XXXXXX";
    ASSERT_NE(mkdtemp(pattern), nullptr);
    path_ = pattern;
    dir_.reset(open(pattern, O_PATH | O_DIRECTORY | O_CLOEXEC));
  }
  void TearDown() override { std::filesystem::remove_all(path_); }
  std::string content() const { return sys::read_path(path_ + "/f", 1 << 20).value_or("none"); }
  long entries() const { return std::distance(std::filesystem::directory_iterator(path_), {}); }
  std::string path_;
  UniqueFd dir_;
};

TEST_F(AtomicFileTest, WritesAndReplaces) {
  ASSERT_TRUE(write_atomically(dir_.get(), "f", "one"));
  ASSERT_TRUE(write_atomically(dir_.get(), "f", ""));
  EXPECT_EQ(content(), "");
  ASSERT_TRUE(write_atomically(dir_.get(), "f", std::string(100'000, 'x')));
  EXPECT_EQ(content(), std::string(100'000, 'x'));
  struct stat st{};
  ASSERT_EQ(stat((path_ + "/f").c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 07777, 0600u);
  EXPECT_EQ(entries(), 1);
}

TEST_F(AtomicFileTest, WhatDoesNotFitLeavesTheOldOne) {
  ASSERT_TRUE(write_atomically(dir_.get(), "f", "old"));
  const pid_t pid = fork();
  if (pid == 0) {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit small{1000, 1000};
    setrlimit(RLIMIT_FSIZE, &small);
    _exit(write_atomically(dir_.get(), "f", std::string(100'000, 'x')) ? 1 : 0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(pid, &status, 0), pid);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(content(), "old");
  EXPECT_EQ(entries(), 1);
}

}  // namespace
}  // namespace temenos::store
