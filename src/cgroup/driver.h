// Limits of memory, CPU and processes for the processes of one box, kept by the host's kernel in a
// control group of their own (cgroups(7); Documentation/admin-guide/cgroup-v2.rst).
//
// A driver is a way to have such a group made. They are tried in the order in which they stand
// here, and reported by name. This module makes groups and reads their counters; it trusts the
// kernel, systemd and its caller, and no byte of a box comes to it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace temenos::cgroup {

enum class Driver : std::uint32_t {
  kNone,           // no group can be had
  kSystemdUser,    // a transient scope of the calling user's systemd
  kSystemdSystem,  // the same of the machine's, for root
  kCgroup2,        // a subtree of the unified hierarchy that belongs to the caller
  kCgroup1,        // the older hierarchies, one for each controller; root only
};
inline constexpr Driver kDrivers[] = {Driver::kSystemdUser, Driver::kSystemdSystem,
                                      Driver::kCgroup2, Driver::kCgroup1};

// "systemd-user", ...; kNone for any other text.
std::string_view driver_name(Driver driver);
Driver driver_named(std::string_view name);

// More than the kernel can ever have (PID_MAX_LIMIT of linux/threads.h) is no limit, and refused as
// one.
inline constexpr std::uint64_t kMostTasks = 4'194'304;

// 0: no limit.
struct Limits {
  std::uint64_t memory_bytes = 0;  // no swap beside it
  std::uint32_t cpu_thousandths = 0;
  std::uint64_t tasks = 0;  // processes and threads
};

// What a group keeps.
struct Controls {
  bool memory = false;
  bool cpu = false;
  bool tasks = false;

  bool all() const { return memory && cpu && tasks; }
  bool any() const { return memory || cpu || tasks; }
  // For people: "memory and CPU"; empty when none is missing.
  std::string missing() const;
};

}  // namespace temenos::cgroup
