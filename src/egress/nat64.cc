#include "egress/nat64.h"

#include <algorithm>

#include "codec/address.h"

namespace temenos::egress {
namespace {

constexpr int kLengths[] = {32, 40, 48, 56, 64, 96};  // RFC 6052, section 2.2

// What stands behind a prefix of so many bits; the ninth byte is never part of it.
AddressBlock behind(const AddressBlock& address, int length) {
  AddressBlock out{.v4 = true, .prefix = 32};
  auto at = static_cast<std::size_t>(length / 8);
  for (std::size_t i = 0; i < 4; ++i, ++at) {
    if (at == 8) ++at;
    out.bytes[i] = address.bytes[at];
  }
  return out;
}

const AddressBlock& well_known() {
  static const AddressBlock prefix = *parse_block("64:ff9b::/96").block;
  return prefix;
}

}  // namespace

bool is_well_known_nat64(const AddressBlock& address) { return well_known().contains(address); }

std::vector<AddressBlock> nat64_prefixes(std::span<const AddressBlock> answers) {
  static const AddressBlock known[] = {*parse_address("192.0.0.170"),
                                       *parse_address("192.0.0.171")};
  std::vector<AddressBlock> out;
  for (const AddressBlock& answer : answers) {
    if (answer.v4) continue;
    for (const int length : kLengths) {
      if (std::find(std::begin(known), std::end(known), behind(answer, length)) == std::end(known))
        continue;
      AddressBlock prefix = answer;
      prefix.prefix = length;
      std::fill(prefix.bytes.begin() + length / 8, prefix.bytes.end(), std::uint8_t{0});
      if (std::find(out.begin(), out.end(), prefix) == out.end()) out.push_back(prefix);
    }
  }
  return out;
}

std::vector<AddressBlock> nat64_inner(const AddressBlock& address,
                                      std::span<const AddressBlock> prefixes) {
  std::vector<AddressBlock> out;
  if (address.v4) return out;
  if (is_well_known_nat64(address)) out.push_back(behind(address, 96));
  for (const AddressBlock& prefix : prefixes) {
    if (prefix.contains(address)) out.push_back(behind(address, prefix.prefix));
  }
  return out;
}

}  // namespace temenos::egress
