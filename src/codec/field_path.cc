#include "codec/field_path.h"

#include <algorithm>

namespace temenos {
namespace {

constexpr std::size_t kMaxQuoted = 80;
// Paths grow by nesting, which is bounded; this bounds the product.
constexpr std::size_t kMaxPath = 400;

bool is_word(std::string_view name) {
  return !name.empty() && name.size() <= kMaxQuoted &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                  c == '_' || c == '-';
         });
}

std::string capped(std::string_view parent) {
  return parent.size() <= kMaxPath ? std::string(parent) : "...";
}

}  // namespace

std::string field_path(std::string_view parent, std::string_view name) {
  if (!is_word(name)) return capped(parent) + "[" + in_quotes(name) + "]";
  if (parent.empty()) return std::string(name);
  return capped(parent) + "." + std::string(name);
}

std::string field_path(std::string_view parent, std::size_t index) {
  return capped(parent) + "[" + std::to_string(index) + "]";
}

std::string in_quotes(std::string_view text) {
  if (text.size() <= kMaxQuoted) return "\"" + std::string(text) + "\"";
  std::size_t end = kMaxQuoted;
  while (end > kMaxQuoted - 4 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
  return "\"" + std::string(text.substr(0, end)) + "...\"";
}

}  // namespace temenos
