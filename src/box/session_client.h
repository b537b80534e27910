// One connection to a box's session: execs and file operations, blocking, one at a time. For
// several at once, open several connections. Trusts session to have bounded what comes from the
// box; still decodes all of it strictly and keeps to its own limits. Does not know policies, boxes
// or keepers: it is given a connected socket.
//
// Thread-safety: none; one thread at a time. Ownership: owns the socket; descriptors in ExecIo stay
// the caller's and are never made non-blocking. After a kProtocol, kBoxDied or kTimedOut error the
// connection is of no more use and each further call fails.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/unique_fd.h"
#include "temenos/error.h"
#include "temenos/exec.h"
#include "temenos/exec_result.h"
#include "temenos/files.h"

namespace temenos {

class SessionClient {
 public:
  // Greets; waits for the box to be ready, up to `deadline`.
  static Result<SessionClient> connect(
      UniqueFd socket, std::chrono::milliseconds deadline = std::chrono::seconds(40));
  SessionClient(SessionClient&&) noexcept;
  SessionClient& operator=(SessionClient&&) noexcept;
  ~SessionClient();

  // Returns when the exec is over, even with an open stdin. A stdout or stderr that is closed by
  // its reader ends the exec, as SIGPIPE would; one that fails otherwise (a full disk) ends it and
  // is an error. Where the box ended under it, `so_far` gets what was captured until then; how the
  // command ended is not in it.
  // Once io.detach_fd is readable, `make_job` is asked for a job (below); when it has none to give,
  // the exec goes on as it was. Detached, it returns with `job` set, neither exit code nor signal,
  // and the output that came until then; the rest goes to the job's spool. It may end before it is
  // detached: then the result is the usual one, and the job is over without having begun. A job
  // that session does not know (box/jobs.h) ends the exec: kNotFound.
  Result<ExecResult> exec(const ExecRequest& request, const ExecIo& io = {},
                          ExecResult* so_far = nullptr,
                          const std::function<Result<std::uint32_t>()>& make_job = {});

  // Jobs (session_jobs.cc). `job` is a number that keeper has made known to session (kAddJob) with
  // its spool; how it went is read from there (box/job_spool.h).
  // Starts the command as that job, without a stdin. Also a command that cannot be started becomes
  // a job, which ends at once.
  Result<void> start_job(const ExecRequest& request, std::uint32_t job);
  // True: the job is over and its spool is whole. False: the time (at most 2^32 ms) has passed, or
  // `cancel_fd` became readable. kNotFound: session does not have that job, or no longer.
  Result<bool> wait_job(std::uint32_t job, std::chrono::milliseconds timeout, int cancel_fd = -1);
  // `signal` 0 ends the whole tree for sure (then `tree` means nothing), 1 to 64 are sent to the
  // leader or to all. kNotFound as above.
  Result<void> signal_job(std::uint32_t job, int signal, bool tree);

  // At most `max` bytes from `offset`.
  Result<std::string> read_file(std::string_view path, std::uint64_t max, std::uint64_t offset = 0);
  Result<void> write_file(std::string_view path, std::string_view data,
                          const WriteOptions& options = {});
  // At most `max_entries`, in no order; more is an error.
  Result<std::vector<DirEntry>> list(std::string_view path, std::size_t max_entries = 100'000);
  Result<FileInfo> stat(std::string_view path, bool follow = false);
  // True: it was made. With `parents` what is missing above it is made too (0755), and a directory
  // that is there already is no error. `mode`: permission bits.
  Result<bool> mkdir(std::string_view path, std::uint32_t mode = 0755, bool parents = false);
  // How many entries were removed. A symlink itself is removed, never what it leads to; a mount
  // point, and `/`, is refused (EBUSY) with all below it untouched. Recursively it stops at the
  // first entry that it cannot remove, and has ten times the deadline of set_file_deadline().
  Result<std::uint64_t> remove(std::string_view path, bool recursive = false);
  Result<void> ping();

  // For read_file to ping: no answer by then is kTimedOut.
  void set_file_deadline(std::chrono::milliseconds deadline);
  // The box keeps a pids group for each exec (else trees are ended by a walk of /proc).
  bool groups() const;
  // The greeted connection, for who speaks the protocol itself.
  Result<UniqueFd> take_socket() &&;

 private:
  struct Channel;
  struct ExecCall;
  struct FileCall;
  explicit SessionClient(std::unique_ptr<Channel> channel);
  std::unique_ptr<Channel> channel_;
};

// What a shell would exit with for an exec that failed with `error`: 127 when there is no such
// program, 126 when it cannot be run, else exit_code(error.code).
int exec_failure_status(const Error& error);
// "SIGKILL" for 9.
std::string signal_name(int signal);

}  // namespace temenos
