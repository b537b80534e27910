// A command in a box: what to run, and where its bytes go.
//
// Thread-safety: plain values. Ownership: descriptors stay the caller's and are never made
// non-blocking.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace temenos {

struct TerminalSize {
  std::uint16_t rows = 0, cols = 0;  // 0: not known
};
// Of the terminal that `fd` is; nothing when it is none.
std::optional<TerminalSize> terminal_size(int fd);

struct ExecRequest {
  std::vector<std::string> argv;  // argv[0] without a slash is looked up in the PATH of `env`
  // The whole environment, "K=V". Empty: the box's defaults and those of its policy.
  std::vector<std::string> env;
  std::string cwd;                       // absolute; empty: where commands of the box start
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
  // The like: once readable, the exec goes on as a job and the call returns (ExecResult::job).
  int detach_fd = -1;
  std::size_t capture_head = 512 * 1024;  // bytes kept of each captured stream
  std::size_t capture_tail = 512 * 1024;
};

}  // namespace temenos
