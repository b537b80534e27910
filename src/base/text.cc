#include "base/text.h"

#include <sys/random.h>

#include <cstdlib>

namespace temenos {
namespace {

constexpr char kHex[] = "0123456789abcdef";

// Length of the well-formed UTF-8 sequence at the start of `s`, 0 when there is none (RFC 3629,
// table 3-7 of the Unicode standard).
std::size_t utf8_length(std::string_view s) {
  auto byte = [&s](std::size_t i) { return i < s.size() ? static_cast<unsigned char>(s[i]) : 0u; };
  auto tail = [&byte](std::size_t i) { return (byte(i) & 0xc0u) == 0x80u; };
  const unsigned b = byte(0);
  if (b < 0x80) return s.empty() ? 0 : 1;
  if (b >= 0xc2 && b <= 0xdf) return tail(1) ? 2 : 0;
  if (b >= 0xe0 && b <= 0xef) {
    const unsigned low = b == 0xe0 ? 0xa0 : 0x80;
    const unsigned high = b == 0xed ? 0x9f : 0xbf;
    return byte(1) >= low && byte(1) <= high && tail(2) ? 3 : 0;
  }
  if (b >= 0xf0 && b <= 0xf4) {
    const unsigned low = b == 0xf0 ? 0x90 : 0x80;
    const unsigned high = b == 0xf4 ? 0x8f : 0xbf;
    return byte(1) >= low && byte(1) <= high && tail(2) && tail(3) ? 4 : 0;
  }
  return 0;
}

}  // namespace

std::string escape(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size());
  while (!bytes.empty()) {
    const auto c = static_cast<unsigned char>(bytes[0]);
    const std::size_t length = utf8_length(bytes);
    // U+0080 to U+009F are control characters too (C2 80 to C2 9F), and U+202A to U+202E, U+2066 to
    // U+2069 reorder what a person reads.
    const bool c1 = length == 2 && c == 0xc2 && static_cast<unsigned char>(bytes[1]) < 0xa0;
    const bool bidi = length == 3 && c == 0xe2 &&
                      ((bytes[1] == '\x80' && bytes[2] >= '\xaa' && bytes[2] <= '\xae') ||
                       (bytes[1] == '\x81' && bytes[2] >= '\xa6' && bytes[2] <= '\xa9'));
    if (length == 0 || c < 0x20 || c == 0x7f || c == '\\' || c1 || bidi) {
      if (c == '\n') {
        out += "\\n";
      } else if (c == '\t') {
        out += "\\t";
      } else if (c == '\\') {
        out += "\\\\";
      } else {
        out += "\\x";
        out += kHex[c >> 4];
        out += kHex[c & 15];
      }
      bytes.remove_prefix(1);
      continue;
    }
    out += bytes.substr(0, length);
    bytes.remove_prefix(length);
  }
  return out;
}

bool is_valid_utf8(std::string_view bytes) {
  while (!bytes.empty()) {
    const std::size_t length = utf8_length(bytes);
    if (length == 0) return false;
    bytes.remove_prefix(length);
  }
  return true;
}

std::string base64_encode(std::string_view bytes) {
  static constexpr char kAlphabet[] =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    const std::size_t left = bytes.size() - i;
    auto at = [&](std::size_t k) {
      return k < left ? static_cast<uint32_t>(static_cast<unsigned char>(bytes[i + k])) : 0u;
    };
    const uint32_t group = at(0) << 16 | at(1) << 8 | at(2);
    out += kAlphabet[group >> 18];
    out += kAlphabet[group >> 12 & 63];
    out += left > 1 ? kAlphabet[group >> 6 & 63] : '=';
    out += left > 2 ? kAlphabet[group & 63] : '=';
  }
  return out;
}

std::string hex_encode(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size() * 2);
  for (const char c : bytes) {
    out += kHex[static_cast<unsigned char>(c) >> 4];
    out += kHex[static_cast<unsigned char>(c) & 15];
  }
  return out;
}

std::optional<std::string> hex_decode(std::string_view hex) {
  if (hex.size() % 2 != 0) return std::nullopt;
  auto digit = [](char c) {
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
  };
  std::string out;
  out.reserve(hex.size() / 2);
  for (std::size_t i = 0; i < hex.size(); i += 2) {
    const int high = digit(hex[i]);
    const int low = digit(hex[i + 1]);
    if (high < 0 || low < 0) return std::nullopt;
    out += static_cast<char>(high << 4 | low);
  }
  return out;
}

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> pieces;
  for (;;) {
    const auto at = text.find(separator);
    pieces.emplace_back(text.substr(0, at));
    if (at == std::string_view::npos) return pieces;
    text.remove_prefix(at + 1);
  }
}

bool equal_in_constant_time(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  // Volatile: it must not be found out early that the rest no longer matters.
  volatile unsigned difference = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference = difference | (static_cast<unsigned char>(a[i]) ^ static_cast<unsigned char>(b[i]));
  }
  return difference == 0;
}

std::string random_hex(std::size_t size) {
  std::string bytes(size, '\0');
  // getrandom(2) never gives less for 256 bytes or fewer once the pool is ready.
  if (size > 256 || getrandom(bytes.data(), size, 0) != static_cast<ssize_t>(size)) abort();
  return hex_encode(bytes);
}

}  // namespace temenos
