#include "egress/address_check.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "base/unique_fd.h"
#include "codec/address.h"
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

std::optional<AddressBlock> nat64_inner(const AddressBlock& address) {
  static const AddressBlock prefix = *parse_block("64:ff9b::/96").block;
  if (!prefix.contains(address)) return std::nullopt;
  AddressBlock out{.v4 = true, .prefix = 32};
  std::copy_n(address.bytes.begin() + 12, 4, out.bytes.begin());
  return out;
}

AddressVerdict check_address(const AddressBlock& address, bool allows_private,
                             const RouteProbe& probe) {
  const auto inner = nat64_inner(address);
  switch (classify(inner ? *inner : address)) {
    case AddressClass::kLoopback:
    case AddressClass::kSpecial:
      return {.why = Why::kSpecialAddress};
    case AddressClass::kPrivate:
      if (!allows_private) return {.why = Why::kPrivateAddress};
      break;
    case AddressClass::kPublic:
      break;
  }
  // A NAT64 could lead back to the host.
  if (inner && probe(*inner).own) return {.why = Why::kHostAddress};
  const Route route = probe(address);
  if (route.own) return {.why = Why::kHostAddress};
  if (route.sys_errno != 0) return {.why = Why::kUnreachable, .sys_errno = route.sys_errno};
  return {};
}

}  // namespace temenos::egress
