#include "codec/address.h"

#include <arpa/inet.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>

namespace temenos {
namespace {

// A decimal number without sign or leading zero, at most `max`.
std::optional<int> parse_decimal(std::string_view text, int max) {
  int value = 0;
  if (text.empty() || (text.size() > 1 && text[0] == '0') || text[0] == '-') return std::nullopt;
  const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (ec != std::errc() || end != text.data() + text.size() || value > max) return std::nullopt;
  return value;
}

std::optional<AddressBlock> parse_v4(std::string_view text) {
  AddressBlock out{.v4 = true, .prefix = 32};
  for (std::size_t i = 0; i < 4; ++i) {
    const std::size_t dot = i < 3 ? text.find('.') : text.size();
    if (dot == text.npos) return std::nullopt;
    const auto byte = parse_decimal(text.substr(0, dot), 255);
    if (!byte) return std::nullopt;
    out.bytes[i] = static_cast<std::uint8_t>(*byte);
    text.remove_prefix(i < 3 ? dot + 1 : dot);
  }
  return out;
}

std::optional<AddressBlock> parse_v6(std::string_view text) {
  if (text.size() >= INET6_ADDRSTRLEN) return std::nullopt;
  if (text.find_first_not_of("0123456789abcdefABCDEF:.") != text.npos) return std::nullopt;
  AddressBlock out{.v4 = false, .prefix = 128};
  if (inet_pton(AF_INET6, std::string(text).c_str(), out.bytes.data()) != 1) return std::nullopt;
  return out;
}

constexpr int kMappedPrefix = 96;
constexpr std::uint8_t kMapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

AddressBlock fold_mapped(AddressBlock block) {
  if (block.v4 || block.prefix < kMappedPrefix) return block;
  if (std::memcmp(block.bytes.data(), kMapped, sizeof kMapped) != 0) return block;
  AddressBlock out{.v4 = true, .prefix = block.prefix - kMappedPrefix};
  std::copy_n(block.bytes.begin() + sizeof kMapped, 4, out.bytes.begin());
  return out;
}

bool bit(const AddressBlock& block, int index) {
  return (block.bytes[static_cast<std::size_t>(index / 8)] >> (7 - index % 8)) & 1;
}

struct ClassRow {
  std::string_view block;
  AddressClass of;
};

// First match wins, so the exceptions stand before the ranges they lie in. IANA special-purpose
// registries (RFC 6890), and the metadata services of the clouds, each with the vendor's page or
// program that says so. Most are 169.254.169.254 or another link-local address (AWS, Google, Azure,
// Oracle, DigitalOcean, IBM, OpenStack, Huawei, Hetzner, Linode, Vultr and others; Tencent
// 169.254.0.23 and 169.254.10.10, Scaleway 169.254.42.42, AWS containers 169.254.170.2 and .23,
// Rancher 169.254.169.250; OpenStack on IPv6 fe80::a9fe:a9fe) and need no line of their own.
constexpr ClassRow kClasses[] = {
    {"127.0.0.0/8", AddressClass::kLoopback},
    {"::1", AddressClass::kLoopback},
    // Alibaba: ECS user guide, "View instance metadata"
    {"100.100.100.200", AddressClass::kSpecial},
    {"fd00:100::100:200", AddressClass::kSpecial},
    // Tencent: CVM, cloud-init's older metadata address
    {"100.88.222.5", AddressClass::kSpecial},
    // Azure: "What is IP address 168.63.129.16?", the wire server, which hands out certificates
    {"168.63.129.16", AddressClass::kSpecial},
    // Equinix Metal (Packet): "metadata.packet.net should always resolve to" this
    {"192.80.8.124", AddressClass::kSpecial},
    // AWS: EC2 user guide, IMDS ::254, time ::123, DNS ::253; EKS Pod Identity ::23
    {"fd00:ec2::/32", AddressClass::kSpecial},
    // Google: Compute Engine, "About VM metadata", IPv6-only instances
    {"fd20:ce::254", AddressClass::kSpecial},
    // Oracle: oci-python-sdk, instance principals' METADATA_URL on IPv6
    {"fd00:c1::a9fe:a9fe", AddressClass::kSpecial},
    // Scaleway: cloud-init, reference of its data source
    {"fd00:42::42", AddressClass::kSpecial},
    // Akamai (Linode): cloud-init, reference of its data source
    {"fd00:a9fe:a9fe::1", AddressClass::kSpecial},
    {"fd74:656d:656e:6f73::/64", AddressClass::kSpecial},  // the boxes' own (egress/plan.h)
    {"0.0.0.0/8", AddressClass::kSpecial},
    {"169.254.0.0/16", AddressClass::kSpecial},  // link-local
    {"192.0.0.0/24", AddressClass::kSpecial},    // protocol assignments; Oracle Classic 192.0.0.192
    {"192.88.99.0/24", AddressClass::kSpecial},  // 6to4 relays, withdrawn
    {"198.18.0.0/15", AddressClass::kSpecial},   // benchmarking; the boxes' synthetic addresses
    {"224.0.0.0/4", AddressClass::kSpecial},
    {"240.0.0.0/4", AddressClass::kSpecial},
    {"::/96", AddressClass::kSpecial},
    {"::ffff:0:0:0/96", AddressClass::kSpecial},  // these five carry an IPv4 address inside
    {"64:ff9b::/96", AddressClass::kSpecial},
    {"64:ff9b:1::/48", AddressClass::kSpecial},
    {"2001::/32", AddressClass::kSpecial},
    {"2002::/16", AddressClass::kSpecial},
    {"100::/64", AddressClass::kSpecial},  // discarded
    {"fe80::/10", AddressClass::kSpecial},
    {"fec0::/10", AddressClass::kSpecial},
    {"ff00::/8", AddressClass::kSpecial},
    {"10.0.0.0/8", AddressClass::kPrivate},
    {"100.64.0.0/10", AddressClass::kPrivate},
    {"172.16.0.0/12", AddressClass::kPrivate},
    {"192.168.0.0/16", AddressClass::kPrivate},
    {"fc00::/7", AddressClass::kPrivate},
};

struct ParsedRow {
  AddressBlock block;
  AddressClass of;
};

const std::array<ParsedRow, std::size(kClasses)>& parsed_classes() {
  static const auto rows = [] {
    std::array<ParsedRow, std::size(kClasses)> out;
    for (std::size_t i = 0; i < out.size(); ++i) {
      const bool whole = kClasses[i].block.find('/') == std::string_view::npos;
      const auto block =
          whole ? parse_address(kClasses[i].block) : parse_block(kClasses[i].block).block;
      if (!block) std::abort();
      out[i] = {*block, kClasses[i].of};
    }
    return out;
  }();
  return rows;
}

}  // namespace

bool AddressBlock::contains(const AddressBlock& inner) const {
  if (v4 != inner.v4 || inner.prefix < prefix) return false;
  for (int i = 0; i < prefix; ++i) {
    if (bit(*this, i) != bit(inner, i)) return false;
  }
  return true;
}

std::optional<AddressBlock> parse_address(std::string_view text) {
  if (text.find(':') == text.npos) return parse_v4(text);
  const auto v6 = parse_v6(text);
  if (!v6) return std::nullopt;
  return fold_mapped(*v6);
}

BlockText parse_block(std::string_view text) {
  const std::size_t slash = text.find('/');
  if (slash == text.npos) return {};
  const std::string_view address = text.substr(0, slash);
  const bool v6 = address.find(':') != address.npos;
  auto block = v6 ? parse_v6(address) : parse_v4(address);
  const auto prefix = parse_decimal(text.substr(slash + 1), v6 ? 128 : 32);
  if (!block || !prefix) return {};
  for (int i = *prefix; i < block->prefix; ++i) {
    if (bit(*block, i)) return {.block = std::nullopt, .bad_host_bits = true};
  }
  block->prefix = *prefix;
  return {.block = fold_mapped(*block)};
}

std::string format_block(const AddressBlock& block) {
  char text[INET6_ADDRSTRLEN] = "";
  inet_ntop(block.v4 ? AF_INET : AF_INET6, block.bytes.data(), text, sizeof text);
  std::string out = text;
  if (block.prefix != (block.v4 ? 32 : 128)) out += "/" + std::to_string(block.prefix);
  return out;
}

AddressClass classify(const AddressBlock& block) {
  for (const ParsedRow& row : parsed_classes()) {
    if (row.block.contains(block)) return row.of;
  }
  return AddressClass::kPublic;
}

bool holds_private(const AddressBlock& block) {
  const auto& rows = parsed_classes();
  return std::any_of(rows.begin(), rows.end(), [&](const ParsedRow& row) {
    return row.of == AddressClass::kPrivate && block.contains(row.block);
  });
}

}  // namespace temenos
