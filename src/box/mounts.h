// From a policy's mounts, volumes and project to the binds that a keeper makes: sources resolved
// once, checked, and held open by descriptor, so that nothing can be put in their place afterwards.
#pragma once

#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "box/autoexec.h"
#include "box/host_dirs.h"
#include "keeper/launch_spec.h"
#include "temenos/policy.h"

namespace temenos::box {

// A writable bind whose tree was looked at before the box started.
struct WatchedBind {
  std::string source;
  int directory = -1;  // borrowed from Mounts::sources
  AutoexecScan before;
};

struct Mounts {
  std::vector<keeper::BindSpec> binds;
  std::vector<UniqueFd> sources;  // O_PATH, one per bind
  std::vector<keeper::MemorySpec> memory;
  std::vector<WatchedBind> watched;
  std::vector<std::string> warnings;  // for the user, one line each
};

// `project_dir` empty: no project is mounted.
Result<Mounts> resolve_mounts(const Policy& policy, const std::string& project_dir,
                              const HostDirs& dirs);

}  // namespace temenos::box
