// What a root keeper keeps of its rights once a box runs.
#pragma once

#include "temenos/error.h"

namespace temenos::jail {

// Drops every capability but those that end a box and remove its files (CAP_KILL, CAP_SETUID and
// CAP_SETGID for the id maps of the removing child, CAP_DAC_OVERRIDE and CAP_FOWNER for the data
// dir), for good.
Result<void> keep_cleanup_rights();

}  // namespace temenos::jail
