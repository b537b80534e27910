// From what a policy asks for to what keeper sets, on this host.
//
// Thread-safety: plain functions.
#pragma once

#include <cstdint>
#include <string>

#include "cgroup/trial.h"
#include "keeper/launch_spec.h"
#include "temenos/error.h"
#include "temenos/policy.h"

namespace temenos::box {

// What limits that nobody has named are taken from: the least of what the machine, the user and the
// control groups around this process have.
struct HostSize {
  std::uint64_t memory_mb = 0;
  std::uint64_t tasks = 0;  // that the calling user can have
};
HostSize host_size();

// What the sandbox needs of the host for so many tasks of the guest, on a platform: gVisor's own
// threads, and several tasks for each. Measured; SPECIFICATION.md has the numbers.
std::int64_t host_tasks_for(std::int64_t guest_tasks, std::string_view platform);

// What holds here for a box with that driver. Tasks are held without any, too, where the kernel
// counts them for each box (keeper/box_limits.h).
cgroup::Controls held_here(const cgroup::Trial& trial);

// All but the group's name. `trial`: what the driver to be used keeps. kUnsupported: the policy
// requires limits that it does not keep.
Result<keeper::LimitSpec> plan_limits(const Limits& limits, LimitsMode mode,
                                      const cgroup::Trial& trial, std::string_view platform,
                                      const HostSize& host);

}  // namespace temenos::box
