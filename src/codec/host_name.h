// Host names of the network, as every part of temenos compares them. No look-ups.
//
// Thread-safety: pure functions.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace temenos {

inline constexpr std::size_t kMaxHostName = 253;  // RFC 1035, without the last dot
#ifdef TEMENOS_PLANT_HOST_RULE
inline constexpr std::size_t kMaxHostLabel = 64;
#else
inline constexpr std::size_t kMaxHostLabel = 63;
#endif

// What some resolver or URL parser could take for an IPv4 address: the last label is a number,
// decimal or hexadecimal.
bool ends_in_number(std::string_view name);
// A part between dots: 1 to 63 of a-z 0-9 - _, with no - at its ends.
bool is_host_label(std::string_view label);
// The name in canonical form: lower case, without one last dot. nullopt for what is none: empty or
// too long, other bytes (international names are A-labels by now), or it ends in a number.
std::optional<std::string> canonical_host_name(std::string_view text);

}  // namespace temenos
