// A command on a terminal (-t): what of the caller's terminal a box gets, and the caller's terminal
// while the command has it.
#pragma once

#include <map>
#include <string>

#include "base/unique_fd.h"
#include "temenos/box.h"
#include "temenos/error.h"

namespace temenos::cli {

// -t asks for what cannot be: it goes with no --json, and -i with it needs a terminal as stdin.
Result<void> check_terminal_flags(bool stdin_open, bool json);

// TERM, and COLORTERM where the caller has one: all that programs in a box learn of the caller's
// environment, and only in letters that such names have. A caller without a TERM has "dumb".
// What `own`, the policy's variables, names already is left out.
std::map<std::string, std::string> terminal_variables(
    const std::map<std::string, std::string>& own);

// box.exec() on a terminal of the command's own, with the size of the caller's from its first
// moment on. With a stdin in `io` (a terminal, see above) the caller's is raw until the command is
// over and given back then, whatever became of it. `signals` is of take_signals(); SIGWINCH is
// added to it.
Result<ExecResult> exec_on_terminal(Box& box, ExecRequest request, ExecIo io, UniqueFd& signals);

}  // namespace temenos::cli
