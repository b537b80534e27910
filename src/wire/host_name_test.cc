#include "wire/host_name.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace temenos::wire {
namespace {

std::string host(std::string_view text) {
  const auto parsed = parse_host(text);
  return parsed ? parsed->text : "refused";
}

std::string authority(std::string_view text) {
  const auto parsed = parse_authority(text);
  return parsed ? format_authority(parsed->host, parsed->port) : "refused";
}

TEST(HostName, HasOneForm) {
  EXPECT_EQ(host("GitHub.COM"), "github.com");
  EXPECT_EQ(host("_srv.a-b.example"), "_srv.a-b.example");
  EXPECT_EQ(host("intranet"), "intranet");
  EXPECT_EQ(host("XN--bcher-kva.example"), "xn--bcher-kva.example");
  EXPECT_EQ(host(std::string(63, 'a') + ".b"), std::string(63, 'a') + ".b");
  EXPECT_EQ(host("192.0.2.1"), "192.0.2.1");
  EXPECT_EQ(host("2001:DB8:0:0::1"), "2001:db8::1");
  EXPECT_EQ(host("::ffff:192.0.2.1"), "192.0.2.1");
  EXPECT_FALSE(parse_host("a.example")->address);
  EXPECT_TRUE(parse_host("192.0.2.1")->address->v4);
  EXPECT_FALSE(parse_host("::1")->address->v4);
}

TEST(HostName, IsNotRepaired) {
  const std::string long_name = [] {
    std::string name = "a";
    while (name.size() < 255) name += ".a";
    return name;
  }();
  for (const std::string& text : std::vector<std::string>{"",
                                                          ".",
                                                          "a.",
                                                          "a..b",
                                                          ".a",
                                                          "-a.example",
                                                          "a-.example",
                                                          "a b",
                                                          " a",
                                                          "a ",
                                                          "a/b",
                                                          "a@b",
                                                          "a%b",
                                                          "a*b",
                                                          "*.example",
                                                          "b\xc3\xbc"
                                                          "cher.example",
                                                          "a\xe3\x80\x82"
                                                          "b",
                                                          std::string("a.example\0.b", 12),
                                                          std::string("a.example\0", 10),
                                                          "a.example\r\n",
                                                          "a\x7f",
                                                          "a\xff",
                                                          std::string(64, 'a') + ".b",
                                                          long_name,
                                                          "1.2.3",
                                                          "1",
                                                          "2130706433",
                                                          "0x7f.0.0.1",
                                                          "0x7f000001",
                                                          "0X7F000001",
                                                          "0177.0.0.1",
                                                          "1.2.3.4.",
                                                          "1.2.3.4.5",
                                                          "01.2.3.4",
                                                          "256.1.1.1",
                                                          "a.1",
                                                          "a.0x1",
                                                          "[::1]",
                                                          "::1%lo",
                                                          "fe80::1%25eth0",
                                                          "::g",
                                                          "1::2::3",
                                                          "a:b"}) {
    EXPECT_EQ(host(text), "refused") << text;
  }
}

TEST(HostName, SaysWhatIsWrong) {
  EXPECT_EQ(name_defect("a.example"), NameDefect::kNone);
  EXPECT_EQ(name_defect(""), NameDefect::kEmpty);
  EXPECT_EQ(name_defect(std::string(254, 'a')), NameDefect::kTooLong);
  EXPECT_EQ(name_defect("a..b"), NameDefect::kLabelSize);
  EXPECT_EQ(name_defect("a."), NameDefect::kLabelSize);
  EXPECT_EQ(name_defect("A.example"), NameDefect::kCharacters);
  EXPECT_EQ(name_defect("a.-b"), NameDefect::kCharacters);
  EXPECT_EQ(name_defect("1.2.3.4"), NameDefect::kNumber);
  EXPECT_EQ(name_defect("a.0xff"), NameDefect::kNumber);
}

TEST(HostName, WithAPort) {
  EXPECT_EQ(authority("A.example"), "a.example");
  EXPECT_EQ(authority("A.example:443"), "a.example:443");
  EXPECT_EQ(authority("a.example:65535"), "a.example:65535");
  EXPECT_EQ(authority("192.0.2.1:1"), "192.0.2.1:1");
  EXPECT_EQ(authority("[2001:DB8::1]"), "[2001:db8::1]");
  EXPECT_EQ(authority("[2001:db8::1]:80"), "[2001:db8::1]:80");
  EXPECT_EQ(authority("[::ffff:192.0.2.1]:80"), "192.0.2.1:80");
  for (const std::string_view text : {"",      ":",           ":80",     "a:",
                                      "a:0",   "a:080",       "a:65536", "a:99999999999",
                                      "a:+1",  "a:-1",        "a: 1",    "a:1 ",
                                      "a:1:2", "a.:80",       "::1",     "::1:80",
                                      "[::1",  "[::1]80",     "[::1]:",  "[::1]]:80",
                                      "[a]",   "[192.0.2.1]", "[]",      "[",
                                      "]",     "u@a:80",      "a:80/",   "a:80?"}) {
    EXPECT_EQ(authority(text), "refused") << text;
  }
}

// Pieces of good and of bad names, put together at random: what is taken once stays as it is.
TEST(HostName, CanonicalFormIsAFixedPoint) {
  const std::vector<std::string> pieces = {"a",     "Example", ".", "com",   "-",  "_",
                                           ":",     "443",     "[", "]",     "::", "1",
                                           "0x",    "256",     "@", "xn--a", "ff", "1.2.3.4",
                                           "ffff:", "\xc3",    "%", " "};
  std::mt19937 random(20261130);
  int names = 0;
  int addresses = 0;
  for (int i = 0; i < 60'000; ++i) {
    std::string text;
    for (auto n = 1 + random() % 6; n > 0; --n) text += pieces[random() % pieces.size()];
    if (const auto parsed = parse_host(text)) {
      ++(parsed->address ? addresses : names);
      ASSERT_EQ(parse_host(parsed->text), parsed) << text;
      ASSERT_EQ(parsed->address.has_value(), name_defect(parsed->text) != NameDefect::kNone)
          << text;
    }
    if (const auto parsed = parse_authority(text)) {
      ASSERT_EQ(parse_authority(format_authority(parsed->host, parsed->port)), parsed) << text;
    }
  }
  EXPECT_GT(names, 1000);
  EXPECT_GT(addresses, 100);
}

}  // namespace
}  // namespace temenos::wire
