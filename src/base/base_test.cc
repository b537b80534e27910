#include <gtest/gtest.h>

#include <cerrno>

#include "base/text.h"
#include "base/time.h"
#include "base/try.h"
#include "base/unique_fd.h"

namespace temenos {
namespace {

TEST(Escape, KeepsTextAndNeutralisesControl) {
  EXPECT_EQ(escape("plain ünïcode"), "plain ünïcode");
  EXPECT_EQ(escape("a\nb\tc"), "a\\nb\\tc");
  EXPECT_EQ(escape("\x1b[2J"), "\\x1b[2J");
  EXPECT_EQ(escape("\xff\xfe"), "\\xff\\xfe");
  EXPECT_EQ(escape("\xc2\x9b"), "\\xc2\\x9b");           // CSI as a C1 control
  EXPECT_EQ(escape("\xe2\x80\xae"), "\\xe2\\x80\\xae");  // right-to-left override
  EXPECT_EQ(escape("a\\b"), "a\\\\b");
}

TEST(Utf8, RejectsOverlongSurrogateAndTruncated) {
  EXPECT_TRUE(is_valid_utf8("\xf0\x9f\x99\x82"));
  EXPECT_FALSE(is_valid_utf8("\xc0\xaf"));
  EXPECT_FALSE(is_valid_utf8("\xed\xa0\x80"));
  EXPECT_FALSE(is_valid_utf8("\xe2\x82"));
  EXPECT_FALSE(is_valid_utf8("\xf5\x80\x80\x80"));
}

TEST(Base64, Rfc4648Vectors) {
  EXPECT_EQ(base64_encode(""), "");
  EXPECT_EQ(base64_encode("f"), "Zg==");
  EXPECT_EQ(base64_encode("fo"), "Zm8=");
  EXPECT_EQ(base64_encode("foobar"), "Zm9vYmFy");
}

TEST(Hex, RoundTripsBytesAndRefusesTheRest) {
  const std::string bytes("\x00\xff\n/", 4);
  EXPECT_EQ(hex_decode(hex_encode(bytes)), bytes);
  EXPECT_EQ(hex_decode(""), "");
  EXPECT_FALSE(hex_decode("0"));
  EXPECT_FALSE(hex_decode("0G"));
  EXPECT_FALSE(hex_decode("FF"));
}

Result<int> half(int n) {
  if (n % 2 != 0) return fail(Code::kInvalidArgument, "odd", "give an even number");
  return n / 2;
}
Result<int> quarter(int n) {
  const int once = TRY(half(n));
  return TRY(half(once));
}

TEST(EqualInConstantTime, IsEquality) {
  EXPECT_TRUE(equal_in_constant_time("", ""));
  EXPECT_TRUE(equal_in_constant_time("secret", "secret"));
  for (const std::string_view other : {"", "secre", "secrets", "tecret", "secreu", "SECRET"}) {
    EXPECT_FALSE(equal_in_constant_time("secret", other)) << other;
  }
  EXPECT_FALSE(equal_in_constant_time({"a\0", 2}, {"a\x80", 2}));
}

TEST(Try, ReturnsTheValueOrTheError) {
  EXPECT_EQ(*quarter(8), 2);
  auto bad = quarter(6);
  ASSERT_FALSE(bad);
  EXPECT_EQ(bad.error().code, Code::kInvalidArgument);
}

TEST(Error, OneLineWithContextReasonAndHint) {
  auto error =
      fail_errno(ENOENT, "cannot open /x\ny", "create it").value().with_context("starting");
  EXPECT_EQ(error.to_string(),
            "starting: cannot open /x\\ny: No such file or directory: create it");
  EXPECT_EQ(error.code, Code::kNotFound);
  EXPECT_EQ(exit_code(Code::kUsage), 2);
  EXPECT_EQ(exit_code(Code::kIo), 125);
}

TEST(Time, IsUtcInWholeSeconds) {
  const std::chrono::system_clock::time_point moment{std::chrono::milliseconds(1'790'000'000'999)};
  EXPECT_EQ(utc_text(moment), "2026-09-21T14:13:20Z");
  EXPECT_EQ(utc_now().size(), 20u);
}

}  // namespace
}  // namespace temenos
