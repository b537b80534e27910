#include "egress/address_check.h"

#include <sys/socket.h>

#include <cerrno>

#include "base/unique_fd.h"
#include "codec/address.h"
#include "egress/nat64.h"
#include "egress/socket_address.h"

namespace temenos::egress {
namespace {

constexpr std::uint16_t kAnyPort = 9;  // nothing is sent

}  // namespace

Route probe_route(const AddressBlock& address) {
  const SocketAddress to(address, kAnyPort);
  const UniqueFd socket(::socket(to.family(), SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!socket) return {.sys_errno = errno};
  if (connect(socket.get(), to.get(), to.size()) != 0) return {.sys_errno = errno};
  const auto local = local_address(socket.get());
  if (!local) return {.sys_errno = EIO};
  return {.own = *local == address};
}

AddressVerdict check_address(const AddressBlock& address, bool allows_private,
                             const RouteProbe& probe, std::span<const AddressBlock> nat64) {
  const auto inner = nat64_inner(address, nat64);
  auto all = inner;
  // A prefix that was learned is a name server's word: it opens nothing that was closed before.
  if (!is_well_known_nat64(address)) all.push_back(address);
  for (const AddressBlock& one : all) {
    const AddressClass is = classify(one);
    if (is == AddressClass::kLoopback || is == AddressClass::kSpecial) {
      return {.why = Why::kSpecialAddress};
    }
    if (is == AddressClass::kPrivate && !allows_private) return {.why = Why::kPrivateAddress};
  }
  // A NAT64 could lead back to the host.
  for (const AddressBlock& one : inner) {
    if (probe(one).own) return {.why = Why::kHostAddress};
  }
  const Route route = probe(address);
  if (route.own) return {.why = Why::kHostAddress};
  if (route.sys_errno != 0) return {.why = Why::kUnreachable, .sys_errno = route.sys_errno};
  return {};
}

}  // namespace temenos::egress
