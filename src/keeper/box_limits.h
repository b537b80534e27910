// The limits of one box, as its keeper keeps them: the control group of the sandbox, the limit of
// tasks that every sandbox has, and what to say when one of them was the end of it.
//
// Two things hold tasks. RLIMIT_NPROC of runsc counts the tasks of one user id in the box's own
// user namespace, and that namespace as a whole against its maker's (user_namespaces in Linux 5.14
// and newer; kernel/ucount.c): it holds for a box of anybody, without any group. The group's pids
// limit counts what is in it, whatever its ids; it is set a little lower, because it counts its
// refusals.
//
// Thread-safety: none.
#pragma once

#include <poll.h>
#include <sys/resource.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cgroup/make.h"
#include "keeper/disk_watch.h"
#include "keeper/end_reason.h"
#include "keeper/launch_spec.h"
#include "keeper/messages.h"
#include "keeper/oom_watch.h"
#include "temenos/error.h"

namespace temenos::keeper {

// In the data dir of a box that lives: the directories of its groups, a line each.
inline constexpr char kGroupsName[] = "groups";
// Removes the groups that are noted there, as far as nothing lives in them. What is left stays
// noted.
void remove_noted_groups(int data_dir);

class BoxLimits {
 public:
  using End = LimitEnd;

  // Makes the group and notes it in the data dir. With systemd the calling process moves.
  Result<void> begin(const LaunchSpec& spec, int data_dir);
  // What runsc joins before it is runsc (cgroup/group.h).
  std::vector<int> join_fds() const { return group_.join_fds(); }
  bool memory_is_held() const { return group_.controls().memory; }
  // What is not kept, and why, for people; empty when all is.
  const std::string& trouble() const { return trouble_; }
  // That, and what is held otherwise than by the kernel.
  std::string notes() const;

  // For helper: what it gives to the process that counts the box's files; -1: there is none. Only
  // until helper is there.
  int meter_socket() const { return disk_.meter_socket(); }
  void helper_is_there() { disk_.helper_is_there(); }

  // To be polled; their `revents` then go to check(), as well as a poll that has timed out.
  pollfd memory_poll() const;
  pollfd disk_poll() const { return disk_.poll(); }
  int timeout_ms() const;  // -1: nothing to wait for
  std::optional<End> check(short memory_revents, short disk_revents);
  // A process of the sandbox was killed or could not go on, and nobody of ours did that.
  // `crashed`: the sentry failed by itself.
  std::optional<End> cause(bool crashed) const;

  Numbers numbers() const;
  // What stood still while it was looked at can die.
  void let_die() { disk_.let_go(group_); }
  // The sandbox is gone.
  void end();

 private:
  using Clock = std::chrono::steady_clock;
  Result<void> make(const LaunchSpec& spec);
  Result<void> note_groups() const;
  std::string missing(const LimitSpec& limits) const;
  void look_at_cpu_again();

  cgroup::Group group_;
  DiskWatch disk_;
  cgroup::Driver driver_ = cgroup::Driver::kNone;
  OomWatch oom_;  // where no group counts
  std::string trouble_;
  std::string refused_;  // what the kernel or systemd did not do, and why
  int data_dir_ = -1;    // borrowed
  std::uint64_t cpu_limit_us_ = 0;
  std::uint64_t cpu_thousandths_ = 0;
  std::optional<Clock::time_point> cpu_look_;
  std::optional<Clock::time_point> memory_look_;  // v1: it was told that memory ran out
  Clock::time_point memory_looks_end_;
};

// While it lives, what the calling process makes has three quarters of its RLIMIT_NPROC, and a user
// namespace made then keeps that for all in it together: so the user can always log in and end his
// boxes.
class TasksForTheUser {
 public:
  TasksForTheUser();
  ~TasksForTheUser();
  TasksForTheUser(const TasksForTheUser&) = delete;
  TasksForTheUser& operator=(const TasksForTheUser&) = delete;

 private:
  std::optional<rlimit> before_;
};
// In what becomes runsc.
Result<void> limit_own_tasks(std::int64_t host_tasks);

}  // namespace temenos::keeper
