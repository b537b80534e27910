// The seccomp filter that runsc and all its processes run under, and the supervisor that answers
// for it.
//
// What it is for: files that a box writes in a bind mount lie on the host, and gVisor's processes
// make the system calls for it. Without the filter a box could leave a setuid program or a file of
// another owner there (MS_NOSUID on the box's mount does not help: the file is later run through
// the host's own mount), and could rename a protected directory: the kernel refuses that for mount
// points, but looks only at those of the caller's mount namespace, and the sentry has none of ours.
// What it does not do: it is no replacement for gVisor's own filters, which come on top.
// What it trusts: nothing that runs under it. Descriptors are pinned and names copied before they
// are judged, and the supervisor then makes the call itself, in its own mount namespace, on exactly
// those.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "temenos/error.h"

namespace temenos::jail {

// Takes the capabilities that runsc never needs out of the calling process for good: file
// capabilities, modules, raw I/O, clocks and the like. They hold in the box's user namespace only,
// and still nobody should have them.
Result<void> drop_what_runsc_never_needs();

struct FilterOptions {
  // fallocate(2) may reserve space of a file system. It does so for any size in an instant, which
  // nobody who only watches what a box uses can be in time for.
  bool preallocates = true;
  // The only ones of which socket(2) makes one; empty: all. Some families reach past a network
  // namespace (AF_VSOCK), others are kernel code that runsc has no use for.
  std::vector<int> socket_families;
};
// Sets no_new_privs and loads the filter into the calling process (which must have one thread, and
// goes on to exec runsc). Returns the listener for answer_runsc().
Result<UniqueFd> load_runsc_filter(const FilterOptions& options = {});

// Answers one request of the listener. The calling process must be root of the box's user
// namespace, and in a mount namespace in which what must not be renamed is a mount point.
//   chmod, chown   of a file of the box's own overlay (the file system `overlay_dev`): done as
//   asked. On any other
//                  file the setuid and setgid bits are left out and the owner stays, and the caller
//                  is told that it worked, as file systems without owners do (vfat's `quiet`).
//   rename, unlink done here, where the kernel sees our mount points (EBUSY).
//   exit_group     let through, and returned: a process that says it ended by itself, one that does
//                  not was killed. No wait status tells the two apart, because runsc passes on the
//                  guest's as its own.
//   kill           with SIGKILL: let through, and returned, before the other one can die of it.
// An error means the listener itself is broken.
struct Farewell {
  pid_t process = -1;
  pid_t parent = -1;
  std::string name;  // its argv[0], at most 31 bytes; the process' own word
  int status = -1;   // what it asks to exit with, 0 to 255
  // Not 0: it does not leave, but is about to end this process by SIGKILL.
  pid_t kills = 0;
};
Result<std::optional<Farewell>> answer_runsc(int listener, dev_t overlay_dev);

}  // namespace temenos::jail
