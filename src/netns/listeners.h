// The sockets of router that front serves.
#pragma once

#include "netns/setup.h"

namespace temenos::netns {

Result<Listeners> make_listeners(const Plan& plan);

}  // namespace temenos::netns
