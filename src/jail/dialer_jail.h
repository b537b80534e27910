// The jail of dialer, which keeps the host's network and looks up and connects for a box.
//
// What it is for: dialer reads records of front, which the box may own, and answers of name
// servers. An exploit in those readers must not be worth more than the host's network, which is
// what dialer is for: an empty read-only root, own user, mount, IPC, UTS and cgroup namespaces, no
// capability, an unprivileged uid that no box maps, a memory limit, and a seccomp allow list in
// which sockets are TCP or UDP over IPv4 or IPv6, connected and never listening. What stays: the
// host's network namespace, the descriptors it was started with, and those that keeper sends it.
#pragma once

#include <cstdint>

#include "jail/lock_down.h"

namespace temenos::jail {

// Locks the calling process down for good. It must have one thread. Fails closed: on an error the
// caller exits. `max_file`: no file (the log's segments) may grow beyond it.
Result<void> enter_dialer_jail(std::uint64_t max_file);

// What the jail must refuse, tried from inside it. For tests and `temenos selftest`.
std::vector<JailProbe> probe_dialer_jail();

}  // namespace temenos::jail
