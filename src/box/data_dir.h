// The directory of one box on the host, and its lock.
//
// $XDG_DATA_HOME/temenos/run/<id>/   boxes of `temenos run`, gone with the box
//   lock     flock(2), shared: by the caller, the helper and runsc, each with a descriptor of its
//   own; free
//            when the last process that could write below is gone
//   box/     upper, work, base: owned by the box's root, see keeper/rootfs.h
#pragma once

#include <string>

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

// Removes what is left of it: the caller holds the lock.
Result<void> remove_data_dir(const HostDirs& dirs, DataDir dir);

// Removes the directories of boxes whose every process is gone (their lock is free): what was left
// when keeper and caller were both killed. Returns how many.
int sweep_temporary_data_dirs(const HostDirs& dirs);

}  // namespace temenos::box
