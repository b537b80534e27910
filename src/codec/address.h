// IP addresses and blocks as text, strictly, and which of them are special. No look-ups.
//
// Thread-safety: pure functions.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "temenos/network.h"

namespace temenos {

// Four decimal numbers without leading zeros; or RFC 4291 text without a zone. IPv4-mapped IPv6
// comes back as IPv4.
std::optional<AddressBlock> parse_address(std::string_view text);
// "ADDRESS/PREFIX"; bits beyond the prefix must be zero (bad_host_bits tells them).
struct BlockText {
  std::optional<AddressBlock> block;
  bool bad_host_bits = false;
};
BlockText parse_block(std::string_view text);
// RFC 5952; a whole address has no prefix.
std::string format_block(const AddressBlock& block);

enum class AddressClass {
  kPublic,
  kPrivate,  // RFC 1918, shared address space, unique local
  kLoopback,
  kSpecial,  // link-local, metadata services, multicast, tunnels, temenos' own: never reached
};
// The class that all of the block has; a block that spans several is kPublic.
AddressClass classify(const AddressBlock& block);
// Whether a whole private range lies in the block.
bool holds_private(const AddressBlock& block);

}  // namespace temenos
