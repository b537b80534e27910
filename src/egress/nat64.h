// NAT64: an IPv6 address in a prefix of the host's network leads to the IPv4 address that is
// written in it (RFC 6052). The well-known prefix is 64:ff9b::/96; any other is learned as RFC 7050
// says, from the host's own resolver, of which a name with known IPv4 addresses is asked.
//
// What it trusts: nothing. Whatever prefixes are "found", they only add what an address must not
// be.
//
// Thread-safety: pure functions.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "temenos/network.h"

namespace temenos::egress {

// Has IPv4 addresses only: where it has others, a resolver made them (DNS64).
inline constexpr std::string_view kNat64Name = "ipv4only.arpa";

bool is_well_known_nat64(const AddressBlock& address);
// The prefixes that the addresses of kNat64Name tell, each once.
std::vector<AddressBlock> nat64_prefixes(std::span<const AddressBlock> answers);
// The IPv4 addresses in `address`, by the well-known prefix and by each of `prefixes` that it is
// in.
std::vector<AddressBlock> nat64_inner(const AddressBlock& address,
                                      std::span<const AddressBlock> prefixes);

}  // namespace temenos::egress
