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
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/unique_fd.h"
#include "temenos/error.h"
#include "temenos/exec_result.h"
#include "wire/box_protocol.h"

namespace temenos {

struct TerminalSize {
  std::uint16_t rows = 0, cols = 0;  // 0: not known
};
// Of the terminal that `fd` is; nothing when it is none.
std::optional<TerminalSize> terminal_size(int fd);

struct ExecRequest {
  std::vector<std::string> argv;  // argv[0] without a slash is looked up in the PATH of `env`
  std::vector<std::string> env;   // the whole environment, "K=V"
  std::string cwd = "/";          // absolute
  std::chrono::milliseconds timeout{0};  // 0: none. Wall clock; then the whole tree is ended
  std::uint64_t output_cap = 0;          // bytes of stdout and stderr together; 0: none
  // The command gets a terminal of this size (and needs TERM in `env`): all its output is stdout,
  // stderr stays empty. The end of stdin_fd is typed as Ctrl-D; without a stdin_fd at once.
  std::optional<TerminalSize> terminal;
};

struct ExecIo {
  int stdin_fd = -1;   // read until its end or the exec's; -1: the command gets /dev/null
  int stdout_fd = -1;  // -1: captured into the result
  int stderr_fd = -1;
  int signal_fd = -1;  // a signalfd(2): each signal read goes to all processes of the exec
  // A terminal whose size is sent each time signal_fd brings SIGWINCH, which then is not forwarded.
  // Of use with ExecRequest::terminal only.
  int terminal_fd = -1;
  int cancel_fd = -1;  // an eventfd(2) or the like: once readable, the tree is ended
  std::size_t capture_head = 512 * 1024;  // bytes kept of each captured stream
  std::size_t capture_tail = 512 * 1024;
};

struct WriteOptions {
  box_wire::Write::How how = box_wire::Write::How::kReplace;
  std::uint32_t mode = box_wire::kKeepMode;
};

struct FileInfo {
  box_wire::FileType type = box_wire::FileType::kOther;
  std::uint32_t mode = 0;
  std::uint32_t uid = 0, gid = 0;  // as the box sees them
  std::uint64_t size = 0;
  std::int64_t mtime_ns = 0;  // since 1970
  std::string target;         // of a symlink; the box wrote it, never follow it outside
};

struct DirEntry {
  std::string name;  // bytes; one component, never "." or ".."
  box_wire::FileType type = box_wire::FileType::kOther;
  std::uint32_t mode = 0;
  std::uint64_t size = 0;
  std::int64_t mtime_ns = 0;
};

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
  // is an error.
  Result<ExecResult> exec(const ExecRequest& request, const ExecIo& io = {});

  // At most `max` bytes from `offset`.
  Result<std::string> read_file(std::string_view path, std::uint64_t max, std::uint64_t offset = 0);
  Result<void> write_file(std::string_view path, std::string_view data,
                          const WriteOptions& options = {});
  // At most `max_entries`, in no order; more is an error.
  Result<std::vector<DirEntry>> list(std::string_view path, std::size_t max_entries = 100'000);
  Result<FileInfo> stat(std::string_view path, bool follow = false);
  Result<void> ping();

  // For read_file to ping: no answer by then is kTimedOut.
  void set_file_deadline(std::chrono::milliseconds deadline);
  // The box keeps a pids group for each exec (else trees are ended by a walk of /proc).
  bool groups() const;

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
