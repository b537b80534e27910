// The host that a TLS hello, an HTTP head, a DNS question or a SOCKS request names, in the one form
// in which names are compared. The rules of an allowlist have the same form (temenos/network.h),
// and what a name is made of is said here, for both.
//
// Nothing is repaired: a trailing dot, unicode, a number that some resolver could take for an
// address are refused, and not guessed at. Upper case alone is made lower.
//
// Thread-safety: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "temenos/network.h"

namespace temenos::wire {

inline constexpr std::size_t kMaxHostName = 253;  // RFC 1035, without the last dot

enum class NameDefect : std::uint8_t {
  kNone,
  kEmpty,
  kTooLong,     // more than kMaxHostName
  kLabelSize,   // a part between dots is empty or longer than 63 bytes
  kCharacters,  // not a-z, 0-9, - and _, or a - at the end of a part
  kNumber,      // its last part is a number
};
// What keeps `name` from being a host's name in canonical form.
NameDefect name_defect(std::string_view name);
// The name in canonical form; nullopt for what is none.
std::optional<std::string> canonical_name(std::string_view text);
// What some resolver or URL parser could take for an IPv4 address: the last part is a number, in
// decimal, octal or hex. Lower case is expected.
bool ends_in_number(std::string_view name);
// A to Z alone; no locale.
std::string lower_ascii(std::string_view text);

struct Host {
  // A name, or an address as RFC 5952 writes it, without brackets; IPv4-mapped IPv6 as IPv4.
  std::string text;
  std::optional<AddressBlock> address;  // a whole one (prefix 32 or 128)

  bool operator==(const Host&) const = default;
};
// A name or an address; IPv6 without brackets. nullopt for anything else.
std::optional<Host> parse_host(std::string_view bytes);

// "host" or "host:port" as in URLs: IPv6 in brackets, a port from 1 to 65535 without leading zeros.
struct Authority {
  Host host;
  std::optional<std::uint16_t> port;

  bool operator==(const Authority&) const = default;
};
std::optional<Authority> parse_authority(std::string_view bytes);
std::string format_authority(const Host& host, std::optional<std::uint16_t> port);

}  // namespace temenos::wire
