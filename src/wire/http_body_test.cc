#include "wire/http_body.h"

#include <gtest/gtest.h>

#include <string>

namespace temenos::wire {
namespace {

using namespace std::string_literals;

Bytes bytes(std::string_view text) {
  return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}

HttpHead length(std::uint64_t size) { return {.body = HttpBody::kLength, .content_length = size}; }
const HttpHead kChunks = {.body = HttpBody::kChunked};

// "done N", "more N" or "REASON N", N the bytes taken; in pieces of every size it must be the same.
std::string follow(const HttpHead& head, const std::string& text) {
  std::string result;
  for (std::size_t piece = text.size() + 1; piece > 0; --piece) {
    HttpBodyReader reader(head);
    std::size_t at = 0;
    HttpBodyReader::Step step = reader.feed({});
    while (at < text.size() && step.progress == Progress::kNeedMore) {
      const Bytes next = bytes(text).subspan(at, std::min(piece, text.size() - at));
      step = reader.feed(next);
      at += step.taken;
      if (step.progress == Progress::kNeedMore) EXPECT_EQ(step.taken, next.size());
    }
    std::string said = "more";
    if (step.progress == Progress::kGood) said = "done";
    if (step.progress == Progress::kMalformed) said = reader.reason();
    EXPECT_EQ(reader.is_done(), step.progress == Progress::kGood);
    if (said != "more") EXPECT_EQ(reader.feed(bytes("0")).taken, 0u) << text;
    said += " " + std::to_string(at);
    if (result.empty()) result = said;
    EXPECT_EQ(said, result) << text << " in pieces of " << piece;
  }
  return result;
}

TEST(HttpBody, OfALength) {
  EXPECT_EQ(follow({}, "next"), "done 0");
  EXPECT_EQ(follow(length(0), "next"), "done 0");
  EXPECT_EQ(follow(length(3), "abcnext"), "done 3");
  EXPECT_EQ(follow(length(3), "abc"), "done 3");
  EXPECT_EQ(follow(length(3), "\r\n"), "more 2");
  EXPECT_EQ(follow(length(INT64_MAX), "abc"), "more 3");
}

TEST(HttpBody, OfChunks) {
  EXPECT_EQ(follow(kChunks, "0\r\n\r\nnext"), "done 5");
  EXPECT_EQ(follow(kChunks, "3\r\nabc\r\n0\r\n\r\nGET /"), "done 13");
  EXPECT_EQ(follow(kChunks, "A\r\n0\r\n\r\n0\r\n\r\n\r\n00\r\n\r\n"), "done 21");
  EXPECT_EQ(follow(kChunks, "00000003\r\nabc\r\n0000\r\n\r\n"), "done 23");
  EXPECT_EQ(follow(kChunks, "7fffffff\r\nabc"), "more 13");
  EXPECT_EQ(follow(kChunks, ""), "more 0");
  EXPECT_EQ(follow(kChunks, "3\r\nabc\r\n0\r\n\r"), "more 12");
}

TEST(HttpBody, OfPlainChunksOnly) {
  const std::string_view size = "a size of a chunk that is no hex number";
  const std::string_view large = "a chunk of 2 GB or more";
  const auto bad = [](const std::string& text, std::string_view why, std::size_t at) {
    EXPECT_EQ(follow(kChunks, text), std::string(why) + " " + std::to_string(at)) << text;
  };
  bad("\r\n", size, 0);
  bad("g\r\n", size, 0);
  bad(" 3\r\n", size, 0);
  bad("3 \r\n", size, 1);
  bad("-3\r\n", size, 0);
  bad("+3\r\n", size, 0);
  bad("0x3\r\n", size, 1);
  bad("3\nabc", size, 1);
  bad("3;a=b\r\nabc", "an extension of a chunk", 1);
  bad("80000000\r\n", large, 7);
  bad("000000003\r\n", large, 8);
  bad("fffffffffffffffff\r\n", large, 7);
  bad("3\rabc", "a line of a chunk that does not end in CR LF", 2);
  bad("3\r\nabcd\r\n", "a chunk that is longer than its size", 6);
  bad("3\r\nabc\n0\r\n\r\n", "a chunk that is longer than its size", 6);
  bad("3\r\nabc\r0\r\n", "a chunk that is longer than its size", 7);
  bad("3\r\nabc0\r\n\r\n", "a chunk that is longer than its size", 6);
  bad("3\r\nabc\r\n\r\n", size, 8);
  bad("0\r\nX: y\r\n\r\n", "a trailer", 3);
  bad("0\r\n\rX", "a trailer", 4);
  bad("0\r\n0\r\n\r\n", "a trailer", 3);
}

TEST(HttpBody, SaysWhatNobodyHasToSee) {
  HttpBodyReader whole(length(10));
  EXPECT_EQ(whole.opaque(), 10u);
  whole.skip(4);
  EXPECT_EQ(whole.opaque(), 6u);
  EXPECT_EQ(whole.feed(bytes("ab")).taken, 2u);
  whole.skip(4);
  EXPECT_TRUE(whole.is_done());
  EXPECT_EQ(whole.opaque(), 0u);

  HttpBodyReader chunks(kChunks);
  EXPECT_EQ(chunks.opaque(), 0u);
  chunks.feed(bytes("10\r\n"));
  EXPECT_EQ(chunks.opaque(), 16u);
  chunks.skip(16);
  EXPECT_EQ(chunks.opaque(), 0u);
  EXPECT_EQ(chunks.feed(bytes("\r\n0\r\n\r\nnext")).taken, 7u);
  EXPECT_TRUE(chunks.is_done());
  EXPECT_DEATH(chunks.skip(1), "");
}

}  // namespace
}  // namespace temenos::wire
