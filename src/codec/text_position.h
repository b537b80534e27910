// "line 3 column 7" of a byte offset, both from 1, columns in bytes.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>

namespace temenos {

inline std::string text_position(std::size_t line, std::size_t column) {
  return "line " + std::to_string(line) + " column " + std::to_string(column);
}

inline std::string text_position(std::string_view text, std::size_t offset) {
  const std::string_view before = text.substr(0, offset);
  const auto line = 1 + std::count(before.begin(), before.end(), '\n');
  const std::size_t start = before.rfind('\n');
  return text_position(static_cast<std::size_t>(line),
                       1 + before.size() - (start == before.npos ? 0 : start + 1));
}

}  // namespace temenos
