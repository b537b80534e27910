// Whether the host may connect, for a box, to an address: the last word before each connection,
// whatever a name resolved to.
//
// Thread-safety: as the system calls.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "base/unique_fd.h"
#include "egress/dial_protocol.h"
#include "temenos/error.h"
#include "temenos/network.h"

namespace temenos::egress {

// What the host's routes say of an address.
struct Route {
  bool own = false;   // the host's own address, by now: they change while a box lives
  int sys_errno = 0;  // there is no route, or it could not be asked
};
using RouteProbe = std::function<Route(const AddressBlock&)>;

// Asks the host, each time. A UDP socket is connected, which sends nothing: where its own address
// is its peer's, the host has it. Not the other way round: to the second address of a network, and
// to those of a route of type local, the host goes from another of its addresses. So the kernel is
// asked for the type of the route as well (rtnetlink(7), RTM_GETROUTE).
class HostRoutes {
 public:
  // Opens the socket to the kernel, which no jail allows.
  static Result<HostRoutes> open();
  // System calls: socket, connect, getsockname, close, sendto, recvfrom.
  Route ask(const AddressBlock& address);

 private:
  explicit HostRoutes(UniqueFd kernel) : kernel_(std::move(kernel)) {}
  Route ask_kernel(const AddressBlock& address);

  UniqueFd kernel_;
  std::uint32_t sequence_ = 0;
};

struct AddressVerdict {
  Why why = Why::kNone;  // kUnreachable: allowed, and there is no route; `sys_errno` says how
  int sys_errno = 0;
};
// `allows_private`: of the rule that decided. An address that carries an IPv4 address for a NAT64
// is what that one is: one of 64:ff9b::/96 that alone, one of the prefixes in `nat64` both.
AddressVerdict check_address(const AddressBlock& address, bool allows_private,
                             const RouteProbe& probe, std::span<const AddressBlock> nat64 = {});

}  // namespace temenos::egress
