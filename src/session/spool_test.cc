#include "session/spool.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "session/control.h"
#include "wire/job_messages.h"

namespace temenos::session {
namespace {

using namespace box_wire;

struct Segment {
  std::uint64_t offset = 0;
  std::vector<Type> types;
  std::size_t frames = 0;  // bytes of them
  std::size_t torn = 0;    // bytes after the last whole frame
  Done done;
};

class SpoolTest : public testing::Test {
 protected:
  void SetUp() override {
    char pattern[] = "/tmp/temenos-spool-XXXXXX";
    ASSERT_NE(mkdtemp(pattern), nullptr);
    dir_ = pattern;
    // A write over the limit must be an error.
    ASSERT_EQ(sigaction(SIGXFSZ, nullptr, &before_), 0);
    signal(SIGXFSZ, SIG_IGN);
  }
  void TearDown() override {
    sigaction(SIGXFSZ, &before_, nullptr);
    for (const char* name : {"/log.0", "/log.1"}) unlink((dir_ + name).c_str());
    EXPECT_EQ(rmdir(dir_.c_str()), 0);
  }
  Spool open_spool(std::uint32_t limit) {
    std::array<UniqueFd, 2> fds;
    for (const int i : {0, 1}) {
      fds[i].reset(open(path(i).c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600));
      EXPECT_TRUE(fds[i]);
    }
    return Spool(std::move(fds), limit);
  }
  std::string path(int segment) const { return dir_ + "/log." + std::to_string(segment); }
  Segment segment(int which) const {
    Segment found;
    const UniqueFd fd(open(path(which).c_str(), O_RDONLY | O_CLOEXEC));
    std::vector<std::uint8_t> bytes(kMaxSegment / 4);
    const ssize_t size = read(fd.get(), bytes.data(), bytes.size());
    if (size < 0) {
      ADD_FAILURE() << "cannot read " << path(which);
      return found;
    }
    std::span<const std::uint8_t> rest(bytes.data(), static_cast<std::size_t>(size));
    bool first = true;
    while (rest.size() >= kHeaderSize) {
      const FrameHeader header = get_header(rest.data());
      if (rest.size() - kHeaderSize < header.length) break;
      const Bytes payload = rest.subspan(kHeaderSize, header.length);
      rest = rest.subspan(kHeaderSize + header.length);
      EXPECT_EQ(header.id, kJobFrameId);
      if (first) {
        JobSegment start;
        EXPECT_EQ(static_cast<Type>(header.type), Type::kJobSegment);
        EXPECT_TRUE(decode(payload, start));
        found.offset = start.offset;
        first = false;
        continue;
      }
      found.types.push_back(static_cast<Type>(header.type));
      found.frames += kHeaderSize + header.length;
      if (found.types.back() == Type::kDone) EXPECT_TRUE(decode(payload, found.done));
    }
    found.torn = rest.size();
    return found;
  }
  static std::vector<std::uint8_t> taken(ByteQueue& queue) {
    std::vector<std::uint8_t> bytes(queue.size());
    bytes.resize(copy_frames(queue, bytes));
    queue.consume(bytes.size());
    return bytes;
  }
  static std::vector<std::uint8_t> output(std::size_t size) {
    ByteQueue queue;
    const std::vector<std::uint8_t> payload(size, 'x');
    put(queue, kJobFrameId, Type::kStdout, payload);
    return taken(queue);
  }
  static std::vector<std::uint8_t> the_end() {
    ByteQueue queue;
    put(queue, kJobFrameId, Exited{false, 3});
    put(queue, kJobFrameId, Done{});
    return taken(queue);
  }
  static rlimit limit_files(rlim_t size) {
    rlimit before{};
    getrlimit(RLIMIT_FSIZE, &before);
    const rlimit now{size, before.rlim_max};
    EXPECT_EQ(setrlimit(RLIMIT_FSIZE, &now), 0);
    return before;
  }

