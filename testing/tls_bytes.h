// Hellos of TLS for tests: what a library sends, as far as front looks at it.
#pragma once

#include <string>
#include <string_view>

namespace temenos::testing {

inline std::string number(std::size_t width, std::size_t value) {
  std::string out;
  for (std::size_t i = width; i > 0; --i) out += static_cast<char>(value >> 8 * (i - 1));
  return out;
}
inline std::string sized(std::size_t width, std::string_view bytes) {
  return number(width, bytes.size()) + std::string(bytes);
}

// With `name` as its server name, none if it is empty, and `more` extensions.
inline std::string tls_hello(std::string_view name, std::string_view more = {}) {
  std::string extensions = number(2, 43) + sized(2, sized(1, number(2, 0x0304)));
  if (!name.empty()) extensions += number(2, 0) + sized(2, sized(2, number(1, 0) + sized(2, name)));
  extensions += more;
  const std::string body = number(2, 0x0303) + std::string(32, 'r') +
                           sized(1, std::string(32, 's')) + sized(2, number(2, 0x1301)) +
                           sized(1, number(1, 0)) + sized(2, extensions);
  return number(1, 22) + number(2, 0x0301) + sized(2, number(1, 1) + sized(3, body));
}

// A server's, or its wish for a second hello (HelloRetryRequest, RFC 8446, section 4.1.3).
inline std::string tls_answer(bool again) {
  constexpr char kAgain[] =
      "\xCF\x21\xAD\x74\xE5\x9A\x61\x11\xBE\x1D\x8C\x02\x1E\x65\xB8\x91"
      "\xC2\xA2\x11\x16\x7A\xBB\x8C\x5E\x07\x9E\x09\xE2\xC8\xA8\x33\x9C";
  const std::string body = number(2, 0x0303) +
                           (again ? std::string(kAgain, 32) : std::string(32, 'q')) +
                           sized(1, std::string(32, 's')) + number(2, 0x1301) + number(1, 0) +
                           sized(2, number(2, 43) + sized(2, number(2, 0x0304)));
  return number(1, 22) + number(2, 0x0303) + sized(2, number(1, 2) + sized(3, body));
}
// What stands between the two hellos of a client, for old devices on the way.
inline std::string tls_change_cipher() {
  return number(1, 20) + number(2, 0x0303) + sized(2, "\1");
}

}  // namespace temenos::testing
