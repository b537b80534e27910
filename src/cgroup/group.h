// One control group (or, in the older hierarchies, one in each): its limits, its counters, its end.
//
// Every file of it is opened when the group is made and read through that descriptor, so a group of
// the same name that somebody makes later is never mistaken for it. A process joins by writing "0"
// into what join_fds() gives; the kernel asks for the rights of who opened it, so a process in a
// user namespace of its own can do that.
//
// Thread-safety: none. Ownership: owns its descriptors; the directories are removed by remove().
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "cgroup/driver.h"
#include "temenos/error.h"

namespace temenos::cgroup {

// What has been used. Empty: this kernel or this hierarchy does not tell.
struct Usage {
  std::optional<std::uint64_t> memory_bytes;
  std::optional<std::uint64_t> memory_peak_bytes;
  std::optional<std::uint64_t> cpu_us;
  std::optional<std::uint64_t> tasks;
  std::optional<std::uint64_t> tasks_peak;
  // Hundredths of a per cent of the last 10 s in which some task waited (pressure stall
  // information, v2 only).
  std::optional<std::uint32_t> memory_pressure;
  std::optional<std::uint32_t> cpu_pressure;
  std::optional<std::uint32_t> io_pressure;
};

class Group {
 public:
  Group() = default;
  // Below directories that exist. `unified`: the group's directory in the unified hierarchy, with
  // the controllers enabled in its parent. Makes it; there must be none of this name.
  static Result<Group> make_unified(const std::string& directory);
  // The parents in the hierarchies of memory, pids, cpu and cpuacct: those that are there.
  static Result<Group> make_v1(const std::vector<std::pair<std::string, std::string>>& parents,
                               const std::string& name);

  explicit operator bool() const { return !directories_.empty(); }
  const Controls& controls() const { return controls_; }
  // Sets what is not 0, each by itself, and reads it back. What this group cannot keep, or the
  // kernel does not take, is no longer in controls(); gives why, empty when nothing was refused.
  std::string limit(const Limits& limits);

  // To be written "0" into by who joins, each of them. Borrowed.
  std::vector<int> join_fds() const;

  // Since the group was made; and the name of the file that says so.
  std::uint64_t oom_kills() const;
  const char* oom_counter() const;
  std::uint64_t refused_tasks() const;  // forks that failed at the limit
  std::uint64_t throttled() const;      // periods in which the CPU quota held it back
  // For poll(2): something about its memory has happened, look at oom_kills(). In the older
  // hierarchy that is said before the kernel kills. -1: nothing tells. clear_memory_event() after.
  int memory_event_fd() const;
  short memory_events() const;
  void clear_memory_event();
  Usage usage() const;

  // Not v1, whose frozen processes cannot even be killed: the death of who froze them would leave
  // them for ever.
  bool can_freeze() const { return static_cast<bool>(freezer_); }
  // Stops or continues all that runs in it. Returns when the kernel says that all stand still, or
  // after `timeout_ms`.
  Result<void> freeze(bool still, int timeout_ms);

  // The directories, once nothing lives in them; others are left. Gives those that are left.
  std::vector<std::string> remove();
  const std::vector<std::string>& directories() const { return directories_; }

 private:
  enum class Kind { kUnified, kV1 };
  Result<void> open_unified(int directory);
  Result<void> open_v1(const std::string& controller, int directory);
  Result<void> expect(const UniqueFd& directory, const char* file, std::uint64_t value) const;
  Result<void> limit_memory(std::uint64_t bytes) const;
  Result<void> limit_cpu(std::uint32_t thousandths) const;
  Result<void> set(const UniqueFd& directory, const char* file, std::uint64_t value) const;

  Kind kind_ = Kind::kUnified;
  Controls controls_;
  std::vector<std::string> directories_;
  // The directory of each controller's files (O_PATH); empty: not to be had.
  UniqueFd memory_;
  UniqueFd tasks_;
  UniqueFd cpu_;
  UniqueFd cpu_account_;
  UniqueFd freezer_;
  std::vector<UniqueFd> join_;
  UniqueFd oom_counter_;
  UniqueFd oom_event_;  // v1: an eventfd
};

}  // namespace temenos::cgroup
