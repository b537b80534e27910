#include "audit/log.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>

#include "base/text.h"
#include "codec/json.h"
#include "sys/file_sys.h"

namespace temenos::audit {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;

class LogTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char pattern[] = "/tmp/temenos-audit-XXXXXX";
    ASSERT_NE(mkdtemp(pattern), nullptr);
    path_ = pattern;
    dir_.reset(open(pattern, O_PATH | O_DIRECTORY | O_CLOEXEC));
  }
  void TearDown() override { std::filesystem::remove_all(path_); }
  std::vector<std::string> lines(const char* name = "audit.jsonl") const {
    auto out = split(sys::read_path(path_ + "/" + name, 64u << 20).value_or(""), '\n');
    EXPECT_EQ(out.back(), "") << "half a line";
    out.pop_back();
    for (const auto& line : out) {
      EXPECT_TRUE(parse_json(line)) << line;
      EXPECT_LE(line.size() + 1, kMaxLine);
    }
    return out;
  }
  std::string path_;
  UniqueFd dir_;
};

TEST_F(LogTest, WritesLinesOfJson) {
  Log log(dir_.get());
  log.write(Event("exec").texts("argv", {"sh", "-c", "echo \"hi\"\n"}).number("exit_code", 3));
  log.write(Event("write").text("path", "/a\x1b[2J\xff").flag("ok", true));
  ASSERT_EQ(lines().size(), 2u);
  EXPECT_THAT(lines()[0],
              MatchesRegex(R"(\{"time":"[0-9]{4}-[0-9-]+T[0-9:]+\.[0-9]{3}Z","event":"exec",)"
                           R"("argv":\["sh","-c","echo \\"hi\\"\\\\n"\],"exit_code":3\})"));
  EXPECT_THAT(lines()[1], HasSubstr(R"("path":"/a\\x1b[2J\\xff","ok":true)"));
}

TEST_F(LogTest, WhatDoesNotFitIsCutAndSaysSo) {
  Log log(dir_.get());
  log.write(Event("exec").texts("argv", std::vector<std::string>(1000, "x")));
  log.write(Event("exec").texts("argv", std::vector<std::string>(20, std::string(900, '\x01'))));
  log.write(Event("exec").text("path", std::string(5000, 'x')).number("n", 1));
  ASSERT_EQ(lines().size(), 3u);
  for (const auto& line : lines()) EXPECT_THAT(line, HasSubstr("\"cut\":true"));
  EXPECT_THAT(lines()[2], HasSubstr("\"n\":1"));
}

TEST_F(LogTest, KeepsTwoFilesOfABoundedSize) {
  Log log(dir_.get());
  const std::string filler(kMaxText, 'x');
  const int count = 3 * kMaxFile / kMaxText;
  for (int i = 0; i < count; ++i) log.write(Event("e").number("i", i).text("filler", filler));
  EXPECT_EQ(log.lost(), 0u);
  const auto now = lines();
  const auto before = lines("audit.jsonl.1");
  EXPECT_THAT(now.back(), HasSubstr("\"i\":" + std::to_string(count - 1)));
  // No gap between the two.
  EXPECT_THAT(now.front(), HasSubstr("\"i\":" + std::to_string(count - now.size())));
  EXPECT_LE(std::filesystem::file_size(path_ + "/audit.jsonl.1"), kMaxFile);
  EXPECT_GT(std::filesystem::file_size(path_ + "/audit.jsonl.1"), kMaxFile - kMaxLine);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(path_), {}), 2);
}

TEST_F(LogTest, ManyProcessesLoseNothing) {
  constexpr int kProcesses = 6;
  constexpr int kLines = 1500;
  std::vector<pid_t> pids;
  for (int p = 0; p < kProcesses; ++p) {
    const pid_t pid = fork();
    if (pid == 0) {
      Log log(dir_.get());
      const std::string filler(600, 'x');
      for (int i = 0; i < kLines; ++i) log.write(Event("e").number("p", p).text("f", filler));
      _exit(log.lost() == 0 ? 0 : 1);
    }
    pids.push_back(pid);
  }
  for (const pid_t pid : pids) {
    int status = 0;
    ASSERT_EQ(waitpid(pid, &status, 0), pid);
    EXPECT_EQ(status, 0);
  }
  EXPECT_EQ(lines().size() + lines("audit.jsonl.1").size(), std::size_t{kProcesses * kLines});
}

TEST_F(LogTest, DoesNotWaitForWhoDoesNotLetGo) {
  Log log(dir_.get());
  log.write(Event("one"));
  const UniqueFd held(open((path_ + "/audit.jsonl").c_str(), O_RDONLY | O_CLOEXEC));
  ASSERT_EQ(flock(held.get(), LOCK_EX), 0);
  log.write(Event("two"));
  EXPECT_EQ(log.lost(), 1u);
  ASSERT_EQ(flock(held.get(), LOCK_UN), 0);
  log.write(Event("three"));
  EXPECT_EQ(lines().size(), 2u);
}

TEST_F(LogTest, WhatCouldNotBeWrittenIsCounted) {
  Log log(dir_.get());
  log.write(Event("one"));
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto old = signal(SIGXFSZ, SIG_IGN);
  const rlimit small{100, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  log.write(Event("two").text("filler", std::string(200, 'x')));
  log.write(Event("three").text("filler", std::string(200, 'x')));
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  signal(SIGXFSZ, old);
  EXPECT_EQ(log.lost(), 2u);
  log.write(Event("four"));
  EXPECT_EQ(log.lost(), 0u);
  ASSERT_EQ(lines().size(), 2u);
  EXPECT_THAT(lines()[0], Not(HasSubstr("lost")));
  EXPECT_THAT(lines()[1], HasSubstr("\"event\":\"four\",\"lost\":2"));
}

}  // namespace
}  // namespace temenos::audit
