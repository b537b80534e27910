// Builds, inside the helper's own namespaces, the small tree in which runsc runs and the box's root
// in it.
//
//   /            tmpfs, 8 MiB, this process's whole world; the host's tree is gone
//   /rootfs      the box's root: overlay(data/base, data/upper), or a tmpfs with a base in it where
//                the box does not write on disk; /usr and /etc read-only on it
//   /m/0 …       the binds, each with what is hidden and protected in it
//   /bundle      config.json      /run  runsc's state      /log  its messages      /proc /dev
#pragma once

#include "base/unique_fd.h"
#include "keeper/launch_spec.h"
#include "keeper/sources.h"
#include "temenos/error.h"

namespace temenos::keeper {

// Pivots into the new tree. The caller is root of fresh user, mount and PID namespaces.
Result<void> build_tree(const LaunchSpec& spec, Sources sources);

// Where things lie in that tree.
inline constexpr char kRootfs[] = "/rootfs";
inline constexpr char kDataDir[] = "/data";
inline constexpr char kBundle[] = "/bundle";
inline constexpr char kRunscPath[] = "/runsc";
inline constexpr char kRunscState[] = "/run/runsc";
inline constexpr char kLogDir[] = "/log";
// And in the box: temenos' own directory.
inline constexpr char kBoxPrivateDir[] = "/run/temenos";

}  // namespace temenos::keeper
