#include "git/answer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "git/index_text.h"

namespace temenos::git {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(Answer, ComesBackAsItWasGiven) {
  const auto config = decode_answer(FileKind::kConfig, answer(FileKind::kConfig, "[a]\nb = ./c\n"));
  ASSERT_TRUE(config);
  EXPECT_TRUE(config->complete);
  EXPECT_THAT(config->strings, ElementsAre("a.b", "./c"));
  const auto bad = answer(FileKind::kIndexSha256, index_text(2, {{".git/x"}}, HashSize::kSha256));
  EXPECT_THAT(decode_answer(FileKind::kIndexSha256, bad)->strings, ElementsAre(".git/x"));
  EXPECT_THAT(
      decode_answer(FileKind::kIndexSha1, answer(FileKind::kIndexSha1, index_text(2, {})))->strings,
      IsEmpty());
  const auto error = decode_answer(FileKind::kIndexSha1, answer(FileKind::kIndexSha1, "x"));
  ASSERT_FALSE(error);
  EXPECT_THAT(error.error().what, ::testing::HasSubstr("no header"));
}

TEST(Answer, TheLargestFitsInADatagram) {
  std::string text = "[a]\n";
  while (text.size() < kMaxConfigBytes) text += "b = ./" + std::to_string(text.size()) + "\n";
  const auto bytes = answer(FileKind::kConfig, text);
  EXPECT_LE(bytes.size(), kMaxAnswer);
  EXPECT_FALSE(decode_answer(FileKind::kConfig, bytes)->complete);
}

TEST(Answer, OfAnExploitedReaderIsRefusedOrBounded) {
  for (const std::string& bytes :
       {std::string(), std::string("x"), std::string("w\0", 2), std::string("wunended"),
        std::string("wkey\0", 5), std::string(kMaxAnswer + 1, 'w')}) {
    EXPECT_FALSE(decode_answer(FileKind::kConfig, bytes)) << bytes.size();
  }
  EXPECT_FALSE(decode_answer(FileKind::kIndexSha1, std::string("wa\0b\0", 5)));
  const auto error = decode_answer(FileKind::kConfig, "f\x1b[31mred");
  EXPECT_EQ(error.error().what, "\\x1b[31mred");
}

TEST(Question, ComesBackAsItWasAsked) {
  const auto question = decode_question(encode({FileKind::kIndexSha1, 1ull << 40}));
  ASSERT_TRUE(question);
  EXPECT_EQ(question->kind, FileKind::kIndexSha1);
  EXPECT_EQ(question->size, 1ull << 40);
  EXPECT_FALSE(decode_question(""));
  EXPECT_FALSE(decode_question("\x07" + std::string(8, '\0')));
}

}  // namespace
}  // namespace temenos::git
