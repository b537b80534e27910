// Making a box's group with a driver, and removing what killed processes have left.
//
// Thread-safety: none. The calling process must have one thread and no child that it minds: with
// systemd it moves into the new scope itself (see make_group).
#pragma once

#include <string>
#include <vector>

#include "cgroup/driver.h"
#include "cgroup/group.h"
#include "temenos/error.h"

namespace temenos::cgroup {

struct Request {
  Driver driver = Driver::kNone;
  std::string name;           // of the group, without ".scope": [A-Za-z0-9_.-], at most 200 bytes
  std::string description;    // for people, one line
  std::string scope_program;  // path of temenos-scope
  Limits limits;
};

// What beside a box's sandbox is in its scope: keeper, session, helper. The scope's own limits are
// the sandbox's and this.
inline constexpr std::uint64_t kReserveBytes = std::uint64_t{96} << 20;
inline constexpr std::uint64_t kReserveTasks = 64;
inline constexpr std::uint32_t kReserveCpuThousandths = 500;

struct MadeGroup {
  Group group;
  std::string refused;  // limits that the kernel did not take, and why; they are not in controls()
};
// The group, with its limits set. Fails when the driver cannot be used here. kInternal: this
// process is in a scope that could not be made whole; nothing must be started in it.
//
// systemd: the calling process moves into the scope NAME.scope, into its group "supervise", and the
// group that is made is "sandbox" beside it: what is in there can be killed for want of memory
// without the caller, and its counters are there as long as the caller lives. systemd removes all
// of it when the last process has left.
Result<MadeGroup> make_group(const Request& request);

// Removes groups that a killed keeper may have left, by the paths that it had noted. What still
// dies in one is waited for, up to `patience_ms`; what lives is not touched. Anything that is not a
// name of ours is ignored. True: none of them is there any more.
bool remove_groups(const std::vector<std::string>& directories, int patience_ms);

// Where the drivers that do not ask systemd make this process' groups.
std::vector<std::string> group_parents();
// Removes there what was killed before it had noted its group: empty ones of our names that are a
// minute old. Between its making and its first process a group is empty for moments.
void sweep_groups();

}  // namespace temenos::cgroup
