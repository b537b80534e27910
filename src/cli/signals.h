// Signals that a terminal or a supervisor sends to temenos while a command runs: they are meant for
// the command, and come by a signalfd(2).
#pragma once

#include "base/unique_fd.h"
#include "temenos/error.h"

namespace temenos::cli {

// Blocks them and makes them come by `fd`, which is made when it is not open. SIGWINCH is one of
// them only `with_resizes`: it must not cancel the start of a box.
Result<void> take_signals(UniqueFd& fd, bool with_resizes);

// The signal that waits in a signalfd; 0: none.
int waiting_signal(int fd);

}  // namespace temenos::cli
