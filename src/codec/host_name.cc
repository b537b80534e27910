#include "codec/host_name.h"

#include <algorithm>

namespace temenos {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

}  // namespace

bool ends_in_number(std::string_view name) {
  const std::string_view last = name.substr(name.rfind('.') + 1);
  if (last.starts_with("0x")) {
    return last.find_first_not_of("0123456789abcdef", 2) == last.npos;
  }
  return !last.empty() && std::all_of(last.begin(), last.end(), is_digit);
}

bool is_host_label(std::string_view label) {
  return !label.empty() && label.size() <= kMaxHostLabel && label.front() != '-' &&
         label.back() != '-' && std::all_of(label.begin(), label.end(), [](char c) {
           return is_digit(c) || (c >= 'a' && c <= 'z') || c == '-' || c == '_';
         });
}

std::optional<std::string> canonical_host_name(std::string_view text) {
  if (text.ends_with('.')) text.remove_suffix(1);
  if (text.empty() || text.size() > kMaxHostName) return std::nullopt;
  std::string name(text);
  for (char& c : name) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  for (std::string_view rest = name;;) {
    const std::size_t dot = rest.find('.');
    if (!is_host_label(rest.substr(0, dot))) return std::nullopt;
    if (dot == rest.npos) break;
    rest.remove_prefix(dot + 1);
  }
  if (ends_in_number(name)) return std::nullopt;
  return name;
}

}  // namespace temenos
