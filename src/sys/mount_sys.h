// The new mount API (fsopen, open_tree, mount_setattr, move_mount) and pivot_root, one thin
// function each. Everything works on descriptors, so that what was checked is what gets mounted.
// Needs CAP_SYS_ADMIN in the user namespace that owns the caller's mount namespace. Thread-safety:
// as the system calls. Source: mount_setattr(2), fsopen/open_tree/move_mount in the kernel's
// Documentation/filesystems.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/unique_fd.h"
#include "temenos/error.h"

namespace temenos::sys {

struct CloneOptions {
  bool read_only = false;
  bool nosuid = true;
  bool nodev = true;
  bool recursive = true;
  int idmap_userns = -1;  // maps ids through this user namespace; -1: as they are
};

// A detached copy of the mount at `fd` (O_PATH; open_tree(2) wants it to lie in the caller's mount
// namespace), with the attributes set in the kernel before anything can see it.
Result<UniqueFd> clone_mount(int fd, const CloneOptions& options);

// A new file system, detached. `options` are fsconfig strings; an empty value sets a flag.
Result<UniqueFd> new_filesystem(const char* type,
                                const std::vector<std::pair<std::string, std::string>>& options,
                                unsigned mount_attributes);

// Attaches a detached mount on what `target_fd` (O_PATH) names.
Result<void> attach_mount(int mount_fd, int target_fd);

// Makes the mount at `fd`, with `recursive` all below it, read-only for good.
Result<void> make_read_only(int fd, bool recursive);

// Takes the mount at `path`, with all below it, out of this mount namespace.
Result<void> detach_mount(const char* path);

// No mount event goes in or out of this mount namespace any more.
Result<void> make_all_private();

// The mount `root_fd` (detached) becomes the root of this process and of its mount namespace; the
// old tree is gone from it. The working directory is the new root.
Result<void> pivot_into(int root_fd);

}  // namespace temenos::sys
