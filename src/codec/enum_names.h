// One table of words per enum, used by texts, flags and errors alike. A module specialises
// enum_names<E> with an array of EnumName<E>.
#pragma once

#include <string>
#include <string_view>

#include "codec/object_reader.h"

namespace temenos {

template <typename E>
struct EnumName {
  E value;
  std::string_view name;
};

template <typename E>
inline constexpr bool enum_names = false;  // no table: the primary is never used

template <typename E>
constexpr std::string_view enum_name(E value) {
  for (const auto& row : enum_names<E>) {
    if (row.value == value) return row.name;
  }
  return "?";
}

// `path` names the field or flag in the error, which lists the words.
template <typename E>
Result<E> parse_enum(std::string_view text, std::string_view path) {
  std::string words;
  for (const auto& row : enum_names<E>) {
    if (row.name == text) return row.value;
    words += (words.empty() ? "" : ", ") + std::string(row.name);
  }
  return bad_field(path, "one of " + words, text, "use one of " + words);
}

}  // namespace temenos
