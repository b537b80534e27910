// The jail of the session process, which parses everything that a box's init says.
//
// What it is for: an exploit in that parser must not be worth much. After enter_session_jail() the
// process has an empty read-only root, its own network, IPC, UTS and mount namespaces, no
// capability, an unprivileged uid that no box maps, a memory limit, and a seccomp allow list
// without open, exec, socket, ptrace and kill. What stays: the descriptors it was started with, and
// those that the keeper sends it.
#pragma once

#include <cstdint>
#include <vector>

#include "jail/lock_down.h"
#include "temenos/error.h"

namespace temenos::jail {

// Locks the calling process down for good. It must have one thread. Fails closed: on an error the
// caller exits.
// `max_file` is for session, which writes the spools of jobs into files that it is handed: no file
// may grow beyond it, and with 0 none may grow or be cut.
Result<void> enter_session_jail(std::uint64_t max_file = 0);

// What the jail must refuse, tried from inside it. For tests and `temenos selftest`.
std::vector<JailProbe> probe_session_jail();

}  // namespace temenos::jail
