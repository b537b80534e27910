#include "store/start_gate.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <vector>

namespace temenos::store {
namespace {

using namespace std::chrono_literals;

class StartGateTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char pattern[] = "/tmp/temenos-gate-XXXXXX";
    ASSERT_NE(mkdtemp(pattern), nullptr);
    path_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(path_); }
  Result<UniqueFd> place(std::chrono::milliseconds patience, int cancel = -1) const {
    return wait_to_start(path_ + "/starts", 2, patience, cancel);
  }
  std::string path_;
};

TEST_F(StartGateTest, HasSoManyPlaces) {
  auto one = place(0ms);
  auto two = place(0ms);
  ASSERT_TRUE(one && two);
  const auto three = place(20ms);
  ASSERT_FALSE(three);
  EXPECT_EQ(three.error().code, Code::kExhausted);
  one->reset();
  EXPECT_TRUE(place(0ms));
}

TEST_F(StartGateTest, AWaitCanBeGivenUp) {
  const auto one = place(0ms);
  const auto two = place(0ms);
  const UniqueFd cancel(eventfd(1, EFD_CLOEXEC));
  const auto three = place(60s, cancel.get());
  ASSERT_FALSE(three);
  EXPECT_EQ(three.error().code, Code::kBoxDied);
}

TEST_F(StartGateTest, DeathGivesAPlaceBack) {
  const auto one = place(0ms);
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  const pid_t pid = fork();
  if (pid == 0) {
    const auto two = place(0ms);
    (void)!write(ends[1], "x", 1);
    pause();
    _exit(two ? 0 : 1);
  }
  char byte;
  ASSERT_EQ(read(ends[0], &byte, 1), 1);
  EXPECT_FALSE(place(0ms));
  kill(pid, SIGKILL);
  EXPECT_TRUE(place(10s));
  ASSERT_EQ(waitpid(pid, nullptr, 0), pid);
  close(ends[0]);
  close(ends[1]);
}

}  // namespace
}  // namespace temenos::store
