// What a root keeper, and the process that counts a box's files, keep of their rights once a box
// runs.
#pragma once

#include "temenos/error.h"

namespace temenos::jail {

// Drops every capability but those that end a box and remove its files (CAP_KILL, CAP_SETUID and
// CAP_SETGID for the id maps of the removing child, CAP_DAC_OVERRIDE and CAP_FOWNER for the data
// dir), for good.
Result<void> keep_cleanup_rights();

// Drops every capability but those to read any directory of the box, to see which files the sandbox
// has open, and to stop its processes (CAP_DAC_READ_SEARCH, CAP_SYS_PTRACE, CAP_KILL), for good.
Result<void> keep_counting_rights();

}  // namespace temenos::jail
