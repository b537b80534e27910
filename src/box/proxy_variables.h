// What programs are told of a proxy on the host's loopback, and people of what it does not hold.
//
// Thread-safety: pure functions.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "keeper/messages.h"

namespace temenos::box {

inline constexpr std::string_view kCooperativeBox =
    "the network of this box is cooperative, not a boundary: it is the host's, and only programs "
    "that heed HTTP_PROXY and HTTPS_PROXY are held to the allowlist";

// HTTP_PROXY and the like, with the password. There is deliberately no NO_PROXY: loopback is the
// host's here, and the list says what of it may be reached.
std::map<std::string, std::string> proxy_variables(const keeper::ProxyAddress& proxy);

}  // namespace temenos::box
