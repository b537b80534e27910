#include "egress/nat64.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "codec/address.h"

namespace temenos::egress {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<std::string> texts(const std::vector<AddressBlock>& blocks) {
  std::vector<std::string> out;
  for (const auto& block : blocks) out.push_back(format_block(block));
  return out;
}
std::vector<std::string> prefixes_of(const std::vector<const char*>& answers) {
  std::vector<AddressBlock> all;
  for (const char* text : answers) all.push_back(*parse_address(text));
  return texts(nat64_prefixes(all));
}
std::vector<std::string> inner(const char* address, const std::vector<const char*>& prefixes) {
  std::vector<AddressBlock> all;
  for (const char* text : prefixes) all.push_back(*parse_block(text).block);
  return texts(nat64_inner(*parse_address(address), all));
}

// The table of RFC 6052, section 2.4, with 192.0.2.33.
TEST(Nat64, TheAddressBehindAPrefixOfEachLength) {
  const struct {
    const char* prefix;
    const char* address;
  } rows[] = {{"2001:db8::/32", "2001:db8:c000:221::"},
              {"2001:db8:100::/40", "2001:db8:1c0:2:21::"},
              {"2001:db8:122::/48", "2001:db8:122:c000:2:2100::"},
              {"2001:db8:122:300::/56", "2001:db8:122:3c0:0:221::"},
              {"2001:db8:122:344::/64", "2001:db8:122:344:c0:2:2100::"},
              {"2001:db8:122:344::/96", "2001:db8:122:344::192.0.2.33"}};
  for (const auto& row : rows) {
    EXPECT_THAT(inner(row.address, {row.prefix}), ElementsAre("192.0.2.33")) << row.prefix;
  }
  EXPECT_THAT(inner("64:ff9b::192.0.2.33", {}), ElementsAre("192.0.2.33"));
  EXPECT_THAT(inner("2001:db8:123::1", {"2001:db8:122::/48"}), IsEmpty());
  EXPECT_THAT(inner("192.0.2.33", {"2001:db8::/32"}), IsEmpty());
}

TEST(Nat64, PrefixesAreFoundByTheAddressesOfTheKnownName) {
  EXPECT_THAT(prefixes_of({"192.0.0.170", "192.0.0.171"}), IsEmpty());
  EXPECT_THAT(prefixes_of({"192.0.0.170", "64:ff9b::192.0.0.170", "64:ff9b::192.0.0.171"}),
              ElementsAre("64:ff9b::/96"));
  EXPECT_THAT(prefixes_of({"2001:db8:c000:aa::"}), ElementsAre("2001:db8::/32"));
  EXPECT_THAT(prefixes_of({"2001:db8:1c0:0:ab::"}), ElementsAre("2001:db8:100::/40"));
  EXPECT_THAT(prefixes_of({"2001:db8:122:c000:0:ab00::"}), ElementsAre("2001:db8:122::/48"));
  EXPECT_THAT(prefixes_of({"2001:db8:122:3c0:0:aa::"}), ElementsAre("2001:db8:122:300::/56"));
  EXPECT_THAT(prefixes_of({"2001:db8:122:344:c0:0:aa00::", "2001:db8:122:344::192.0.0.171"}),
              ElementsAre("2001:db8:122:344::/64", "2001:db8:122:344::/96"));
  // What holds the address twice tells two prefixes: each is one that an address must pass.
  EXPECT_THAT(prefixes_of({"2001:db8:c000:aa::192.0.0.170"}),
              ElementsAre("2001:db8::/32", "2001:db8:c000:aa::/96"));
  EXPECT_THAT(prefixes_of({"2001:db8::1", "::1"}), IsEmpty());
}

}  // namespace
}  // namespace temenos::egress
