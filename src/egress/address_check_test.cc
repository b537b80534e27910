#include "egress/address_check.h"

#include <gtest/gtest.h>

#include <cerrno>

#include "codec/address.h"

namespace temenos::egress {
namespace {

AddressBlock parsed(const char* text) { return *parse_address(text); }

Route foreign(const AddressBlock&) { return {}; }

Why why(const char* address, bool allows_private = false, const RouteProbe& probe = foreign) {
  return check_address(parsed(address), allows_private, probe).why;
}

TEST(AddressCheck, Classes) {
  EXPECT_EQ(why("93.184.216.34"), Why::kNone);
  EXPECT_EQ(why("2606:4700::1"), Why::kNone);
  for (const char* address : {"10.0.0.1", "172.16.0.1", "192.168.1.1", "100.64.0.1", "fd12::1"}) {
    EXPECT_EQ(why(address), Why::kPrivateAddress) << address;
    EXPECT_EQ(why(address, true), Why::kNone) << address;
  }
  for (const char* address : {"127.0.0.1", "::1", "169.254.169.254", "168.63.129.16",
                              "100.100.100.200", "fd00:ec2::254", "fe80::a9fe:a9fe", "198.18.1.0",
                              "fd74:656d:656e:6f73::1:0:0", "224.0.0.1", "::ffff:127.0.0.1"}) {
    EXPECT_EQ(why(address), Why::kSpecialAddress) << address;
    EXPECT_EQ(why(address, true), Why::kSpecialAddress) << address;
  }
}

TEST(AddressCheck, NatIsWhatItLeadsTo) {
  EXPECT_EQ(why("64:ff9b::5db8:d822"), Why::kNone);  // 93.184.216.34
  EXPECT_EQ(why("64:ff9b::a00:1"), Why::kPrivateAddress);
  EXPECT_EQ(why("64:ff9b::a00:1", true), Why::kNone);
  EXPECT_EQ(why("64:ff9b::7f00:1", true), Why::kSpecialAddress);
  EXPECT_EQ(why("64:ff9b::a9fe:a9fe", true), Why::kSpecialAddress);
  EXPECT_EQ(why("64:ff9b:1::7f00:1", true), Why::kSpecialAddress);
  const auto own = [](const AddressBlock& address) {
    return Route{.own = address == parsed("93.184.216.34")};
  };
  EXPECT_EQ(why("64:ff9b::5db8:d822", false, own), Why::kHostAddress);
}

// 2001:db8:64::/96 is the host's own, fdaa:64::/96 one that a name server would have liked.
TEST(AddressCheck, APrefixThatWasLearnedOpensNothing) {
  const AddressBlock prefixes[] = {*parse_block("2001:db8:64::/96").block,
                                   *parse_block("fdaa:64::/96").block,
                                   *parse_block("fe80::/96").block};
  const auto why = [&](const char* address, bool allows_private = false,
                       const RouteProbe& probe = foreign) {
    return check_address(parsed(address), allows_private, probe, prefixes).why;
  };
  EXPECT_EQ(why("2001:db8:64::5db8:d822"), Why::kNone);
  EXPECT_EQ(why("2001:db8:64::a00:1"), Why::kPrivateAddress);
  EXPECT_EQ(why("2001:db8:64::a00:1", true), Why::kNone);
  EXPECT_EQ(why("2001:db8:64::a9fe:a9fe", true), Why::kSpecialAddress);
  EXPECT_EQ(why("2001:db8:64::7f00:1", true), Why::kSpecialAddress);
  EXPECT_EQ(why("2001:db8:65::7f00:1"), Why::kNone);
  EXPECT_EQ(why("fdaa:64::5db8:d822"), Why::kPrivateAddress);
  EXPECT_EQ(why("fe80::5db8:d822", true), Why::kSpecialAddress);
  const auto own = [](const AddressBlock& address) {
    return Route{.own = address == parsed("93.184.216.34")};
  };
  EXPECT_EQ(why("2001:db8:64::5db8:d822", false, own), Why::kHostAddress);
}

TEST(AddressCheck, RoutesDecide) {
  const auto own = [](const AddressBlock&) { return Route{.own = true}; };
  EXPECT_EQ(why("93.184.216.34", true, own), Why::kHostAddress);
  EXPECT_EQ(why("192.168.1.1", true, own), Why::kHostAddress);
  const auto none = [](const AddressBlock&) { return Route{.sys_errno = ENETUNREACH}; };
  const auto verdict = check_address(parsed("93.184.216.34"), false, none);
  EXPECT_EQ(verdict.why, Why::kUnreachable);
  EXPECT_EQ(verdict.sys_errno, ENETUNREACH);
}

TEST(AddressCheck, TheProbeKnowsTheHostsOwn) {
  auto routes = HostRoutes::open();
  ASSERT_TRUE(routes);
  EXPECT_TRUE(routes->ask(parsed("127.0.0.1")).own);
  // Goes from 127.0.0.1.
  EXPECT_TRUE(routes->ask(parsed("127.0.0.2")).own);
  const Route other = routes->ask(parsed("192.0.2.1"));
  EXPECT_FALSE(other.own);
}

}  // namespace
}  // namespace temenos::egress
