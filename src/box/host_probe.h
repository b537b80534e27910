// What this host's gVisor can do: its flags, and which platform works. Found out by trying, kept in
// the cache directory per (runsc file, kernel release, boot).
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "box/host_dirs.h"
#include "gvisor/runsc.h"
#include "temenos/error.h"
#include "temenos/policy.h"

namespace temenos::box {

struct PlatformTrial {
  std::string name;
  bool ok = false;
  int ms = 0;             // the workload, start included
  std::string why;        // when not ok
  bool given_up = false;  // the caller was told to stop: says nothing about the platform
};

struct HostProbe {
  gvisor::Runsc runsc;
  std::vector<PlatformTrial> platforms;  // those tried so far, best first
};

// Runs a box with a small workload on a platform; the result says whether and how fast.
using TryPlatform = std::function<PlatformTrial(const gvisor::Runsc&, const std::string& platform)>;

// The kernel's release and the boot: what was found out holds as long as neither changes.
std::string this_boot();

// The runsc to use. Cached.
Result<HostProbe> probe_runsc(const HostDirs& dirs);

// The platform for `wanted`: that one, or for kAuto the best of those that work here, trying them
// with `attempt` when the cache does not know. Code::kUnsupported when none works.
Result<std::string> choose_platform(HostProbe& probe, Platform wanted, const HostDirs& dirs,
                                    const TryPlatform& attempt);

// Tries every platform anew, for doctor.
void try_all_platforms(HostProbe& probe, const HostDirs& dirs, const TryPlatform& attempt);

}  // namespace temenos::box
