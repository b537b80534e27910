// What a box may reach, as data: the network mode and the entries of the allowlist. A HostRule is
// one entry in its one canonical form; a bad entry is an error when it is written. Nothing here
// resolves a name or opens a socket: the egress engine does, and checks every address it gets.
//
// Thread-safety: plain values.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "temenos/error.h"

namespace temenos {

// From the narrowest to the widest; the order is used.
enum class NetworkMode {
  kNone,      // loopback of its own only
  kFiltered,  // only what the allowlist names; an empty list reaches nothing
  kNat,       // every public address
  kHost,      // the host's network, unfiltered (allow::HostNetwork)
};

// An address (prefix 32 or 128) or a CIDR block. The bits beyond the prefix are zero.
struct AddressBlock {
  bool v4 = true;
  int prefix = 32;
  std::array<std::uint8_t, 16> bytes{};  // network order; IPv4 uses the first four

  bool contains(const AddressBlock& inner) const;
  bool operator==(const AddressBlock&) const = default;
};

// One entry of the allowlist:
//   host  host:port  host:*  *.host (below it, not itself)  [v6]
//   [v6]:port  1.2.3.4  10.0.0.0/8:port 2001:db8::/32  @preset       each but the last with
//   `private:` before it, for private addresses
// Canonical form: lower case, no trailing dot, IDNA A-labels, IPv4-mapped IPv6 as IPv4, RFC 5952.
class HostRule {
 public:
  enum class Kind { kName, kSubdomains, kAddress, kPreset };
  enum class Ports {
    kWeb,  // none written: 443 as TLS and 80 as HTTP whose name matches, and nothing else
    kOne,  // any protocol on that port
    kAny,  // any protocol on every port
  };

  // kInvalidArgument with what is wrong and how to write it.
  static Result<HostRule> parse(std::string_view text);

  Kind kind() const { return kind_; }
  // kName: the name; kSubdomains: without "*."; kPreset: without "@"; kAddress: empty.
  const std::string& name() const { return name_; }
  const AddressBlock& block() const { return block_; }  // kAddress only
  Ports ports() const { return ports_; }
  std::uint16_t port() const { return port_; }             // kOne only, else 0
  bool allows_private() const { return allows_private_; }  // names: may resolve to one
  bool is_host_loopback() const;                           // 127.0.0.1:PORT, the host's loopback
  // Every connection that `narrower` allows, this one rule allows as well.
  bool covers(const HostRule& narrower) const;
  // The canonical form; parse() gives an equal rule back.
  std::string to_string() const;

  bool operator==(const HostRule&) const = default;

 private:
  HostRule() = default;
  friend struct HostRuleParser;

  Kind kind_ = Kind::kName;
  Ports ports_ = Ports::kWeb;
  std::uint16_t port_ = 0;
  bool allows_private_ = false;
  std::string name_;
  AddressBlock block_;
};

}  // namespace temenos
