// Small files of ours that are there whole or not at all, whatever dies while they are written.
//
// Thread-safety: as the system calls; two writers of one name: the last one's content stays.
#pragma once

#include <string>
#include <string_view>

#include "temenos/error.h"

namespace temenos::store {

// What to do when the data directory cannot be written in.
inline constexpr char kDiskHint[] =
    "free some disk space, or set XDG_DATA_HOME to a directory with room that you can write in";

// Writes `name` in the directory `dir_fd` (ours: no box writes there) with mode 0600: a temporary
// file, fsync(2), rename(2), fsync of the directory. What was there before is replaced whole.
Result<void> write_atomically(int dir_fd, const std::string& name, std::string_view bytes);

}  // namespace temenos::store
