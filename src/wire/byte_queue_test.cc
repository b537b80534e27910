#include "wire/byte_queue.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace temenos {
namespace {

std::vector<std::uint8_t> drain(ByteQueue& queue, std::size_t step) {
  std::vector<std::uint8_t> out;
  while (!queue.empty()) {
    iovec parts[3];
    const std::size_t count = queue.peek(parts);
    std::size_t left = step;
    for (std::size_t i = 0; i < count && left > 0; ++i) {
      const std::size_t take = std::min(left, parts[i].iov_len);
      const auto* from = static_cast<const std::uint8_t*>(parts[i].iov_base);
      out.insert(out.end(), from, from + take);
      left -= take;
    }
    queue.consume(step - left);
  }
  return out;
}

TEST(ByteQueue, GivesBackWhatWentInHoweverItIsCut) {
  std::mt19937 random(7);
  ByteQueue queue;
  std::vector<std::uint8_t> sent;
  std::vector<std::uint8_t> got;
  for (int round = 0; round < 400; ++round) {
    std::vector<std::uint8_t> piece(random() % 40000);
    for (auto& byte : piece) byte = static_cast<std::uint8_t>(random());
    if (round % 2 == 0) {
      queue.append(piece);
    } else if (!piece.empty()) {
      auto room = queue.prepare(1, piece.size());
      ASSERT_LE(room.size(), piece.size());
      piece.resize(room.size());
      std::copy(piece.begin(), piece.end(), room.begin());
      queue.commit(piece.size());
    }
    sent.insert(sent.end(), piece.begin(), piece.end());
    if (round % 5 == 0) {
      const auto out = drain(queue, 1 + random() % 70000);
      got.insert(got.end(), out.begin(), out.end());
    }
  }
  const auto out = drain(queue, 999);
  got.insert(got.end(), out.begin(), out.end());
  EXPECT_EQ(got, sent);
  EXPECT_EQ(queue.size(), 0u);
}

TEST(ByteQueue, PrepareGivesAtLeastWhatWasAsked) {
  ByteQueue queue;
  const std::vector<std::uint8_t> almost(16 * 1024 - 10);
  queue.append(almost);
  EXPECT_GE(queue.prepare(100, 65536).size(), 100u);
  queue.commit(0);
  iovec parts[4];
  EXPECT_EQ(queue.peek(parts), 1u);  // an empty chunk is not an iovec
}

}  // namespace
}  // namespace temenos
