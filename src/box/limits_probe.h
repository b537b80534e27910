// Which limits this host's kernel keeps for boxes of the calling user, and by which driver. Found
// out by trying, in a keeper of its own.
//
// Where everything held that is kept in the cache directory per boot, and for drivers that depend
// on it, per control group of the caller, until a box does not get what it says (forget_limits).
// Where only a part held, or something did not answer, which takes seconds each time, it is kept
// for ten minutes, but not for a box that requires limits: nobody is refused for what is only
// remembered. Where nothing held it is tried again at each start: the user is about to mend it.
// doctor always tries anew.
//
// Thread-safety: as the system calls.
#pragma once

#include <vector>

#include "box/host_dirs.h"
#include "cgroup/trial.h"
#include "temenos/error.h"

namespace temenos::box {

// All drivers that matter here, best first or not: cgroup::best_of() chooses.
using LimitTrials = std::vector<cgroup::Trial>;

// `required`: the box is refused when not all of them hold. kBoxDied: given up, because `cancel_fd`
// is readable.
Result<LimitTrials> probe_limits(const HostDirs& dirs, bool required, int cancel_fd);
// Anew, for doctor.
Result<LimitTrials> try_limits(const HostDirs& dirs, int cancel_fd);
// A box has not got what is remembered.
void forget_limits(const HostDirs& dirs);

}  // namespace temenos::box
