#include "box/job_spool.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <thread>

#include "session/control.h"
#include "session/spool.h"
#include "sys/mount_sys.h"
#include "sys/process_sys.h"
#include "wire/job_messages.h"

namespace temenos::box {
namespace {

using namespace box_wire;

std::vector<std::uint8_t> taken(ByteQueue& queue) {
  std::vector<std::uint8_t> bytes(queue.size());
  EXPECT_EQ(session::copy_frames(queue, bytes), bytes.size());
  queue.consume(bytes.size());
  return bytes;
}
template <typename... Message>
std::vector<std::uint8_t> frame(const Message&... message) {
  ByteQueue queue;
  put(queue, kJobFrameId, message...);
  return taken(queue);
}
std::vector<std::uint8_t> output(std::string_view text, Type type = Type::kStdout) {
  return frame(type, Bytes(reinterpret_cast<const std::uint8_t*>(text.data()), text.size()));
}

class JobSpoolTest : public testing::Test {
 protected:
  void SetUp() override {
    char pattern[] = "/tmp/temenos-job-XXXXXX";
    ASSERT_NE(mkdtemp(pattern), nullptr);
    path_ = pattern;
    dir_.reset(open(pattern, O_PATH | O_DIRECTORY | O_CLOEXEC));
    std::array<UniqueFd, 2> fds;
    for (const int i : {0, 1}) {
      const std::string name = "log." + std::to_string(i);
      fds[i].reset(openat(dir_.get(), name.c_str(),
                          O_WRONLY | O_APPEND | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
      ASSERT_TRUE(fds[i]);
    }
    spool_ = session::Spool(std::move(fds), session::kMinSegment);
  }
  void TearDown() override {
    for (const char* name : {"log.0", "log.1"}) unlinkat(dir_.get(), name, 0);
    EXPECT_EQ(rmdir(path_.c_str()), 0);
  }
  void write(std::vector<std::uint8_t> frames) {
    spool_.write(frames);
    stream_ += frames.size();
  }
  SpoolRead read(std::uint64_t cursor = 0, std::size_t max = 1u << 20) {
    auto got = read_spool(dir_.get(), cursor, max);
    if (!got) ADD_FAILURE() << got.error().to_string();
    return got ? std::move(*got) : SpoolRead{};
  }
  static std::string all(const SpoolRead& got) {
    std::string text;
    for (const auto& chunk : got.chunks) {
      text += (chunk.stream == Stream::kStdout ? "" : "!") + chunk.bytes;
    }
    return text;
  }
  // A segment made by hand.
  void put_segment(int which, const std::vector<std::vector<std::uint8_t>>& frames) {
    const std::string name = "log." + std::to_string(which);
    const UniqueFd fd(openat(dir_.get(), name.c_str(), O_WRONLY | O_TRUNC | O_CLOEXEC));
    for (const auto& bytes : frames) {
      ASSERT_EQ(::write(fd.get(), bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
    }
  }

  std::string path_;
  UniqueFd dir_;
  session::Spool spool_;
  std::uint64_t stream_ = 0;  // bytes of frames written
};

TEST_F(JobSpoolTest, ReadsOutputInItsOrderAndThenTheEnd) {
  const SpoolRead nothing = read();
  EXPECT_TRUE(nothing.chunks.empty() && nothing.whole && !nothing.end);
  EXPECT_EQ(nothing.next, 0u);
  write(frame(Started{5}));
  write(output("one "));
  write(output("two "));
  write(output("three", Type::kStderr));
  SpoolRead got = read();
  EXPECT_EQ(all(got), "one two !three");
  EXPECT_EQ(got.chunks.size(), 2u);
  EXPECT_EQ(got.next, stream_);
  EXPECT_TRUE(got.whole && !got.end);
  EXPECT_EQ(read(kSpoolEnd).next, stream_);
  write(output("four"));
  EXPECT_EQ(all(read(got.next)), "four");
  write(frame(OutputEof{Stream::kStdout}));
  write(frame(Exited{false, 3, 1'000, 2'000, 64}));
  write(frame(Done{kDoneTimedOut | kDoneOutputLost, 7, {8, 9}}));
  got = read(got.next);
  ASSERT_TRUE(got.end && got.whole);
  EXPECT_EQ(got.end->how, JobEnd::How::kExited);
  EXPECT_EQ(got.end->result.exit_code, 3);
  EXPECT_TRUE(got.end->result.timed_out && got.end->result.truncated);
  EXPECT_EQ(got.end->result.left_running_total, 7u);
  EXPECT_EQ(got.end->result.left_running, (std::vector<std::uint32_t>{8, 9}));
  EXPECT_EQ(got.end->result.max_rss_kb, 64u);
  EXPECT_EQ(got.next, stream_);
}

TEST_F(JobSpoolTest, EveryNumberIsACursorAndNoByteIsReadTwiceOrMissed) {
  std::string text;
  write(frame(Started{5}));
  for (int i = 0; i < 40; ++i) {
    const std::string part(static_cast<std::size_t>(1 + i * 7 % 50),
                           static_cast<char>('a' + i % 26));
    text += part;
    write(output(part));
  }
  for (std::uint64_t cursor = 0; cursor <= stream_ + 5; ++cursor) {
    const SpoolRead got = read(cursor);
    EXPECT_TRUE(text.ends_with(all(got))) << cursor;
    EXPECT_EQ(got.next, std::max(stream_, cursor));
    EXPECT_EQ(got.dropped, 0u);
  }
  for (const std::size_t max : {1u, 3u, 17u, 1'000u}) {
    std::string joined;
    SpoolRead got;
    do {
      got = read(got.next, max);
      EXPECT_LE(all(got).size(), max);
      joined += all(got);
    } while (!got.whole);
    EXPECT_EQ(joined, text);
  }
}

TEST_F(JobSpoolTest, SaysWhatWasDroppedBeforeWhatIsThere) {
  const std::string line(9'988, 'x');  // 10,000 with its header
  for (int i = 0; i < 30; ++i) write(output(line));
  // 13 in each segment: the first has gone, the third has 4.
  SpoolRead got = read(0, 10u << 20);
  EXPECT_EQ(got.dropped, 130'000u);
  EXPECT_EQ(all(got).size(), 17 * line.size());
  EXPECT_EQ(got.next, 300'000u);
  got = read(125'000, 10);
  EXPECT_EQ(got.dropped, 5'000u);
  EXPECT_EQ(got.next, 130'000u + kHeaderSize + 10);
  write(frame(ErrorReply{Stage::kBoxLost, 0}));
  got = read(0, 10);  // the end is known without all that lies before it
  EXPECT_FALSE(got.whole);
  ASSERT_TRUE(got.end);
  EXPECT_EQ(got.end->how, JobEnd::How::kLost);
}

TEST_F(JobSpoolTest, WhatAFullDiskLostLiesBetweenTwoReads) {
  put_segment(0, {frame(JobSegment{0}), output("before")});
  put_segment(1, {frame(JobSegment{500}), output("after")});
  SpoolRead got = read();
  EXPECT_EQ(all(got), "before");
  EXPECT_FALSE(got.whole);
  const std::uint64_t next = got.next;
  got = read(next);
  EXPECT_EQ(got.dropped, 500 - next);
  EXPECT_EQ(all(got), "after");
  EXPECT_TRUE(got.whole);
}

TEST_F(JobSpoolTest, AJobThatNeverRanSaysWhy) {
  write(frame(ErrorReply{Stage::kNotFound, 2}));
  const SpoolRead got = read();
  ASSERT_TRUE(got.end);
  EXPECT_EQ(got.end->how, JobEnd::How::kFailed);
  ASSERT_TRUE(got.end->error);
  EXPECT_EQ(got.end->error->code, Code::kNotFound);
  EXPECT_FALSE(got.end->error->hint.empty());
}

TEST_F(JobSpoolTest, AnEndWhoseFirstPartIsMissingIsNotGuessed) {
  write(frame(Done{}));
  const SpoolRead got = read();
  ASSERT_TRUE(got.end);
  EXPECT_EQ(got.end->how, JobEnd::How::kLost);
}

TEST_F(JobSpoolTest, AFrameThatIsNotWholeIsNotThereYet) {
  auto cut = output("second");
  cut.pop_back();
  put_segment(0, {frame(JobSegment{0}), output("first "), cut});
  SpoolRead got = read();
  EXPECT_EQ(all(got), "first ");
  EXPECT_EQ(got.next, output("first ").size());
  put_segment(0, {frame(JobSegment{0}), output("first "), output("second")});
  EXPECT_EQ(all(read(got.next)), "second");
  auto header = frame(JobSegment{0});
  header.pop_back();
  put_segment(0, {header});
  EXPECT_TRUE(read().chunks.empty());
}

TEST_F(JobSpoolTest, WhatSessionMayNotWriteIsDamage) {
  const auto start = frame(JobSegment{0});
  const auto with = [&](const char* what, std::vector<std::vector<std::uint8_t>> first,
                        std::vector<std::vector<std::uint8_t>> second = {}) {
    SCOPED_TRACE(what);
    put_segment(0, first);
    put_segment(1, second);
    const auto got = read_spool(dir_.get(), 0, 1u << 20);
    ASSERT_FALSE(got);
    EXPECT_EQ(got.error().code, Code::kProtocol);
    EXPECT_FALSE(got.error().hint.empty());
  };
  auto foreign = output("x");
  foreign[8] = 2;
  auto flagged = output("x");
  flagged[6] = kFlagMore;
  auto huge = output("x");
  huge[2] = 2;  // 128 KiB
  with("no header", {output("a longer text than a header is")});
  with("a foreign id", {start, foreign});
  with("a flag", {start, flagged});
  with("a length", {start, huge});
  with("a message of another kind", {start, frame(Ping{1})});
  with("a second header", {start, start});
  with("empty output", {start, frame(Type::kStdout)});
  with("two exits", {start, frame(Exited{}), frame(Exited{})});
  with("more after the end", {start, frame(Exited{}), frame(Done{}), output("x")});
  with("a bad end", {start, frame(Type::kDone, Bytes(start).first(5))});
  with("a long end", {start, frame(Type::kError, std::vector<std::uint8_t>(600, 1))});
  with("an overlap", {start, output("some text")}, {frame(JobSegment{5}), output("x")});
}

TEST_F(JobSpoolTest, OnlyFilesAreRead) {
  ASSERT_EQ(unlinkat(dir_.get(), "log.1", 0), 0);
  ASSERT_EQ(symlinkat("log.0", dir_.get(), "log.1"), 0);
  EXPECT_FALSE(read_spool(dir_.get(), 0, 10));
  ASSERT_EQ(unlinkat(dir_.get(), "log.1", 0), 0);
  ASSERT_EQ(mkfifoat(dir_.get(), "log.1", 0600), 0);
  EXPECT_FALSE(read_spool(dir_.get(), 0, 10));
}

// 0, or the number of what went wrong.
int fill_a_small_disk() {
  const sys::IdMapLine uid{0, geteuid(), 1};
  const sys::IdMapLine gid{0, getegid(), 1};
  if (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0 ||
      !sys::write_id_maps(getpid(), {&uid, 1}, {&gid, 1}, true)) {
    return 77;
  }
  // Each segment may have 128 KiB, both together have no more than that.
  const auto disk = sys::new_filesystem("tmpfs", {{"size", "131072"}}, 0);
  if (!disk) return 77;
  std::array<UniqueFd, 2> fds;
  for (const int i : {0, 1}) {
    const std::string name = "log." + std::to_string(i);
    fds[i].reset(
        openat(disk->get(), name.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600));
    if (!fds[i]) return 1;
  }
  session::Spool spool(std::move(fds), session::kMinSegment);
  std::uint64_t stream = 0;
  const auto write = [&](std::vector<std::uint8_t> frames) {
    stream += frames.size();
    spool.write(frames);
  };
  for (int i = 0; i < 50; ++i) write(output(std::string(60'000, static_cast<char>('0' + i % 10))));
  write(frame(Exited{false, 3}));
  write(frame(Done{}));
  const auto got = read_spool(disk->get(), 0, 1u << 20);
  if (!got) return 2;
  // Not a byte of the newest is lost, so nothing is said of loss.
  if (got->next != stream || !got->whole || got->chunks.empty()) return 3;
  if (got->chunks.back().bytes.back() != '9') return 4;
  if (got->dropped == 0) return 5;
  return got->end && got->end->result.exit_code == 3 && !got->end->result.truncated ? 0 : 6;
}

TEST_F(JobSpoolTest, AFullDiskOnlyMakesItShorter) {
  auto child = sys::start_in_namespaces(0, fill_a_small_disk);
  ASSERT_TRUE(child);
  const int code = child->wait()->code;
  if (code == 77) GTEST_SKIP() << "no user namespace here";
  EXPECT_EQ(code, 0);
}

// The writer is faster than any disk and its segments are the smallest: they are emptied under the
// reader all the time. Each number is written once, so a wrong byte cannot look right.
TEST_F(JobSpoolTest, AReaderBesideAWriterNeverSeesWrongBytes) {
  constexpr std::uint64_t kNumbers = 16'000'000;
  std::jthread writer([&] {
    std::vector<std::uint64_t> numbers;
    std::uint64_t next = 0;
    for (unsigned round = 0; next < kNumbers; ++round) {
      numbers.resize(1 + round * 37 % 8'000);
      for (auto& number : numbers) number = next++;
      write(frame(Type::kStdout, Bytes(reinterpret_cast<const std::uint8_t*>(numbers.data()),
                                       numbers.size() * sizeof(std::uint64_t))));
    }
    write(frame(Exited{false, 0}));
    write(frame(Done{}));
  });
  std::uint64_t cursor = 0;
  std::uint64_t expected = 0;
  std::uint64_t dropped = 0;
  bool gap = false;
  for (bool ended = false; !ended;) {
    const auto got = read_spool(dir_.get(), cursor, 40'000);
    if (!got && got.error().code == Code::kTimedOut) continue;
    ASSERT_TRUE(got) << got.error().to_string();
    cursor = got->next;
    dropped += got->dropped;
    gap = gap || got->dropped != 0;  // a segment may be there before its first frame is
    ended = got->end && got->whole;
    ASSERT_LE(got->chunks.size(), 1u);
    if (got->chunks.empty()) continue;
    const std::string& bytes = got->chunks[0].bytes;
    ASSERT_EQ(bytes.size() % sizeof(std::uint64_t), 0u);
    for (std::size_t at = 0; at < bytes.size(); at += sizeof(std::uint64_t)) {
      std::uint64_t number = 0;
      std::memcpy(&number, bytes.data() + at, sizeof number);
      if (std::exchange(gap, false)) {
        ASSERT_GT(number, expected);
        expected = number;
      }
      ASSERT_EQ(number, expected);
      ++expected;
    }
  }
  writer.join();
  EXPECT_GE(expected, kNumbers);
  EXPECT_EQ(cursor, stream_);
  EXPECT_GT(dropped, 0u) << "the writer was too slow to be a test";
}

}  // namespace
}  // namespace temenos::box
