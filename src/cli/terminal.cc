#include "cli/terminal.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string_view>

#include "base/try.h"
#include "box/session_client.h"
#include "cli/signals.h"
#include "proc/terminal.h"

namespace temenos::cli {
namespace {

constexpr std::size_t kMaxTerminalName = 64;

// A path, a space or a control byte in a TERM is none of a terminal's.
bool is_terminal_name(std::string_view text) {
  return !text.empty() && text.size() <= kMaxTerminalName &&
         std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                  std::string_view("._+-").find(c) != std::string_view::npos;
         });
}

}  // namespace

Result<void> check_terminal_flags(bool stdin_open, bool json) {
  if (json) {
    return fail(Code::kUsage, "-t and --json exclude each other", "leave one of them out");
  }
  if (stdin_open && !proc::is_terminal(0)) {
    return fail(Code::kUsage, "stdin is no terminal, and -i -t needs one",
                "leave out -t to pass a file or a pipe, or -i to have the output only");
  }
  return {};
}

std::map<std::string, std::string> terminal_variables(
    const std::map<std::string, std::string>& own) {
  std::map<std::string, std::string> out{{"TERM", "dumb"}};
  for (const char* name : {"TERM", "COLORTERM"}) {
    const char* value = getenv(name);
    if (value != nullptr && is_terminal_name(value)) out[name] = value;
    if (own.contains(name)) out.erase(name);
  }
  return out;
}

Result<ExecResult> exec_on_terminal(Box& box, ExecRequest request, ExecIo io, UniqueFd& signals) {
  // Before the size is read: what changes it after that is seen.
  TRY(take_signals(signals, true));
  io.signal_fd = signals.get();
  for (const int fd : {2, 0, 1}) {
    if (proc::is_terminal(fd)) io.terminal_fd = fd;  // best the one that the output goes to
  }
  request.terminal = terminal_size(io.terminal_fd).value_or(TerminalSize{});
  std::optional<proc::RawTerminal> raw;
  if (io.stdin_fd >= 0) raw.emplace(TRY(proc::RawTerminal::take(io.stdin_fd, io.stdout_fd)));
  auto result = box.exec(request, io);
  // 126, 127: it never ran.
  const bool orderly = result ? result->exit_code && !result->timed_out
                              : exec_failure_status(result.error()) != exit_code(Code::kBoxDied);
  if (raw) {
    raw->give_back(orderly ? proc::RawTerminal::End::kOrderly : proc::RawTerminal::End::kCutOff);
    // What is said next does not stand behind a prompt of the box.
    const bool says_why = !orderly && (!result || result->timed_out);
    if (says_why && proc::is_terminal(2)) fputc('\n', stderr);
  }
  return result;
}

}  // namespace temenos::cli
