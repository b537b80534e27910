// Which limits this host's kernel keeps for boxes of the calling user, and by which driver. Found
// out by trying, in a keeper of its own; what held is kept in the cache directory per boot, and for
// drivers that depend on it, per control group of the caller. Where nothing held it is tried again
// at each start: the user is about to mend it. doctor always tries anew.
#pragma once

#include <vector>

#include "box/host_dirs.h"
#include "cgroup/trial.h"
#include "temenos/error.h"

namespace temenos::box {

// All drivers that matter here, best first or not: cgroup::best_of() chooses.
using LimitTrials = std::vector<cgroup::Trial>;

Result<LimitTrials> probe_limits(const HostDirs& dirs);
// Anew, for doctor.
Result<LimitTrials> try_limits(const HostDirs& dirs);

}  // namespace temenos::box
