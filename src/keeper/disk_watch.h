// The limit of a box's files on disk (limits.disk_mb with scratch disk), as its keeper keeps it: by
// a project quota of the host's file system where that can be had, which is exact, or else by
// watching: a process in the sandbox's namespaces counts (disk/meter.h), keeper decides when
// (disk/budget.h) and ends a box that has too much.
//
// Thread-safety: none.
#pragma once

#include <poll.h>
#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "base/unique_fd.h"
#include "cgroup/group.h"
#include "disk/budget.h"
#include "keeper/end_reason.h"
#include "keeper/launch_spec.h"
#include "keeper/messages.h"
#include "temenos/error.h"

namespace temenos::keeper {

class DiskWatch {
 public:
  // The box's directory is there. An error: it has too much already.
  Result<void> begin(const LaunchSpec& spec, int data_dir);
  int meter_socket() const { return there_.get(); }  // for helper; -1: nothing is watched
  void helper_is_there() { there_.reset(); }

  pollfd poll() const { return {here_.get(), POLLIN, 0}; }
  int timeout_ms() const;  // -1: nothing to wait for
  // After a poll; stops the sandbox by its group, where it has one, for as long as it is looked at.
  std::optional<LimitEnd> check(short revents, cgroup::Group& group);
  // What was stopped so goes on, or can die.
  void let_go(cgroup::Group& group);

  void tell(Numbers& numbers) const;
  // Why it is not the kernel that holds the limit, for people; empty: it does, or there is none.
  const std::string& why_watched() const { return why_watched_; }

 private:
  using Clock = std::chrono::steady_clock;
  struct Asked {
    std::uint64_t number = 0;
    bool still = false;
    Clock::time_point begin;
  };
  std::optional<LimitEnd> ask(bool still, cgroup::Group& group);
  std::optional<LimitEnd> hear(cgroup::Group& group);
  std::optional<LimitEnd> look(cgroup::Group& group);

  disk::Limit limit_;
  std::string why_watched_;
  UniqueFd files_;  // the box's directory; empty: no limit
  bool by_quota_ = false;

  std::optional<disk::Budget> budget_;
  UniqueFd here_;
  UniqueFd there_;
  std::optional<Asked> asked_;
  std::uint64_t last_number_ = 0;
  std::optional<Clock::time_point> next_look_;
  int failures_ = 0;  // one after the other
  Clock::time_point failing_since_;
  bool stopped_ = false;  // by its group
};

// In helper, before there is a sandbox: counts the files below `directory`, tells keeper, and
// leaves a process that goes on to do so. An error: there are too many.
Result<void> start_meter(int socket, const LaunchSpec& spec, const char* directory, dev_t overlay);

}  // namespace temenos::keeper
