// The directory of one box on the host, and its lock.
//
// $XDG_DATA_HOME/temenos/run/<id>/   boxes of `temenos run`, gone with the box
//   lock     flock(2), shared: by the caller and the helper, each with one of its own;
//            free when both are gone
//   writes   the host directories that the box writes, each ended by NUL
//   box/     upper, work, base: owned by the box's root, see keeper/rootfs.h
#pragma once

#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "box/host_dirs.h"
#include "temenos/error.h"

namespace temenos::box {

struct DataDir {
  std::string path;
  std::string id;
  UniqueFd directory;  // O_PATH
  UniqueFd lock;       // locked
};

Result<DataDir> make_temporary_data_dir(const HostDirs& dirs);

// Notes which host directories the box of `dir` writes, so that no other live box of this user
// starts with an overlapping one: kConflict, unless `shared`. Sees boxes that started before; those
// that start later see this.
Result<void> claim_writable(const HostDirs& dirs, const DataDir& dir,
                            const std::vector<std::string>& paths, bool shared);

// Removes what is left of it: the caller holds the lock.
Result<void> remove_data_dir(const HostDirs& dirs, DataDir dir);

// Removes the directories of boxes whose every process is gone (their lock is free): what was left
// when keeper and caller were both killed. Returns how many.
int sweep_temporary_data_dirs(const HostDirs& dirs);

}  // namespace temenos::box
