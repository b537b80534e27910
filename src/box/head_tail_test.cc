#include "box/head_tail.h"

#include <gtest/gtest.h>

#include <random>

namespace temenos {
namespace {

TEST(HeadTail, AgreesWithTheWholeStreamHoweverItIsCut) {
  std::mt19937 random(3);
  for (int round = 0; round < 500; ++round) {
    const std::size_t head = random() % 20;
    const std::size_t tail = random() % 20;
    HeadTail keep(head, tail);
    std::string whole;
    for (int piece = 0; piece < 8; ++piece) {
      std::string bytes(random() % 15, '\0');
      for (auto& byte : bytes) byte = static_cast<char>(random());
      keep.add(bytes);
      whole += bytes;
    }
    const std::size_t missing = whole.size() > head + tail ? whole.size() - head - tail : 0;
    EXPECT_EQ(keep.omitted().bytes, missing);
    std::string expected = whole;
    if (missing > 0) expected = whole.substr(0, head) + whole.substr(whole.size() - tail);
    EXPECT_EQ(keep.omitted().at, std::min(head, whole.size()));
    EXPECT_EQ(keep.take(), expected);
  }
}

}  // namespace
}  // namespace temenos
