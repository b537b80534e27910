// Tries a platform of gVisor with a small workload: 50 processes and data through the socket, in a
// real box. What only seems to work fails at that.
#pragma once

#include <string>

#include "box/host_dirs.h"
#include "box/host_probe.h"
#include "gvisor/runsc.h"
#include "temenos/policy.h"

namespace temenos::box {

// Bounded by about 20 s. `scratch` is of the box that is to run: a host may be able to run one kind
// and not the other. `cancel_fd`: once it is readable, the trial is given up.
PlatformTrial try_platform(const HostDirs& dirs, const gvisor::Runsc& runsc,
                           const std::string& name, Scratch scratch = Scratch::kDisk,
                           int cancel_fd = -1);

}  // namespace temenos::box
