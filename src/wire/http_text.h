// The small grammar that reading a head and rewriting it share (RFC 9110, section 5.6).
#pragma once

#include <algorithm>
#include <string_view>

#include "wire/byte_cursor.h"

namespace temenos::wire {

inline constexpr std::string_view kHttpScheme = "http://";

inline std::string_view as_text(Bytes bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}
inline bool is_alnum(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}
inline bool is_token_byte(char c) {
  return is_alnum(c) ||
         (c != '\0' && std::string_view("!#$%&'*+-.^_`|~").find(c) != std::string_view::npos);
}
inline bool is_token(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), is_token_byte);
}
inline bool is_blank(char c) { return c == ' ' || c == '\t'; }
inline std::string_view trim(std::string_view text) {
  while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
  return text;
}
inline bool equal_ignoring_case(std::string_view text, std::string_view lower) {
  return std::equal(text.begin(), text.end(), lower.begin(), lower.end(), [](char a, char b) {
    return (a >= 'A' && a <= 'Z' ? static_cast<char>(a - 'A' + 'a') : a) == b;
  });
}
// Calls `take` with each element of a list with commas that is not empty, until it says false.
template <typename Take>
bool for_each_element(std::string_view list, Take take) {
  while (true) {
    const std::size_t comma = list.find(',');
    const std::string_view element = trim(list.substr(0, comma));
    if (!element.empty() && !take(element)) return false;
    if (comma == list.npos) return true;
    list.remove_prefix(comma + 1);
  }
}
// Of "http://AUTHORITY/path": the end of the authority.
inline std::size_t authority_end(std::string_view target) {
  return std::min(target.find_first_of("/?", kHttpScheme.size()), target.size());
}

}  // namespace temenos::wire
