// Whether the host may connect, for a box, to an address: the last word before each connection,
// whatever a name resolved to.
//
// Thread-safety: as the system calls.
#pragma once

#include <functional>
#include <span>

#include "egress/dial_protocol.h"
#include "temenos/network.h"

namespace temenos::egress {

// What the host's routes say of an address.
struct Route {
  bool own = false;   // the host's own address, by now: they change while a box lives
  int sys_errno = 0;  // there is no route, or it could not be asked
};
// A UDP socket is connected, which sends nothing: where its own address is its peer's, the host has
// it. System calls: socket, connect, getsockname, close.
Route probe_route(const AddressBlock& address);
using RouteProbe = std::function<Route(const AddressBlock&)>;

struct AddressVerdict {
  Why why = Why::kNone;  // kUnreachable: allowed, and there is no route; `sys_errno` says how
  int sys_errno = 0;
};
// `allows_private`: of the rule that decided. An address that carries an IPv4 address for a NAT64
// is what that one is: one of 64:ff9b::/96 that alone, one of the prefixes in `nat64` both.
AddressVerdict check_address(const AddressBlock& address, bool allows_private,
                             const RouteProbe& probe, std::span<const AddressBlock> nat64 = {});

}  // namespace temenos::egress
