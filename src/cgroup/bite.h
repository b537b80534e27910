// Sees whether the limits of a group are more than words: a child joins it and runs into each.
//
// Thread-safety: none; from a process with one thread.
#pragma once

#include "cgroup/group.h"

namespace temenos::cgroup {

// Sets small limits on `group`, in which nothing runs, and gives those that held. At most about a
// quarter of a second.
Result<Controls> bite(Group& group);

}  // namespace temenos::cgroup
