// The streams of a command: everything through, nothing without a bound, nobody waits for nothing.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <random>
#include <string>
#include <string_view>

#include "codec/json.h"
#include "tests/integration/program.h"

namespace temenos::testing {
namespace {

using ::testing::HasSubstr;

constexpr std::size_t kBlock = 1u << 20;

// A stream in which no two blocks are alike and no two places in one: lost, doubled or moved bytes
// show.
class Pattern {
 public:
  Pattern() {
    std::minstd_rand random(1);
    for (char& byte : block_) byte = static_cast<char>(random());
  }
  // The bytes from `at` to the end of their block; until the next call.
  std::string_view from(std::uint64_t at) {
    const std::uint64_t number = at / kBlock;
    std::copy_n(reinterpret_cast<const char*>(&number), sizeof number, block_.begin());
    return std::string_view(block_).substr(at % kBlock);
  }

 private:
  std::string block_ = std::string(kBlock, '\0');
};

class Both {
 public:
  explicit Both(Program& program) : program_(program) {
    for (const int fd : {program.in(), program.out()}) {
      fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
      fcntl(fd, F_SETPIPE_SZ, kBlock);
    }
  }
  // True when `total` bytes went in and came out again as they were.
  bool pass(std::uint64_t total) {
    while (received_ < total) {
      pollfd fds[] = {{sent_ < total ? program_.in() : -1, POLLOUT, 0},
                      {program_.out(), POLLIN, 0}};
      if (poll(fds, 2, 60'000) <= 0) return false;
      if (fds[0].revents != 0 && !send(total)) return false;
      if (fds[1].revents != 0 && !receive()) return false;
    }
    return received_ == total;
  }

 private:
  bool send(std::uint64_t total) {
    const auto bytes = to_send_.from(sent_).substr(0, total - sent_);
    const ssize_t n = write(program_.in(), bytes.data(), bytes.size());
    if (n < 0) return errno == EAGAIN;
    sent_ += static_cast<std::uint64_t>(n);
    return true;
  }
  bool receive() {
    const ssize_t n = read(program_.out(), buffer_.data(), buffer_.size());
    if (n < 0) return errno == EAGAIN;
    for (std::string_view got(buffer_.data(), static_cast<std::size_t>(n)); !got.empty();) {
      const auto expected = to_expect_.from(received_).substr(0, got.size());
      if (got.substr(0, expected.size()) != expected) return false;
      received_ += expected.size();
      got.remove_prefix(expected.size());
    }
    return n > 0;
  }

  Program& program_;
  Pattern to_send_;
  Pattern to_expect_;
  std::string buffer_ = std::string(kBlock, '\0');
  std::uint64_t sent_ = 0;
  std::uint64_t received_ = 0;
};

class OutputTest : public IntegrationTest {};

TEST_F(OutputTest, AGigabyteGoesThroughInLittleMemory) {
  Program program(host_, {temenos_program(), "run", "--no-net", "-i", "--", "cat"});
  Both both(program);
  ASSERT_TRUE(both.pass(std::uint64_t(std::max(256, part_of(1024))) << 20));
  // High-water marks, read when all has passed and all still live. Pages that the helper shares
  // with the keeper it was forked from, and libraries, are counted each time: the truth is less.
  const auto box = box_processes(program.pid());
  long total = 0;
  for (const pid_t pid : {program.pid(), box.keeper, box.helper, box.session}) {
    const long peak = status_kb(pid, "VmHWM");
    EXPECT_GT(peak, 0) << "process " << pid;
    total += peak;
  }
  RecordProperty("peak_kb", std::to_string(total));
#if !__has_feature(address_sanitizer) && !__has_feature(thread_sanitizer)
  EXPECT_LT(total, 64 * 1024);
#endif
  program.close_in();
  const auto result = program.finish();
  EXPECT_EQ(result.status, 0);
  EXPECT_EQ(result.err, "");
}

TEST_F(OutputTest, EndlessOutputIsCappedAndEndedByItsTimeout) {
  const auto result = run({"--output", "1", "--timeout", "2"}, "yes");
  EXPECT_EQ(result.status, 124);
  EXPECT_EQ(result.out.size(), std::size_t{1} << 20);
  EXPECT_THAT(result.err, HasSubstr("temenos: output was cut short"));
  EXPECT_THAT(result.err, HasSubstr("temenos: timed out"));
}

TEST_F(OutputTest, JsonKeepsHeadAndTailOfEndlessOutput) {
  const auto result =
      run({"--json"}, "echo first; head -c 5000000 /dev/zero | tr '\\0' x; echo; echo last");
  EXPECT_EQ(result.status, 0);
  const auto json = parse_json(result.out, {.max_bytes = 8u << 20});
  ASSERT_TRUE(json) << json.error().to_string();
  EXPECT_TRUE(json->at("truncated").as_bool());
  const std::string out(json->at("stdout").as_string());
  EXPECT_LE(out.size(), std::size_t{2} << 20);
  EXPECT_EQ(out.rfind("first\n", 0), 0u);
  EXPECT_TRUE(out.ends_with("\nlast\n"));
  EXPECT_EQ(
      json->at("stdout_omitted").at("bytes").as_int64() + static_cast<std::int64_t>(out.size()),
      5'000'012);
}

TEST_F(OutputTest, ADaemonThatHoldsStdoutDoesNotHoldTheCall) {
  Program program(host_, argv({}, "setsid sleep 1000 & echo leader done"));
  const auto result = program.finish(30);
  EXPECT_EQ(result.status, 0);
  EXPECT_EQ(result.out, "leader done\n");
}

TEST_F(OutputTest, StdinIsClosedUnlessAskedFor) {
  Program closed(host_, argv({}, "cat; echo end"));  // our pipe stays open: nobody may wait for it
  EXPECT_EQ(closed.finish(30).out, "end\n");
  const auto open = host_.temenos({"run", "--no-net", "-i", "--", "cat"}, "given\n");
  EXPECT_EQ(open.out, "given\n");
}

TEST_F(OutputTest, AnOpenStdinDoesNotOutliveTheCommand) {
  Program program(host_, argv({"-i"}, "exit 4"));
  EXPECT_EQ(program.finish(30).status, 4);
}

TEST_F(OutputTest, AReaderThatLeavesEndsTheCommand) {
  Program program(host_, {"/bin/sh", "-c",
                          "{ \"$0\" run --no-net -- yes; echo \"status $?\" >&2; } | head -n 1",
                          temenos_program()});
  const auto result = program.finish(30);
  EXPECT_EQ(result.out, "y\n");
  EXPECT_EQ(result.err, "status " + std::to_string(128 + SIGPIPE) + "\n");
}

}  // namespace
}  // namespace temenos::testing
