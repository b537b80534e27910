// Processes by descriptor (pidfd), namespaces and id maps, and descriptors sent over sockets.
// Everything is close-on-exec. Thread-safety: as the system calls; start_in_namespaces() only from
// a process with one thread (the child goes on in a copy of it).
#pragma once

#include <sys/types.h>

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "temenos/error.h"

namespace temenos::sys {

// How a process ended.
struct ExitStatus {
  int code = -1;   // exit status, or -1
  int signal = 0;  // the signal that ended it, or 0
};

class Process {
 public:
  Process() = default;
  Process(pid_t pid, UniqueFd pidfd) : pid_(pid), pidfd_(std::move(pidfd)) {}
  pid_t pid() const { return pid_; }
  int pidfd() const { return pidfd_.get(); }
  explicit operator bool() const { return static_cast<bool>(pidfd_); }
  // No effect on a process that has ended; never hits another one.
  void send(int signal) const;
  // Reaps. `block` false: nothing when it still runs.
  std::optional<ExitStatus> wait(bool block = true);

 private:
  pid_t pid_ = -1;
  UniqueFd pidfd_;
};

// A descriptor of the process; it need not be a child. `pid` may be another's by now: check what it
// is afterwards.
Result<UniqueFd> open_pidfd(pid_t pid);

// A fork whose child runs `child` and exits with what it returns. `namespaces` are CLONE_NEW*
// flags; with CLONE_NEWUSER the child has all capabilities over the others, and with CLONE_NEWPID
// it is PID 1. The child dies when the calling thread's process dies, once it has called
// die_with_parent().
template <typename F>
Result<Process> start_in_namespaces(int namespaces, F child);
Result<pid_t> raw_fork(int namespaces, UniqueFd* pidfd);  // 0 in the child

// PR_SET_PDEATHSIG SIGKILL. Must come after every change of uid or gid, which clears it (prctl(2)).
Result<void> die_with_parent();

// PR_SET_DUMPABLE 0: nobody without capabilities over the host may trace this process or open its
// files in /proc (ptrace(2), proc(5)). Undone by exec and by a change of ids.
Result<void> forbid_inspection();

struct IdMapLine {
  unsigned inside = 0;
  unsigned outside = 0;
  unsigned count = 0;
};
// Writes /proc/PID/uid_map and gid_map (user_namespaces(7)). `deny_setgroups` is needed by a writer
// without CAP_SETGID in the parent namespace.
Result<void> write_id_maps(pid_t pid, std::span<const IdMapLine> uids,
                           std::span<const IdMapLine> gids, bool deny_setgroups);

// A user namespace with this map and nothing in it, for an idmapped mount. Caller: root.
Result<UniqueFd> idmap_namespace(IdMapLine uid, IdMapLine gid);

// Becomes id 0 of the own user namespace with no supplementary groups (kept where setgroups is
// denied).
Result<void> become_namespace_root();

// Runs a program to its end with nothing but fds 0 to 2; returns its status and at most
// `output_limit` bytes of its output. One that takes longer (kTimedOut) is ended with all that it
// started; so is one that is to be given up, because `cancel_fd` is readable (kBoxDied), after it
// was asked to go (SIGTERM) and has had a moment for it. It does not outlive the calling thread.
struct RunResult {
  ExitStatus status;
  std::string output;
};
Result<RunResult> run_program(const std::vector<std::string>& argv, std::size_t output_limit = 4096,
                              int timeout_ms = 10'000, int cancel_fd = -1);

// Marks every descriptor from `first` on close-on-exec.
Result<void> close_on_exec_from(int first);

// Closes every descriptor from 3 on that is not in `keep`.
Result<void> close_all_except(std::vector<int> keep);

// One datagram (SOCK_SEQPACKET) with descriptors, or by send(2); `flags`: MSG_DONTWAIT. Receiving:
// at most `max_fds` are taken, all others closed; an empty `bytes` means the peer has closed.
Result<void> send_with_fds(int socket, std::string_view bytes, std::span<const int> fds,
                           int flags = 0);
struct Received {
  std::string bytes;
  std::vector<UniqueFd> fds;
};
Result<Received> receive_with_fds(int socket, std::size_t max_bytes, std::size_t max_fds);

// A connected pair, close-on-exec. `type` is SOCK_STREAM or SOCK_SEQPACKET.
Result<std::pair<UniqueFd, UniqueFd>> socket_pair(int type);

template <typename F>
Result<Process> start_in_namespaces(int namespaces, F child) {
  UniqueFd pidfd;
  const auto pid = raw_fork(namespaces, &pidfd);
  if (!pid) return tl::make_unexpected(pid.error());
  if (*pid == 0) _exit(child());
  return Process(*pid, std::move(pidfd));
}

}  // namespace temenos::sys
