#include "egress/judge.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "codec/address.h"

namespace temenos::egress {
namespace {

Judge judge_of(std::initializer_list<const char*> entries) {
  std::vector<HostRule> rules;
  for (const char* entry : entries) {
    const auto rule = HostRule::parse(entry);
    EXPECT_TRUE(rule) << entry;
    rules.push_back(*rule);
  }
  return Judge::of(rules);
}

// "tls RULE", "http RULE", "any RULE", with " private" and " loopback"; or the reason.
std::string told(const Decision& d) {
  if (!d.allowed) {
    EXPECT_TRUE(d.rule.empty());
    switch (d.why) {
      case Why::kNotAllowed:
        return "not allowed";
      case Why::kPort:
        return "port";
      case Why::kSpecialAddress:
        return "special";
      case Why::kPrivateAddress:
        return "private address";
      default:
        return "?";
    }
  }
  EXPECT_EQ(d.why, Why::kNone);
  std::string out = d.need == Need::kTls ? "tls " : d.need == Need::kHttp ? "http " : "any ";
  out += d.rule;
  if (d.allows_private) out += " private";
  if (d.host_loopback) out += " loopback";
  return out;
}

std::string at(const Judge& judge, const char* address, std::uint16_t port) {
  return told(judge.judge_address(*parse_address(address), port));
}

TEST(Judge, AnEmptyListReachesNothing) {
  const Judge none;
  EXPECT_EQ(told(none.judge_name("example.com", 443)), "not allowed");
  EXPECT_EQ(at(none, "93.184.216.34", 443), "not allowed");
  EXPECT_FALSE(none.names("example.com"));
  EXPECT_TRUE(none.exact_names().empty());
}

TEST(Judge, NamesAndPorts) {
  const Judge judge =
      judge_of({"example.com", "git.example.com:22", "all.example.org:*", "*.wild.net",
                "*.port.net:5432", "private:lan.example", "intranet"});
  const struct {
    const char* name;
    std::uint16_t port;
    const char* answer;
  } rows[] = {
      {"example.com", 443, "tls example.com"},
      {"example.com", 80, "http example.com"},
      {"example.com", 22, "port"},
      {"example.com", 8443, "port"},
      {"www.example.com", 443, "not allowed"},
      {"git.example.com", 22, "any git.example.com:22"},
      {"git.example.com", 443, "port"},
      {"all.example.org", 1, "any all.example.org:*"},
      {"all.example.org", 443, "any all.example.org:*"},
      {"wild.net", 443, "not allowed"},
      {"a.wild.net", 443, "tls *.wild.net"},
      {"a.b.wild.net", 80, "http *.wild.net"},
      {"evilwild.net", 443, "not allowed"},
      {"wild.net.evil.org", 443, "not allowed"},
      {"example.com.evil.org", 443, "not allowed"},
      {"evilexample.com", 443, "not allowed"},
      {"x.port.net", 5432, "any *.port.net:5432"},
      {"x.port.net", 443, "port"},
      {"lan.example", 443, "tls private:lan.example private"},
      {"intranet", 443, "tls intranet"},
      {"com", 443, "not allowed"},
      {"localhost", 443, "not allowed"},
  };
  for (const auto& row : rows) {
    EXPECT_EQ(told(judge.judge_name(row.name, row.port)), row.answer) << row.name << row.port;
  }
  EXPECT_TRUE(judge.names("git.example.com"));
  EXPECT_TRUE(judge.names("deep.x.port.net"));
  EXPECT_FALSE(judge.names("port.net"));
}

TEST(Judge, TheWidestOfSeveralRulesDecides) {
  const Judge judge = judge_of({"a.net", "a.net:443", "private:b.net", "b.net:*", "*.c.net",
                                "private:x.c.net", "private:d.net:80", "d.net:80"});
  EXPECT_EQ(told(judge.judge_name("a.net", 443)), "any a.net:443");
  EXPECT_EQ(told(judge.judge_name("a.net", 80)), "http a.net");
  EXPECT_EQ(told(judge.judge_name("b.net", 443)), "any b.net:*");
  EXPECT_EQ(told(judge.judge_name("x.c.net", 443)), "tls private:x.c.net private");
  EXPECT_EQ(told(judge.judge_name("d.net", 80)), "any private:d.net:80 private");
}

TEST(Judge, AddressesAreJudgedAsAddresses) {
  const Judge judge = judge_of({"93.184.216.34", "203.0.113.0/24:5432", "[2606:4700::1]:853",
                                "private:10.1.0.0/16:*", "0.0.0.0/0:9", "example.com",
                                "private:[fc00::/7]:70", "private:[fd12::1]:22"});
  EXPECT_EQ(at(judge, "93.184.216.34", 443), "tls 93.184.216.34");
  EXPECT_EQ(at(judge, "93.184.216.34", 80), "http 93.184.216.34");
  EXPECT_EQ(at(judge, "93.184.216.35", 443), "port");  // 0.0.0.0/0:9 names it
  EXPECT_EQ(at(judge, "203.0.113.77", 5432), "any 203.0.113.0/24:5432");
  EXPECT_EQ(at(judge, "2606:4700::1", 853), "any [2606:4700::1]:853");
  EXPECT_EQ(at(judge, "2606:4700::2", 853), "not allowed");
  EXPECT_EQ(at(judge, "::ffff:93.184.216.34", 443), "tls 93.184.216.34");
  EXPECT_EQ(at(judge, "10.1.2.3", 22), "any private:10.1.0.0/16:* private");
  EXPECT_EQ(at(judge, "10.2.2.3", 9), "private address");
  EXPECT_EQ(at(judge, "8.8.8.8", 9), "any 0.0.0.0/0:9");
  EXPECT_EQ(at(judge, "fd12::1", 22), "any private:[fd12::1]:22 private");
}

TEST(Judge, NoRuleOpensLoopbackOrMetadata) {
  const Judge judge = judge_of({"0.0.0.0/0:*", "private:0.0.0.0/1:*", "private:128.0.0.0/1:*",
                                "[::/0]:*", "private:[fc00::/7]:*"});
  for (const char* address : {"127.0.0.1",
                              "127.1.2.3",
                              "::1",
                              "169.254.169.254",
                              "168.63.129.16",
                              "100.100.100.200",
                              "192.0.0.192",
                              "192.80.8.124",
                              "fd00:ec2::254",
                              "fd20:ce::254",
                              "fe80::1",
                              "224.0.0.1",
                              "255.255.255.255",
                              "0.0.0.0",
                              "::",
                              "198.18.1.0",
                              "fd74:656d:656e:6f73::1",
                              "64:ff9b::7f00:1",
                              "64:ff9b::808:808",
                              "2002:7f00:1::",
                              "ff02::1",
                              "::ffff:127.0.0.1"}) {
    EXPECT_EQ(at(judge, address, 80), "special") << address;
    EXPECT_EQ(at(judge, address, 443), "special") << address;
  }
  EXPECT_EQ(at(judge, "192.168.1.1", 80), "any private:128.0.0.0/1:* private");
}

TEST(Judge, OnePortOfTheHostsLoopback) {
  const Judge judge = judge_of({"127.0.0.1:8080", "*.internal", "*.temenos.internal:*"});
  EXPECT_EQ(told(judge.judge_name("host.temenos.internal", 8080)), "any 127.0.0.1:8080 loopback");
  EXPECT_EQ(told(judge.judge_name("host.temenos.internal", 8081)), "port");
  EXPECT_EQ(told(judge.judge_name("host.temenos.internal", 443)), "port");
  EXPECT_EQ(told(judge.judge_name("x.host.temenos.internal", 443)), "any *.temenos.internal:*");
  EXPECT_EQ(at(judge, "127.0.0.1", 8080), "any 127.0.0.1:8080 loopback");
  EXPECT_EQ(at(judge, "127.0.0.1", 8081), "special");
  EXPECT_EQ(at(judge, "127.0.0.2", 8080), "special");
  EXPECT_EQ(at(judge, "::1", 8080), "special");
  EXPECT_TRUE(judge.names("host.temenos.internal"));
  EXPECT_FALSE(judge_of({"*.internal"}).names("host.temenos.internal"));
}

TEST(Judge, PresetsBecomeTheirHosts) {
  const Judge judge = judge_of({"@npm", "@ubuntu"});
  EXPECT_EQ(told(judge.judge_name("registry.npmjs.org", 443)), "tls @npm (registry.npmjs.org)");
  EXPECT_EQ(told(judge.judge_name("de.archive.ubuntu.com", 80)),
            "http @ubuntu (*.archive.ubuntu.com)");
  EXPECT_EQ(told(judge.judge_name("npm", 443)), "not allowed");
  EXPECT_EQ(judge.rules(), 2u);
}

TEST(Judge, ParsesCanonicalLinesOnly) {
  const auto judge = Judge::parse("a.net\n127.0.0.1:80\n@npm\n");
  ASSERT_TRUE(judge);
  EXPECT_EQ(judge->rules(), 3u);
  EXPECT_TRUE(Judge::parse(""));
  for (const char* bad : {"A.net\n", "a.net.\n", "a.net \n", "@nope\n", "127.0.0.1\n",
                          "http://x/\n", "10.0.0.1:80\n", "a.net\n\x01\n"}) {
    EXPECT_FALSE(Judge::parse(bad)) << bad;
  }
  std::string many;
  for (std::size_t i = 0; i < kMaxRules; ++i) many += "h" + std::to_string(i) + ".net\n";
  EXPECT_TRUE(Judge::parse(many));
  EXPECT_FALSE(Judge::parse(many + "one.more\n"));
}

// What a policy takes, dialer takes.
TEST(Judge, AsManyRulesAsThereMayBeEachAsLongAsItCanBe) {
  const std::string label(63, 'a');
  const std::string name = label + "." + label + "." + label + "." + std::string(61, 'a');
  ASSERT_EQ(name.size(), kMaxNameBytes);
  std::string lines;
  std::size_t longest = 0;
  for (std::size_t i = 0; i < kMaxRules; ++i) {
    std::string own = name;
    const std::string number = std::to_string(i);
    own.replace(own.size() - number.size() - 1, number.size(), number);
    // A wildcard's name may be shorter.
    std::string line = "private:*." + own + ":65535";
    if (!HostRule::parse(line)) line = "private:" + own + ":65535";
    longest = std::max(longest, line.size());
    lines += line + "\n";
  }
  EXPECT_LE(longest, kMaxRuleText);
  EXPECT_GT(lines.size(), std::size_t{1} << 20);
  const auto judge = Judge::parse(lines);
  ASSERT_TRUE(judge) << judge.error().to_string();
  EXPECT_EQ(judge->rules(), kMaxRules);
}

}  // namespace
}  // namespace temenos::egress
