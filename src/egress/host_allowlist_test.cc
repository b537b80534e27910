#include "temenos/host_allowlist.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace temenos {
namespace {

using ::testing::HasSubstr;

HostAllowlist list(std::vector<std::string> entries) {
  auto parsed = HostAllowlist::parse(entries);
  EXPECT_TRUE(parsed);
  return *parsed;
}

TEST(HostAllowlist, AnswersAsTheEngineDoes) {
  const auto allowed = list({"example.com", "db.example.com:5432", "127.0.0.1:3000", "@pypi"});
  auto answer = *allowed.check("Example.COM.");
  EXPECT_TRUE(answer.allowed);
  EXPECT_EQ(answer.host, "example.com");
  EXPECT_EQ(answer.port, 443);
  EXPECT_EQ(answer.needs, HostAllowlist::Needs::kTls);
  EXPECT_EQ(answer.rule, "example.com");
  EXPECT_EQ(allowed.check("example.com:80")->needs, HostAllowlist::Needs::kHttp);
  EXPECT_EQ(allowed.check("db.example.com:5432")->needs, HostAllowlist::Needs::kAnyProtocol);
  EXPECT_EQ(allowed.check("db.example.com")->why, "port");
  EXPECT_EQ(allowed.check("evil.com")->why, "not_allowed");
  EXPECT_TRUE(allowed.check("host.temenos.internal:3000")->allowed);
  EXPECT_TRUE(allowed.check("127.0.0.1:3000")->allowed);
  EXPECT_EQ(allowed.check("127.0.0.1:3001")->why, "special_address");
  EXPECT_EQ(allowed.check("[::1]:3000")->why, "special_address");
  EXPECT_EQ(allowed.check("198.18.1.0")->why, "unknown_address");
  EXPECT_EQ(allowed.check("pypi.org")->rule, "@pypi (pypi.org)");
  EXPECT_FALSE(HostAllowlist().check("example.com")->allowed);
  EXPECT_EQ(list({"bücher.example"}).check("BÜCHER.example")->host, "xn--bcher-kva.example");
}

TEST(HostAllowlist, WhatIsNoDestinationIsAnErrorWithAHint) {
  const auto allowed = list({"example.com"});
  for (const char* bad : {"", ":", "a.com:", "a.com:0", "a.com:070", "a.com:99999", "a.com:x",
                          "http://a.com", "a b", "[1.2.3.4]:80", "[::1", "0x7f.1", "127.1",
                          "1.2.3.4.5", "*.a.com", "@npm", "2001:db8::1:", "fe80::1%eth0"}) {
    const auto answer = allowed.check(bad);
    ASSERT_FALSE(answer) << bad;
    EXPECT_FALSE(answer.error().hint.empty());
  }
  EXPECT_FALSE(HostAllowlist::parse(std::vector<std::string>{"a.com", "@nope"}));
}

TEST(HostAllowlist, ExplainsAndSaysWhatToDo) {
  const auto allowed = list({"example.com", "private:lan.example"});
  EXPECT_EQ(*allowed.explain("example.com"),
            "example.com:443 is allowed by example.com (TLS whose server name is example.com); "
            "only its public addresses are connected to");
  EXPECT_THAT(*allowed.explain("lan.example:80"), HasSubstr("may resolve to a private address"));
  EXPECT_EQ(*allowed.explain("example.com:22"),
            "example.com:22 is refused (a rule names it, not this port); allow example.com:22");
  EXPECT_THAT(*allowed.explain("10.0.0.1:5432"), HasSubstr("allow private:10.0.0.1:5432"));
  EXPECT_THAT(*allowed.explain("[2001:db8::1]:53"), HasSubstr("allow [2001:db8::1]:53"));
  EXPECT_THAT(*allowed.explain("host.temenos.internal:80"), HasSubstr("allow 127.0.0.1:80"));
  EXPECT_THAT(*allowed.explain("169.254.169.254:80"), HasSubstr("no rule opens this address"));
}

}  // namespace
}  // namespace temenos
