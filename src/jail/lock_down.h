// What the jails of our own processes (session, front, dialer) have in common. Each of them calls
// these in this order, then loads its own allow list (jail/filter.h).
//
// Thread-safety: the calling process must have one thread. Fails closed: on an error it exits.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "jail/filter.h"
#include "temenos/error.h"

namespace temenos::jail {

// Root becomes the unprivileged id that no box maps; for anybody else nothing changes.
Result<void> become_nobody_special();

// An empty read-only root in own user, mount, IPC, UTS and cgroup namespaces, and in those of
// `more` (CLONE_NEW*), as CLONE_NEWNET for who shall have no network.
Result<void> leave_the_host(int more);

struct Bounds {
  std::uint64_t file = 0;             // no file may grow beyond it; 0: none may grow
  std::uint64_t memory = 192u << 20;  // address space; a parser that runs wild ends there
};
// No capability, no new privileges, no core dumps, no new process, not to be inspected, and none of
// it once its parent, keeper, has gone: who is the box's by then does not look at a socket.
Result<void> drop_rights(const Bounds& bounds);

// What each of them needs: bytes to and from descriptors that it has, polling, clocks, memory
// without execution, its own end. No sendmsg(2): descriptors under way are counted for all boxes of
// a user (ETOOMANYREFS in unix(7)), and a filter sees only on which socket they are sent.
std::vector<Rule> everyday_rules();

// What a jail must refuse, tried from inside it. For tests and `temenos selftest`.
struct JailProbe {
  std::string attempt;  // "open", "exec", "unix socket", "ptrace", "kill", ...
  bool refused = false;
};
// Makes a probe of what a raw system call has returned: what libc would refuse by itself must not
// count.
JailProbe probe(const char* attempt, long result);
// What all of the jails refuse.
std::vector<JailProbe> probe_every_jail();

}  // namespace temenos::jail
