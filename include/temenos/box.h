// A box: the place where untrusted code runs (ARCHITECTURE.md). The object is a handle; a box with
// a name may have many, in many processes.
//
// Boxes come from a BoxManager (box_manager.h). One with a name lives until it is stopped and its
// files until it is removed. One without lives as long as its handle: when that is destroyed, or
// its process dies, the box ends and leaves nothing.
//
// Nothing that comes out of a box is trusted here, and nothing of it should be by the caller:
// output, names and contents are hostile bytes. Files are read and written by the box itself, with
// its own rights: no path of these calls means anything on the host.
//
// A call that needs the box starts it when it has a name and does not live. When the box ends
// during a call, the Error is kBoxDied and says why. When it ended between two calls of a handle
// and nobody had asked for that (it was not stopped, nor was its time over), all that ran in it is
// gone: the next call fails once with the same Error, unless it is start() or stop(), and only the
// one after starts the box. One without a name cannot be started again: all calls that need it
// fail. What is done is written to the box's audit log (audit.jsonl in its data dir; only of boxes
// with names).
//
// Thread-safety: none; one thread at a time a handle. For several at once, a handle each
// (BoxManager::find); cancel_fd of an exec may be made readable by any thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "temenos/allowlist_edit.h"
#include "temenos/box_stats.h"
#include "temenos/error.h"
#include "temenos/exec.h"
#include "temenos/exec_result.h"
#include "temenos/files.h"
#include "temenos/jobs.h"

namespace temenos {

// Files that host programs run by themselves and that appeared while a box could write there.
struct NewAutoexec {
  std::string path;  // on the host; escape before printing
  std::string reason;
};

// What a box left in writable directories of the host that a host program would obey by itself.
// To be shown to the person who works there.
struct BoxEnd {
  std::vector<NewAutoexec> made;     // or changed
  std::vector<std::string> indexes;  // git indexes not to be used, a sentence each: why, what to do
  // What could not be looked at, or was not protected to the end; a sentence each.
  std::vector<std::string> unseen;
  bool empty() const { return made.empty() && indexes.empty() && unseen.empty(); }
};

// A box belongs to a project or, with an empty scope, to the user.
struct BoxName {
  std::string scope;  // the project's directory: absolute, no symlink in it
  std::string name;   // 1 to 63 letters, digits, '.', '_', '-'; a letter or digit first
  bool operator==(const BoxName&) const = default;
};

// One of both.
struct PortTarget {
  std::uint16_t port = 0;   // on the box's loopback, IPv4 or else IPv6
  std::string socket_path;  // of a unix stream socket in the box: absolute, at most 107 bytes
};

class Box {
 public:
  struct Impl;  // the library's own
  explicit Box(std::unique_ptr<Impl> impl);
  Box(Box&&) noexcept;
  Box& operator=(Box&&) noexcept;
  ~Box();

  // ---- life
  // With a name: starts it unless it lives, also after an end that nobody has been told of yet
  // (ended() then has it), and connects. Of two handles that do so at once, one starts it. Without
  // a name: an error that says how it ended, unless it lives.
  Result<void> start();
  // Ends it, waits until its last process is gone, and looks at what it wrote. Its files stay, if
  // it has a name. One that had ended before is looked at all the same, unless somebody has.
  Result<BoxEnd> stop();
  // What it has made so far, while it lives. It takes as long as looking through the writable
  // directories does.
  BoxEnd look() const;
  // Somebody keeps it alive. It may end at any moment.
  bool is_alive() const;
  // The look at an earlier life that ended without stop(), made when this handle started the box.
  const BoxEnd& found_at_start() const;
  // Why it ended, as far as a call of this handle has found out, also of an earlier life: a
  // sentence and what to do, and the same as one word for programs ("out_of_memory";
  // docs/box-life.md has them all).
  const std::optional<Error>& ended() const;
  std::string_view end_reason() const;
  // What it uses and what holds its limits, while it lives: does not start it.
  Result<BoxStats> stats();
  // To be shown to the person who started it, a line each. Calls add to it: when a part of a
  // filtered network has died, exec() does.
  const std::vector<std::string>& warnings() const;
  // Something else than the programs in it holds its network to the policy. Where nothing does
  // (cooperative enforcement, the host's network), the reason says so; else it is empty.
  bool network_enforced() const;
  std::string_view network_enforcement_reason() const;

