// What a git configuration names (git-config(1), "Syntax"): the words of its values that could be
// programs, included files, directories of hooks or files of attributes.
//
// The text is hostile: a box may have written it. Whatever the key, a value counts, so that a new
// key of git's needs no change here; only keys whose values are known to be data are left out. What
// git would refuse is read as far as it goes. Pure; thread-safe.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace temenos::git {

inline constexpr std::size_t kMaxConfigBytes = 1u << 20;
inline constexpr std::size_t kMaxWords = 4096;
inline constexpr std::size_t kMaxWord = 4095;  // PATH_MAX without its NUL
// Of all keys and words, each with a NUL: what one answer of the reader can carry.
inline constexpr std::size_t kMaxWordBytes = 96u << 10;

struct ConfigWord {
  std::string key;   // section and name in lower case: "core.pager", "filter.LFS.clean"
  std::string word;  // no NUL; 1 to kMaxWord bytes
  bool operator==(const ConfigWord&) const = default;
};

struct ConfigWords {
  std::vector<ConfigWord> words;  // no two alike
  bool complete = true;           // false: there are more than the bounds allow
};

// A value's words are the value itself and its pieces as a shell would see them, without the
// variables; a piece without a slash only where git or an interpreter would take it for a path of
// the working tree.
ConfigWords config_words(std::string_view text);

}  // namespace temenos::git
