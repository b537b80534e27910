// The kernel's settings of the two namespaces (sysctl, /proc/sys/net): what a new one inherits from
// the host or from a distribution's defaults must not decide what a box can reach.
#pragma once

#include "temenos/error.h"

namespace temenos::netns {

// Of the calling process' network namespace.
Result<void> settle_box();
Result<void> settle_router();

}  // namespace temenos::netns
