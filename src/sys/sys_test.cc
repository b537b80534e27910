#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>

#include "base/try.h"
#include "sys/file_sys.h"
#include "sys/process_sys.h"

namespace temenos::sys {
namespace {

class Scratch : public ::testing::Test {
 protected:
  void SetUp() override {
    const char* base = getenv("TMPDIR");
    path_ = std::string(base != nullptr ? base : "/tmp") + "/temenos-sys-XXXXXX";
    ASSERT_NE(mkdtemp(path_.data()), nullptr);
    dir_ = UniqueFd(open(path_.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  }
  void TearDown() override {
    const UniqueFd parent(open((path_ + "/..").c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    EXPECT_TRUE(remove_tree(parent.get(), path_.substr(path_.rfind('/') + 1)));
    EXPECT_NE(access(path_.c_str(), F_OK), 0);
  }
  std::string path_;
  UniqueFd dir_;
};

TEST_F(Scratch, OpenBeneathRefusesSymlinksAndParents) {
  ASSERT_EQ(symlink("/etc", (path_ + "/link").c_str()), 0);
  ASSERT_EQ(symlink("/etc/passwd", (path_ + "/file").c_str()), 0);
  ASSERT_EQ(mkdir((path_ + "/sub").c_str(), 0755), 0);
  auto error_of = [&](const char* path) {
    auto fd = open_beneath(dir_.get(), path, O_RDONLY);
    return fd ? 0 : fd.error().sys_errno;
  };
  EXPECT_EQ(error_of("link/passwd"), ELOOP);
  EXPECT_EQ(error_of("file"), ELOOP);
  EXPECT_EQ(error_of("../x"), EXDEV);
  EXPECT_EQ(error_of("/etc/passwd"), EXDEV);
  EXPECT_EQ(error_of("sub"), 0);
}

TEST_F(Scratch, MakeDirectoriesStopsAtASymlink) {
  ASSERT_EQ(symlink("/tmp", (path_ + "/out").c_str()), 0);
  EXPECT_FALSE(make_directories(dir_.get(), "out/planted", 0755));
  EXPECT_NE(access("/tmp/planted", F_OK), 0);
  ASSERT_TRUE(make_directories(dir_.get(), "a/b/c", 0700));
  struct stat st{};
  ASSERT_EQ(stat((path_ + "/a/b/c").c_str(), &st), 0);
  EXPECT_TRUE(S_ISDIR(st.st_mode));
}

TEST_F(Scratch, RemoveTreeTakesAnyDepthAndNeverLeaves) {
  // 3,000 levels: deeper than any path name or stack of descriptors.
  UniqueFd level(open(path_.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  ASSERT_EQ(mkdirat(level.get(), "deep", 0755), 0);
  level = UniqueFd(openat(level.get(), "deep", O_PATH | O_DIRECTORY | O_CLOEXEC));
  for (int i = 0; i < 3000; ++i) {
    ASSERT_EQ(mkdirat(level.get(), "d", 0755), 0);
    ASSERT_EQ(symlinkat("/etc", level.get(), "link"), 0);
    level = UniqueFd(openat(level.get(), "d", O_PATH | O_DIRECTORY | O_CLOEXEC));
    ASSERT_TRUE(level);
  }
  ASSERT_EQ(mkdirat(dir_.get(), "deep/.removing-0", 0755), 0);
  ASSERT_TRUE(remove_tree(dir_.get(), "deep"));
  EXPECT_EQ(access("/etc/passwd", F_OK), 0);
  EXPECT_TRUE(list_names(dir_.get(), 10)->empty());
  EXPECT_TRUE(remove_tree(dir_.get(), "not-there"));
}

TEST_F(Scratch, RemoveTreeMeetsNoNameThatTheContentChose) {
  ASSERT_EQ(mkdirat(dir_.get(), "t", 0755), 0);
  const UniqueFd tree(openat(dir_.get(), "t", O_PATH | O_DIRECTORY | O_CLOEXEC));
  for (int i = 0; i < 1200; ++i) {
    ASSERT_TRUE(write_new_file(tree.get(), ".removing-" + std::to_string(i), "", 0600));
  }
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(make_directories(tree.get(), "d" + std::to_string(i) + "/a/b/c", 0755));
  }
  ASSERT_TRUE(remove_tree(dir_.get(), "t"));
  EXPECT_NE(faccessat(dir_.get(), "t", F_OK, 0), 0);
}

TEST_F(Scratch, TwoRemoversOfOneTreeBothSucceed) {
  ASSERT_EQ(mkdirat(dir_.get(), "t", 0755), 0);
  const UniqueFd tree(openat(dir_.get(), "t", O_PATH | O_DIRECTORY | O_CLOEXEC));
  for (int i = 0; i < 300; ++i) {
    ASSERT_TRUE(make_directories(tree.get(), "d" + std::to_string(i) + "/a/b/c", 0755));
  }
  const int dir = dir_.get();
  auto other = start_in_namespaces(0, [dir] { return remove_tree(dir, "t") ? 0 : 1; });
  ASSERT_TRUE(other);
  const auto here = remove_tree(dir_.get(), "t");
  EXPECT_TRUE(here) << here.error().to_string();
  EXPECT_EQ(other->wait()->code, 0);
}

TEST_F(Scratch, ReadAllHoldsItsLimit) {
  ASSERT_TRUE(write_new_file(dir_.get(), "f", std::string(1000, 'x'), 0600));
  auto whole = read_path(path_ + "/f", 1000);
  ASSERT_TRUE(whole);
  EXPECT_EQ(whole->size(), 1000u);
  auto over = read_path(path_ + "/f", 999);
  ASSERT_FALSE(over);
  EXPECT_EQ(over.error().code, Code::kExhausted);
  EXPECT_FALSE(write_new_file(dir_.get(), "f", "again", 0600));
}

TEST(SealedMemory, CannotBeChanged) {
  const auto fd = sealed_memory("test", "hello");
  ASSERT_TRUE(fd);
  EXPECT_EQ(write(fd->get(), "x", 1), -1);
  EXPECT_EQ(ftruncate(fd->get(), 0), -1);
  EXPECT_EQ(*read_all(fd->get(), 100), "hello");
}

TEST(ProcessTest, WaitsAndSignalsByDescriptor) {
  auto quick = start_in_namespaces(0, [] { return 7; });
  ASSERT_TRUE(quick);
  EXPECT_EQ(quick->wait()->code, 7);
  EXPECT_FALSE(quick->wait());
  auto slow = start_in_namespaces(0, [] {
    for (;;) pause();
    return 0;
  });
  ASSERT_TRUE(slow);
  EXPECT_FALSE(slow->wait(false));
  slow->send(SIGKILL);
  EXPECT_EQ(slow->wait()->signal, SIGKILL);
}

TEST(ProcessTest, RunProgramGivesStatusAndOutput) {
  auto result = run_program({"sh", "-c", "echo out; echo err >&2; exit 3"});
  ASSERT_TRUE(result);
  EXPECT_EQ(result->status.code, 3);
  EXPECT_EQ(result->output, "out\nerr\n");
  EXPECT_EQ(run_program({"/no/such/program"})->status.code, 127);
  const auto hung = run_program({"sh", "-c", "sleep 1000 & wait"}, 4096, 100);
  ASSERT_FALSE(hung);
  EXPECT_EQ(hung.error().code, Code::kTimedOut);
}

TEST(ProcessTest, WhatRunsAProgramTakesItAlong) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  UniqueFd reader(ends[0]);
  UniqueFd writer(ends[1]);
  // A block of signals is the caller's, not the program's.
  auto caller = start_in_namespaces(0, [&] {
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, nullptr);
    const std::string out =
        "/proc/" + std::to_string(getpid()) + "/fd/" + std::to_string(writer.get());
    (void)run_program(
        {"sh", "-c", "exec 3>" + out + "; grep SigBlk /proc/self/status >&3; exec sleep 1000"});
    return 0;
  });
  ASSERT_TRUE(caller);
  writer.reset();
  char text[64];
  const ssize_t n = read(reader.get(), text, sizeof text);
  EXPECT_EQ(std::string(text, static_cast<std::size_t>(std::max<ssize_t>(n, 0))),
            "SigBlk:\t0000000000000000\n");
  caller->send(SIGKILL);
  caller->wait();
  EXPECT_EQ(read(reader.get(), text, sizeof text), 0) << "the end that it holds is closed with it";
}

TEST(Sockets, DescriptorsTravelAndAreCloseOnExec) {
  auto pair = socket_pair(SOCK_SEQPACKET);
  ASSERT_TRUE(pair);
  const auto file = sealed_memory("travel", "content");
  const int fd = file->get();
  ASSERT_TRUE(send_with_fds(pair->first.get(), "msg", {&fd, 1}));
  auto received = receive_with_fds(pair->second.get(), 64, 4);
  ASSERT_TRUE(received);
  EXPECT_EQ(received->bytes, "msg");
  ASSERT_EQ(received->fds.size(), 1u);
  EXPECT_NE(fcntl(received->fds[0].get(), F_GETFD) & FD_CLOEXEC, 0);
  EXPECT_EQ(*read_all(received->fds[0].get(), 100), "content");
  ASSERT_TRUE(send_with_fds(pair->first.get(), std::string(100, 'x'), {}));
  EXPECT_FALSE(receive_with_fds(pair->second.get(), 64, 4));  // larger than agreed
  pair->first.reset();
  EXPECT_TRUE(receive_with_fds(pair->second.get(), 64, 4)->bytes.empty());
}

TEST(Sockets, NoMoreDescriptorsThanAgreed) {
  auto pair = socket_pair(SOCK_SEQPACKET);
  ASSERT_TRUE(pair);
  const auto file = sealed_memory("travel", "content");
  const std::vector<int> fds(8, file->get());
  for (std::size_t most = 0; most < 7; ++most) {
    for (const std::size_t sent : {most, most + 1}) {
      ASSERT_TRUE(send_with_fds(pair->first.get(), "msg", {fds.data(), sent}));
      const auto received = receive_with_fds(pair->second.get(), 64, most);
      EXPECT_EQ(received.has_value(), sent == most) << sent << " of " << most;
    }
  }
}

}  // namespace
}  // namespace temenos::sys
