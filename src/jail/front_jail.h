// The jail of front, which reads everything that a box sends to the network.
//
// What it is for: who has taken front over shall get no more than the box has anyway. After
// enter_front_jail() the process has the common lock-down (jail/lock_down.h), an own network
// namespace without any device, and no call that makes a socket, connects one or gives it another
// address, or passes a descriptor on. What stays: listeners of the box's router, and connections
// that dialer has made, as it is handed them.
#pragma once

#include <span>
#include <vector>

#include "base/unique_fd.h"
#include "jail/lock_down.h"
#include "temenos/error.h"

namespace temenos::jail {

// Locks the calling process down for good. The result is how many descriptors it may have: its hard
// limit, and at most `max_fds`. sendmsg(2) stays for `datagrams`, which get other numbers: the
// address that a datagram comes from goes beside it. Fails closed: on an error the caller exits.
Result<unsigned> enter_front_jail(unsigned max_fds, std::span<UniqueFd* const> datagrams);

// What it must refuse, tried from inside. For tests and `temenos selftest`.
std::vector<JailProbe> probe_front_jail();

}  // namespace temenos::jail
