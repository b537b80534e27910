// What a live box uses, and what holds its limits. Plain data.
//
// Thread-safety: plain values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace temenos {

// Empty: this host does not tell. Numbers are of the sandbox: gVisor and all that the box runs.
struct BoxStats {
  std::optional<std::uint64_t> memory_bytes;  // with the file cache that the box has caused
  std::optional<std::uint64_t> memory_peak_bytes;
  std::optional<std::uint64_t> cpu_us;  // since it started
  std::optional<std::uint64_t> tasks;   // threads of the host: several for each of the box
  std::optional<std::uint64_t> tasks_peak;
  std::optional<std::uint64_t>
      disk_bytes;  // with limits.disk_mb and scratch disk; counted now and then
  // Pressure stall information: the share of the last 10 s, in per cent, in which some task of the
  // box had to wait for it.
  std::optional<double> memory_pressure;
  std::optional<double> cpu_pressure;
  std::optional<double> io_pressure;

  std::string driver;        // "systemd-user", "systemd-system", "cgroup2", "cgroup1" or "none"
  bool memory_held = false;  // a limit of it is kept by the host's kernel
  bool cpu_held = false;
  bool tasks_held = false;
  bool disk_held = false;     // by a project quota
  bool disk_watched = false;  // not by the kernel: temenos counts, and ends the box
  std::string trouble;        // why less is held than the host can, or disk is watched; else empty
};

}  // namespace temenos
