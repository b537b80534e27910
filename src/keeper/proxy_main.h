// A keeper without a box: front and dialer as an explicit proxy on the host's loopback, for any
// program of the host (temenos/egress_proxy.h). It lives as long as its control socket is open; no
// byte of a client comes to it.
#pragma once

#include <string>

namespace temenos::keeper {

// temenos-keeper --proxy DIALER FRONT, with the descriptors 3: SOCK_SEQPACKET to who started it, 4
// and 5: the segments of the log, 6: a sealed file with the rules, one a line.
inline constexpr char kBeProxy[] = "--proxy";
inline constexpr int kProxyFds = 4;  // from 3 on

// Says kReady with the proxy's address when both are locked down, or kFailed; then answers what
// network_requests.h knows, until the other side has gone. Returns the exit status.
int proxy_main(const std::string& dialer, const std::string& front);

}  // namespace temenos::keeper
