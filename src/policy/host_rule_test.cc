#include <gtest/gtest.h>

#include <random>

#include "temenos/network.h"

namespace temenos {
namespace {

std::string canonical(std::string_view text) {
  auto rule = HostRule::parse(text);
  return rule ? rule->to_string() : "ERROR " + rule.error().to_string();
}

TEST(HostRule, CanonicalForms) {
  const struct {
    std::string_view in, out;
  } rows[] = {
      {"GitHub.com", "github.com"},
      {"github.com.", "github.com"},
      {"github.com.:443", "github.com:443"},
      {"github.com:*", "github.com:*"},
      {"*.GitHub.com", "*.github.com"},
      {"intranet", "intranet"},
      {"_srv.a-b.example", "_srv.a-b.example"},
      {"r3---sn-x.googlevideo.com", "r3---sn-x.googlevideo.com"},
      {"bücher.example", "xn--bcher-kva.example"},
      {"BÜCHER.example:80", "xn--bcher-kva.example:80"},
      {"bu\xcc\x88"
       "cher.example",
       "xn--bcher-kva.example"},    // decomposed
      {"faß.de", "xn--fa-hia.de"},  // not "fass": non-transitional
      {"example\xe3\x80\x82"
       "com",
       "example.com"},  // ideographic full stop
      {"xn--bcher-kva.example", "xn--bcher-kva.example"},
      {"B\xc3\xbc"
       "cher.example.:22",
       "xn--bcher-kva.example:22"},
      {"1.2.3.4", "1.2.3.4"},
      {"1.2.3.4:22", "1.2.3.4:22"},
      {"1.2.3.4/32", "1.2.3.4"},
      {"8.0.0.0/8:443", "8.0.0.0/8:443"},
      {"[2001:DB8::1]", "[2001:db8::1]"},
      {"[2001:db8:0:0::1]:22", "[2001:db8::1]:22"},
      {"2001:db8::/32", "2001:db8::/32"},
      {"[2001:db8::/32]:*", "[2001:db8::/32]:*"},
      {"[::ffff:1.2.3.4]:80", "1.2.3.4:80"},
      {"private:10.0.0.0/8", "private:10.0.0.0/8"},
      {"private:db.corp:5432", "private:db.corp:5432"},
      {"private:0.0.0.0/0:*", "private:0.0.0.0/0:*"},
      {"127.0.0.1:8080", "127.0.0.1:8080"},
      {"@NPM", "@npm"},
  };
  for (const auto& row : rows) {
    EXPECT_EQ(canonical(row.in), row.out);
    EXPECT_EQ(canonical(row.out), row.out);
  }
}

TEST(HostRule, ReadsTheParts) {
  const auto rule = *HostRule::parse("private:*.corp.example:5432");
  EXPECT_EQ(rule.kind(), HostRule::Kind::kSubdomains);
  EXPECT_EQ(rule.name(), "corp.example");
  EXPECT_EQ(rule.ports(), HostRule::Ports::kOne);
  EXPECT_EQ(rule.port(), 5432);
  EXPECT_TRUE(rule.allows_private());
  EXPECT_TRUE(HostRule::parse("127.0.0.1:1")->is_host_loopback());
  EXPECT_FALSE(HostRule::parse("8.8.8.8:1")->is_host_loopback());
}

// "a.a. ... .a"
std::string labels(int count) {
  std::string name = "a";
  for (int i = 1; i < count; ++i) name += ".a";
  return name;
}

const struct {
  std::string in, error;
} kRefused[] = {
    {"", "it is empty or longer"},
    {std::string(1025, 'a'), "it is empty or longer"},
    {"a b.com", "blanks, control bytes"},
    {std::string("a\0.com", 6), "blanks, control bytes"},
    {"a\x7f.com", "blanks, control bytes"},
    {"a\xff.com", "blanks, control bytes"},
    {"a..com", "a part between dots is empty"},
    {"a.com..", "a part between dots is empty"},
    {".", "the name is empty"},
    {":443", "the name is empty"},
    {std::string(64, 'a') + ".com", "longer than 63"},
    {labels(128), "longer than 253"},
    {"https://a.com", "the port is not a number"},
    {"a.com/path", "not an address"},
    {"user@a.com", "letters, digits"},
    {"-a.com", "letters, digits"},
    {"a-.com", "letters, digits"},
    {"*", "letters, digits"},
    {"*.*.com", "letters, digits"},
    {"a.*.com", "letters, digits"},
    {"*.", "the name is empty"},
    {"a.com:0", "the port is not a number from 1 to 65535"},
    {"a.com:", "the port is not a number"},
    {"a.com:65536", "the port is not a number"},
    {"a.com:0443", "the port is not a number"},
    {"a.com:+1", "the port is not a number"},
    {"a.com:99999999999999999999", "the port is not a number"},
    {"1.2.3", "not an address"},
    {"2130706433", "not an address"},
    {"0x7f.0.0.1", "not an address"},
    {"0x7f000001", "not an address"},
    {"0177.0.0.1", "not an address"},
    {"1.2.3.4.5", "not an address"},
    {"a.1", "not an address"},
    {"*.1.2.3.4", "a name does not end in a number"},
    {"\xef\xbc\x91.2.3.4", "a name does not end in a number"},  // full-width 1
    {"2001:db8::1", "an IPv6 address without brackets: write [2001:db8::1]"},
    {"[2001:db8::1", "the brackets"},
    {"[2001:db8::1]443", "the brackets"},
    {"[1.2.3.4]", "only IPv6 addresses stand in brackets"},
    {"[fe80::1%eth0]", "not an address"},
    {"8.8.8.8/8", "bits beyond the prefix are set"},
    {"10.0.0.5:80", "a private address: write private:10.0.0.5:80"},
    {"fd00::/8", "a private address: write private:fd00::/8"},
    {"private:8.8.8.8", "not a private address"},
    {"127.0.0.1", "loopback is opened one port at a time: write 127.0.0.1:PORT"},
    {"127.0.0.1:*", "loopback is opened"},
    {"127.0.0.2:80", "loopback is opened"},
    {"private:127.0.0.1:80", "loopback is opened"},
    {"[::1]:80", "loopback is opened"},
    {"[::ffff:127.0.0.2]:80", "loopback is opened"},
    {"169.254.169.254", "link-local, metadata"},
    {"private:100.100.100.200", "link-local, metadata"},
    {"[fe80::1]", "link-local, metadata"},
    {"[64:ff9b::7f00:1]", "link-local, metadata"},
    {"localhost:80", "a name never opens loopback"},
    {"*.localhost", "a name never opens loopback"},
    {"host.temenos.internal:80", "a name never opens loopback"},
    {"private:443", "not an address"},
    {"@", "a preset is @ and a short word"},
    {"@npm:443", "a preset is @ and a short word"},
    {"private:@npm", "presets name public hosts only"},
    {"xn--a.com", "not a valid international name"},
    {"xn--\xc3\xa9.com", "not a valid international name"},
    {"a\xe2\x81\x84"
     "b.com",
     "not a valid international name"},  // fraction slash
    {"a\xef\xbc\x8f"
     "b.com",
     "letters, digits"},  // full-width slash, which is mapped to /
    {"private", "is the word before a rule"},
    {"\xc2\xadprivate:443", "is the word before a rule"},  // soft hyphen, which is dropped
};

TEST(HostRule, RefusesWithReasonAndRemedy) {
  for (const auto& row : kRefused) {
    const auto rule = HostRule::parse(row.in);
    ASSERT_FALSE(rule) << row.in;
    EXPECT_EQ(rule.error().code, Code::kInvalidArgument);
    EXPECT_NE(rule.error().to_string().find(row.error), std::string::npos)
        << row.in << "\n"
        << rule.error().to_string();
    EXPECT_FALSE(rule.error().hint.empty()) << row.in;
  }
}

TEST(HostRule, CoversOnlyWhatIsNarrower) {
  const struct {
    std::string_view wide, narrow;
    bool covers;
  } rows[] = {
      {"a.com", "a.com", true},
      {"a.com", "b.com", false},
      {"a.com", "a.com:443", false},  // any protocol on 443 is more than TLS of that name
      {"a.com:443", "a.com", false},
      {"a.com:*", "a.com", true},
      {"a.com:*", "a.com:22", true},
      {"a.com:22", "a.com:*", false},
      {"a.com:22", "a.com:23", false},
      {"*.a.com", "x.a.com", true},
      {"*.a.com", "*.x.a.com", true},
      {"*.a.com", "*.a.com", true},
      {"*.a.com", "a.com", false},
      {"*.a.com", "xa.com", false},
      {"x.a.com", "*.a.com", false},
      {"a.com", "private:a.com", false},
      {"private:a.com", "a.com", true},
      {"8.0.0.0/8", "8.8.8.8", true},
      {"8.0.0.0/8:22", "8.8.0.0/16:22", true},
      {"8.8.0.0/16", "8.0.0.0/8", false},
      {"::/0", "1.2.3.4", false},
      {"0.0.0.0/0:*", "a.com", false},
      {"0.0.0.0/0:*", "127.0.0.1:80", false},
      {"private:0.0.0.0/0:*", "private:10.1.1.1:22", true},
      {"0.0.0.0/0:*", "private:10.1.1.1:22", false},
      {"127.0.0.1:80", "127.0.0.1:80", true},
      {"@npm", "@npm", true},
      {"@npm", "@pypi", false},
      {"@npm", "registry.npmjs.org", false},
  };
  for (const auto& row : rows) {
    EXPECT_EQ(HostRule::parse(row.wide)->covers(*HostRule::parse(row.narrow)), row.covers)
        << row.wide << " / " << row.narrow;
  }
}

// Pieces of valid and invalid entries, put together at random: whatever parses is stable.
TEST(HostRule, CanonicalFormIsAFixedPoint) {
  const std::vector<std::string> pieces = {"a",
                                           "Example",
                                           ".",
                                           "com",
                                           "*.",
                                           "*",
                                           ":",
                                           "443",
                                           "[",
                                           "]",
                                           "::",
                                           "1",
                                           "10.0.0.0",
                                           "/8",
                                           "private:",
                                           "@",
                                           "npm",
                                           "xn--bcher-kva",
                                           "ü",
                                           "ß",
                                           "-",
                                           "_",
                                           "ffff:",
                                           "1.2.3.4",
                                           "\xe3\x80\x82",
                                           "2001:db8::",
                                           "0x",
                                           "256",
                                           "٣",
                                           "\xc2\xad"};
  std::mt19937 random(20261129);
  int accepted = 0;
  for (int i = 0; i < 60000; ++i) {
    std::string text;
    for (auto n = 1 + random() % 6; n > 0; --n) text += pieces[random() % pieces.size()];
    const auto rule = HostRule::parse(text);
    if (!rule) continue;
    ++accepted;
    const auto again = HostRule::parse(rule->to_string());
    ASSERT_TRUE(again) << text << " -> " << rule->to_string();
    ASSERT_EQ(*again, *rule) << text;
    ASSERT_TRUE(rule->covers(*again)) << text;
  }
  EXPECT_GT(accepted, 1000);
}

}  // namespace
}  // namespace temenos
