#include "wire/box_frame.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

namespace temenos::box_wire {
namespace {

std::vector<std::uint8_t> bytes_of(ByteQueue& queue) {
  std::vector<std::uint8_t> out;
  iovec part[1];
  while (queue.peek(part) == 1) {
    const auto* from = static_cast<const std::uint8_t*>(part[0].iov_base);
    out.insert(out.end(), from, from + part[0].iov_len);
    queue.consume(part[0].iov_len);
  }
  return out;
}

void feed(FrameReader& reader, std::span<const std::uint8_t> bytes) {
  auto space = reader.space();
  ASSERT_GE(space.size(), bytes.size());
  std::copy(bytes.begin(), bytes.end(), space.begin());
  reader.commit(bytes.size());
}

TEST(FrameReader, WholeFramesFromSingleBytes) {
  ByteQueue queue;
  const std::string text = "hello";
  append_message(queue, 21, 0x01020304,
                 {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()});
  append_message(queue, 19, 7, {});
  const auto wire = bytes_of(queue);
  ASSERT_EQ(wire.size(), 2 * kHeaderSize + 5);
  EXPECT_EQ(wire[0], 5);     // little-endian length
  EXPECT_EQ(wire[8], 0x04);  // little-endian id
  FrameReader reader(kMaxFrame);
  std::vector<std::string> seen;
  for (const auto byte : wire) {
    feed(reader, {&byte, 1});
    Frame frame;
    while (reader.peek(frame) == FrameReader::Status::kFrame) {
      seen.push_back(
          std::to_string(frame.header.type) + ":" +
          std::string(reinterpret_cast<const char*>(frame.payload.data()), frame.payload.size()));
      reader.pop();
    }
  }
  EXPECT_EQ(seen, (std::vector<std::string>{"21:hello", "19:"}));
  EXPECT_EQ(reader.buffered(), 0u);
}

TEST(FrameReader, RefusesAnnouncedLengthBeforeAnyPayload) {
  std::uint8_t header[kHeaderSize];
  put_header({kMaxPayload + 1, 21, 0, 1}, header);
  FrameReader reader(kMaxFrame);
  feed(reader, header);
  Frame frame;
  EXPECT_EQ(reader.peek(frame), FrameReader::Status::kBad);
  put_header({0xffffffff, 21, 0, 1}, header);
  FrameReader other(kMaxFrame);
  feed(other, header);
  EXPECT_EQ(other.peek(frame), FrameReader::Status::kBad);
}

TEST(FrameReader, RefusesUnknownFlags) {
  std::uint8_t header[kHeaderSize];
  put_header({0, 21, 2, 1}, header);
  FrameReader reader(kMaxFrame);
  feed(reader, header);
  Frame frame;
  EXPECT_EQ(reader.peek(frame), FrameReader::Status::kBad);
}

TEST(FrameReader, ALargestFrameFitsBehindAPartialOne) {
  ByteQueue queue;
  const std::vector<std::uint8_t> payload(kMaxPayload, 0x5a);
  append_message(queue, 21, 1, payload);
  append_message(queue, 22, 2, payload);
  const auto wire = bytes_of(queue);
  FrameReader reader(kMaxFrame);
  std::size_t at = 0;
  std::size_t frames = 0;
  while (at < wire.size()) {
    const auto space = reader.space();
    ASSERT_FALSE(space.empty());
    const std::size_t count = std::min({space.size(), wire.size() - at, std::size_t{1000}});
    std::memcpy(space.data(), wire.data() + at, count);
    reader.commit(count);
    at += count;
    Frame frame;
    while (reader.peek(frame) == FrameReader::Status::kFrame) {
      EXPECT_EQ(frame.payload.size(), kMaxPayload);
      ++frames;
      reader.pop();
    }
  }
  EXPECT_EQ(frames, 2u);
}

TEST(AppendMessage, SplitsWithMoreAndEndsWithout) {
  ByteQueue queue;
  const std::vector<std::uint8_t> head(10, 1);
  const std::vector<std::uint8_t> rest(2 * kMaxPayload, 2);
  append_message(queue, 16, 9, head, rest);
  const auto wire = bytes_of(queue);
  FrameReader reader(wire.size());
  feed(reader, wire);
  std::vector<std::uint8_t> whole;
  std::vector<int> flags;
  Frame frame;
  while (reader.peek(frame) == FrameReader::Status::kFrame) {
    flags.push_back(frame.header.flags);
    EXPECT_EQ(frame.header.id, 9u);
    whole.insert(whole.end(), frame.payload.begin(), frame.payload.end());
    reader.pop();
  }
  EXPECT_EQ(flags, (std::vector<int>{1, 1, 0}));
  std::vector<std::uint8_t> expected(head);
  expected.insert(expected.end(), rest.begin(), rest.end());
  EXPECT_EQ(whole, expected);
}

}  // namespace
}  // namespace temenos::box_wire
