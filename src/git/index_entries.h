// The names in a git index (gitformat-index(5)). git does not verify the names of an index that it
// reads from the disk, and a box writes the index: an entry ".git/hooks/post-checkout" in it is
// written into place by "git restore" on the host.
//
// The bytes are hostile. Everything that git could understand in another way than this reader (a
// name's length in two places, tables of offsets) is an error, never a guess. Pure; thread-safe.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "temenos/error.h"

namespace temenos::git {

inline constexpr std::size_t kMaxIndexBytes = 64u << 20;

enum class HashSize : unsigned { kSha1 = 20, kSha256 = 32 };

// The first name that git's verify_path() would have refused, for what git refuses on any system
// (a name may be checked out on a file system that folds case). An honest index holds none.
Result<std::optional<std::string>> bad_index_entry(std::string_view index, HashSize hash);

// Of one component of a name: ".git", and what HFS+ and NTFS take for it.
bool is_dot_git(std::string_view component);

}  // namespace temenos::git