  std::string dir_;
  struct sigaction before_{};
};

TEST_F(SpoolTest, KeepsTheNewestInTwoSegmentsOfBoundedSize) {
  Spool spool = open_spool(1);  // raised to the least
  const std::size_t each = kHeaderSize + 10'000;
  const std::size_t in_one = (kMinSegment - kJobSegmentSize) / each;
  std::size_t written = 0;
  auto put_frames = [&](std::size_t count) {
    std::vector<std::uint8_t> batch;
    for (std::size_t i = 0; i < count; ++i) {
      const auto frame = output(10'000);
      batch.insert(batch.end(), frame.begin(), frame.end());
    }
    spool.write(batch);
    written += batch.size();
  };
  put_frames(in_one);
  EXPECT_EQ(segment(0).types.size(), in_one);
  EXPECT_EQ(segment(1).types.size(), 0u);
  put_frames(1);
  EXPECT_EQ(segment(1).offset, in_one * each);
  EXPECT_EQ(segment(1).types.size(), 1u);
  // One batch that is more than both hold.
  put_frames(3 * in_one);
  const Segment a = segment(0);
  const Segment b = segment(1);
  const Segment& older = a.offset < b.offset ? a : b;
  const Segment& newer = a.offset < b.offset ? b : a;
  EXPECT_EQ(older.types.size(), in_one);
  EXPECT_EQ(older.offset + older.frames, newer.offset);
  EXPECT_EQ(newer.offset + newer.frames, written);
  for (const int i : {0, 1}) {
    struct stat st{};
    ASSERT_EQ(stat(path(i).c_str(), &st), 0);
    EXPECT_LE(st.st_size, kMinSegment);
  }
}

TEST_F(SpoolTest, AFullDiskMakesSegmentsShorterAndLosesNothingThatFits) {
  Spool spool = open_spool(kMinSegment);
  const rlimit before = limit_files(30'000);
  const auto frame = output(20'000);
  std::vector<std::uint8_t> batch;
  for (int i = 0; i < 3; ++i) batch.insert(batch.end(), frame.begin(), frame.end());
  spool.write(batch);
  auto end = the_end();
  spool.write(end);
  setrlimit(RLIMIT_FSIZE, &before);
  // The second frame was cut, and stands whole in the other segment; the third in the first again.
  const Segment first = segment(0);
  const Segment second = segment(1);
  EXPECT_EQ(first.offset, 2 * frame.size());
  EXPECT_EQ(first.types, (std::vector<Type>{Type::kStdout, Type::kExited, Type::kDone}));
  EXPECT_EQ(first.done.flags, 0u);
  EXPECT_EQ(second.offset, frame.size());
  EXPECT_EQ(second.types, (std::vector<Type>{Type::kStdout}));
  EXPECT_NE(second.torn, 0u);
}

TEST_F(SpoolTest, OutputThatFitsNowhereIsLostAndTheEndSaysSo) {
  Spool spool = open_spool(kMinSegment);
  const rlimit before = limit_files(1'000);
  auto first = output(100);
  spool.write(first);
  // In one batch with what is lost, and in a later one.
  auto batch = output(20'000);
  const auto end = the_end();
  batch.insert(batch.end(), end.begin(), end.begin() + 38);  // EXITED
  spool.write(batch);
  auto last = the_end();
  last.erase(last.begin(), last.begin() + 38);
  spool.write(last);
  setrlimit(RLIMIT_FSIZE, &before);
  const Segment a = segment(0);
  const Segment b = segment(1);
  const Segment& end_of = a.types.empty() ? b : a;
  EXPECT_EQ(end_of.types, (std::vector<Type>{Type::kExited, Type::kDone}));
  EXPECT_EQ(end_of.done.flags, kDoneOutputLost);
  EXPECT_EQ(end_of.offset, 2 * kHeaderSize + 20'100);  // what is lost has its place in the stream
}

TEST_F(SpoolTest, ADiskThatTakesNothingLosesAllAndWorksAgainLater) {
  Spool spool = open_spool(kMinSegment);
  const rlimit before = limit_files(0);
  auto first = output(100);
  spool.write(first);
  auto started = the_end();
  spool.write(started);
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_EQ(segment(0).types.size() + segment(1).types.size(), 0u);
  auto end = the_end();
  spool.write(end);
  const Segment a = segment(0);
  const Segment b = segment(1);
  const Segment& end_of = a.types.empty() ? b : a;
  EXPECT_EQ(end_of.types, (std::vector<Type>{Type::kExited, Type::kDone}));
  EXPECT_EQ(end_of.done.flags, kDoneOutputLost);
}

}  // namespace
}  // namespace temenos::session
