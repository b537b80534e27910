// Where this process' own control groups lie in the file system.
//
// Sources: cgroups(7) for /proc/PID/cgroup, proc(5) for mountinfo. Both texts are the kernel's, but
// the paths in them may hold any byte; mountinfo writes space, tab, newline and backslash as \ooo.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "temenos/error.h"

namespace temenos::cgroup {

struct Hierarchy {
  std::string mount;  // where it is mounted
  std::string own;    // directory of this process' group in it; empty: out of this mount's sight
};

struct Hierarchies {
  Hierarchy unified;                    // v2; `mount` is empty when there is none
  std::map<std::string, Hierarchy> v1;  // by controller ("memory", "pids", ...)

  // No controller that matters belongs to an older hierarchy.
  bool only_unified() const;
};

// The least limits of this process' group and of those above it, as far as they are in sight.
// Empty: none.
struct Ceiling {
  std::optional<std::uint64_t> memory_bytes;
  std::optional<std::uint64_t> tasks;
};
Ceiling read_ceiling(const Hierarchies& now);

Hierarchies parse_hierarchies(std::string_view mountinfo, std::string_view self_cgroup);
Result<Hierarchies> read_hierarchies();

}  // namespace temenos::cgroup
