#include "egress/address_check.h"

#include <linux/rtnetlink.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "codec/address.h"
#include "egress/nat64.h"
#include "egress/socket_address.h"

namespace temenos::egress {
namespace {

constexpr std::uint16_t kAnyPort = 9;  // nothing is sent

Route probe_route(const AddressBlock& address) {
  const SocketAddress to(address, kAnyPort);
  const UniqueFd socket(::socket(to.family(), SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!socket) return {.sys_errno = errno};
  if (connect(socket.get(), to.get(), to.size()) != 0) return {.sys_errno = errno};
  const auto local = local_address(socket.get());
  if (!local) return {.sys_errno = EIO};
  return {.own = *local == address};
}

struct RouteRequest {
  nlmsghdr header{};
  rtmsg route{};
  rtattr to{};
  std::uint8_t address[16] = {};
};
static_assert(sizeof(RouteRequest) == NLMSG_LENGTH(sizeof(rtmsg)) + RTA_LENGTH(16));

}  // namespace

Result<HostRoutes> HostRoutes::open() {
  UniqueFd kernel(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_ROUTE));
  if (!kernel) {
    return fail_errno(errno, "the kernel cannot be asked for the host's routes",
                      "allow netlink sockets where temenos runs");
  }
  return HostRoutes(std::move(kernel));
}

Route HostRoutes::ask(const AddressBlock& address) {
  const Route probed = probe_route(address);
  return probed.own || probed.sys_errno != 0 ? probed : ask_kernel(address);
}

// What is not understood is no route.
Route HostRoutes::ask_kernel(const AddressBlock& address) {
  const std::size_t size = address.v4 ? 4 : 16;
  RouteRequest request;
  request.header.nlmsg_type = RTM_GETROUTE;
  request.header.nlmsg_flags = NLM_F_REQUEST;
  request.header.nlmsg_seq = ++sequence_;
  request.header.nlmsg_len =
      static_cast<std::uint32_t>(NLMSG_LENGTH(sizeof(rtmsg)) + RTA_LENGTH(size));
  request.route.rtm_family = address.v4 ? AF_INET : AF_INET6;
  request.route.rtm_dst_len = static_cast<std::uint8_t>(size * 8);
  request.to.rta_type = RTA_DST;
  request.to.rta_len = static_cast<std::uint16_t>(RTA_LENGTH(size));
  std::copy_n(address.bytes.begin(), size, request.address);
  if (send(kernel_.get(), &request, request.header.nlmsg_len, 0) < 0) return {.sys_errno = errno};
  for (;;) {
    alignas(nlmsghdr) char bytes[4096];
    // The kernel has answered before send() returned.
    const ssize_t count = recv(kernel_.get(), bytes, sizeof bytes, 0);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return {.sys_errno = errno};
    nlmsghdr header;
    if (count < static_cast<ssize_t>(sizeof header)) return {.sys_errno = EIO};
    std::memcpy(&header, bytes, sizeof header);
    if (header.nlmsg_seq != request.header.nlmsg_seq) continue;  // of one that was given up
    nlmsgerr failure{};
    rtmsg route{};
    if (header.nlmsg_type == NLMSG_ERROR &&
        count >= static_cast<ssize_t>(NLMSG_LENGTH(sizeof failure))) {
      std::memcpy(&failure, bytes + NLMSG_HDRLEN, sizeof failure);
      return {.sys_errno = failure.error < 0 ? -failure.error : EIO};
    }
    if (header.nlmsg_type != RTM_NEWROUTE ||
        count < static_cast<ssize_t>(NLMSG_LENGTH(sizeof route))) {
      return {.sys_errno = EIO};
    }
    std::memcpy(&route, bytes + NLMSG_HDRLEN, sizeof route);
    return {.own = route.rtm_type != RTN_UNICAST};
  }
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