  // ---- commands
  // Returns when the exec is over, even with an open stdin. A stdout or stderr that is closed by
  // its reader ends the exec, as SIGPIPE would; one that fails otherwise (a full disk) ends it and
  // is an error. A command that was ended because its box ran out of memory has a result: SIGKILL,
  // `oom`, and what was captured until then.
  Result<ExecResult> exec(const ExecRequest& request, const ExecIo& io = {});
  // The environment of a command: the box's defaults, then the policy's, then `extra`; "K=V". With
  // cooperative enforcement the proxy's variables are in it once this handle has started the box or
  // connected, and are others after each start.
  std::vector<std::string> environment(const std::map<std::string, std::string>& extra = {}) const;
  // Where a command starts that names no directory.
  const std::string& default_directory() const;

  // ---- jobs: commands that go on until they end or the box does
  // Starts one, without a stdin; gives its number. Also a command that cannot be started becomes a
  // job, which ends at once. Of its output the last part is kept, at most `log_limit` bytes (256
  // KiB to 128 MiB), and of ended jobs the last 100. An exec becomes one by ExecIo::detach_fd; when
  // no job can be made then (a full disk), it goes on as it was.
  Result<std::uint32_t> start_job(const ExecRequest& request,
                                  std::uint64_t log_limit = std::uint64_t{16} << 20);
  // These two do not start the box.
  Result<std::vector<JobInfo>> jobs() const;
  Result<JobInfo> job(std::uint32_t number) const;
  // At most `max_bytes` of its output after `cursor` (0: the beginning). Never waits, and does not
  // start the box.
  Result<JobLog> job_log(std::uint32_t number, std::uint64_t cursor, std::size_t max_bytes) const;
  // True: it is over, and its log is whole. False: the time has passed, or `cancel_fd` became
  // readable. kNotFound: there is no such job.
  Result<bool> wait_job(std::uint32_t number, std::chrono::milliseconds timeout,
                        int cancel_fd = -1);
  // `signal` 0 ends the whole tree for sure, 1 to 64 are sent to the leader or to the tree.
  // kNotFound: it does not run.
  Result<void> signal_job(std::uint32_t number, int signal, bool tree = true);

  // ---- ports
  // A stream socket to a port or socket in the box; the caller closes it. Blocks until the port has
  // answered, at most 10 s. kIo with sys_errno ECONNREFUSED: nobody listens there. It lives as long
  // as this handle, like all connections of forward().
  Result<int> dial(const PortTarget& target);
  // Makes a listener on the host's loopback (port 0: any) and connects whoever comes there to the
  // box, for as long as this handle lives. Gives its port. Every user of the host can connect.
  Result<std::uint16_t> forward(const PortTarget& target, std::uint16_t host_port = 0);

  // ---- the allowlist of a filtered network; see allowlist_edit.h for what holds when
  // kInvalidArgument, all three: the box's network has none.
  Result<std::vector<std::string>> allowed_hosts() const;
  // Entries as in a policy (network.h). All or none: kInvalidArgument names the first bad one. One
  // that is there already is fine.
  Result<AllowlistEdit> allow_hosts(const std::vector<std::string>& entries);
  // Entries as the list has them, in any spelling. All or none: kNotFound says what the list has
  // instead of the first one that is not there.
  Result<AllowlistEdit> deny_hosts(const std::vector<std::string>& entries);

  // ---- files
  // At most `max` bytes from `offset`, of a regular file.
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
  // point, and `/`, is refused with all below it untouched. Recursively it stops at the first entry
  // that it cannot remove.
  Result<std::uint64_t> remove(std::string_view path, bool recursive = false);
  // The content of directory `path`, or the file `path`, as a tar archive (needs `tar` in the box).
  // Blocks until all is written to `fd`.
  Result<void> tar_out(std::string_view path, int fd);
  // Extracts the archive read from `fd` into directory `path`; what is made belongs to the box's
  // root.
  Result<void> tar_in(std::string_view path, int fd);

 private:
  ExecRequest completed(const ExecRequest& request) const;
  std::unique_ptr<Impl> impl_;
};

}  // namespace temenos
