// The seccomp filter that runsc and all its processes run under, and the supervisor that answers
// for it.
//
// What it is for: files that a box writes in a bind mount lie on the host. Without the filter a box
// could leave a setuid program or a file of another owner there: gVisor's gofer and sentry make
// these system calls on the host for it. MS_NOSUID on the box's mount does not help, because the
// file is later run through the host's own mount. What it does not do: it is no replacement for
// gVisor's own filters, which come on top. What it trusts: nothing that runs under it. A system
// call's arguments are read once, from the kernel.
#pragma once

#include "base/unique_fd.h"
#include "temenos/error.h"

namespace temenos::jail {

// Sets no_new_privs and loads the filter into the calling process (which must have one thread, and
// goes on to exec runsc). Returns the listener for answer_runsc().
Result<UniqueFd> load_runsc_filter();

// Answers one request of the listener: a chmod or chown of a file of the box's own overlay (the
// file system `overlay_dev`) is done as asked; on any other file the setuid and setgid bits are
// left out and the owner stays, and the caller is told that it worked, as file systems without
// owners do (vfat's `quiet`). An error means the listener itself is broken.
Result<void> answer_runsc(int listener, dev_t overlay_dev);

}  // namespace temenos::jail
