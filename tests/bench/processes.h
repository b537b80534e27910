// The processes of a box as the host sees them: found by what they are, so that how temenos starts
// them does not matter here.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "temenos/error.h"

namespace temenos::bench {

// From now on all that this process starts, and what that starts, stays its descendant.
void adopt_orphans();
// Ids of all descendants.
std::set<pid_t> descendants();

struct BoxProcesses {
  pid_t runsc_run = -1;     // the `runsc run` that waits for the sandbox
  std::vector<pid_t> two;   // sandbox and gofer, with the sandbox's own processes
  std::vector<pid_t> ours;  // all others
};
// Sorts the processes of one box.
Result<BoxProcesses> sort_processes(const std::set<pid_t>& pids);

// Those of `pids` that are the program `name`.
std::vector<pid_t> of_program(const std::set<pid_t>& pids, const std::string& name);

// Sum of the proportional set sizes in bytes (proc(5), smaps_rollup). Code::kUnsupported where this
// user may not read one of them.
Result<std::uint64_t> pss_bytes(const std::vector<pid_t>& pids);

}  // namespace temenos::bench
