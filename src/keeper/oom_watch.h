// Tells whether the kernel killed for want of memory, by its own counters: the exit status of a
// killed process does not say. The count is of the memory group that this process and its children
// are in (cgroup v1 memory.oom_control, v2 memory.events), or of the whole machine (/proc/vmstat)
// where there is no such group to read. Somebody else's death in the same group counts too, so it
// is asked only about a process that was killed by nobody of ours.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/unique_fd.h"

namespace temenos::keeper {

class OomWatch {
 public:
  // Counts from now on. Never fails: without a counter there is no evidence.
  static OomWatch begin();
  // Which counter has risen since, for people; empty: none.
  std::string evidence() const;

 private:
  UniqueFd file_;
  std::string name_;
  std::uint64_t before_ = 0;
};

// The number after "oom_kill" in one of those files.
std::optional<std::uint64_t> oom_kills(std::string_view text);
// Where the counter of the group may lie, best first, from the text of /proc/self/cgroup.
std::string memory_group_v1(std::string_view proc_self_cgroup);  // empty: none
std::string memory_group_v2(std::string_view proc_self_cgroup);

}  // namespace temenos::keeper
