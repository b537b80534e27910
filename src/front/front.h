// front: the one process that reads what a box sends to the network. Takes the connections and
// questions that the box's router hands to its listeners, wherever they were sent to; asks dialer,
// which decides; and forwards, refuses or answers. Nothing that it reads is trusted, and it can
// reach nothing by itself (jail/front_jail.h).
//
// One loop, one thread. System calls once it serves: epoll, accept4, getsockname, recv, send,
// recvmsg, sendmsg (of answers to DNS datagrams), splice, pipe2, fcntl, setsockopt, shutdown,
// close, clock_gettime, memory.
#pragma once

#include <cstdint>
#include <vector>

#include "base/unique_fd.h"
#include "egress/control.h"
#include "front/connection.h"
#include "front/gate.h"
#include "front/login.h"
#include "temenos/error.h"

namespace temenos::front {

inline constexpr std::size_t kMaxConnections = 1'024;  // alive, or with a question open
// Each has two sockets and, while bytes are held up both ways, two pipes.
inline constexpr unsigned kFdsOfConnection = 6;
inline constexpr unsigned kFdsBeside = 128;

struct Config {
  Times times;
  std::size_t max_connections = kMaxConnections;
  std::size_t max_memory = 48u << 20;  // of first bytes, of all connections together
  std::vector<Target> proxies;         // what is sent there is for the explicit proxy
};
// With the addresses of egress/plan.h, and as many connections as `max_fds` descriptors allow.
Config default_config(std::size_t max_fds);

// Serves until keeper is gone (egress/control.h). An error is a failure of the host or a breach of
// the protocol by keeper.
Result<void> serve(UniqueFd control, egress::Listeners listeners, const Config& config);
// The same for a listener on the host's loopback: all that comes there is for the explicit proxy.
Result<void> serve_proxy(UniqueFd control, UniqueFd listener, Login login, const Config& config);

}  // namespace temenos::front
