// What init gives up for itself and, by the bounding set, for all that it starts.
#pragma once

namespace temenos::init {

// Leaves the fourteen capabilities that container runtimes leave by default, in the permitted,
// effective and bounding sets. Inside a box this is convenience, not containment (a guest can
// always make a user namespace); it keeps RLIMIT_NPROC meaningful, which CAP_SYS_ADMIN would lift.
// False when the process may not change its sets and still holds more.
bool drop_capabilities();

}  // namespace temenos::init
