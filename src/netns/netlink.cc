#include "netns/netlink.h"

#include <arpa/inet.h>
#include <libmnl/libmnl.h>
#include <linux/fib_rules.h>
#include <linux/if_addr.h>
#include <linux/if_link.h>
#include <linux/neighbour.h>
#include <linux/rtnetlink.h>
#include <linux/veth.h>
#include <net/if.h>
#include <poll.h>

#include <cerrno>
#include <utility>

#include "base/try.h"

namespace temenos::netns {
namespace {

constexpr std::uint8_t kOperUp = 6;  // IF_OPER_UP of linux/if.h, which does not go with net/if.h
constexpr char kMemory[] = "try again when the host has more memory free";

struct Address {
  int family = AF_UNSPEC;
  std::array<std::uint8_t, 16> bytes{};
  std::size_t size() const { return family == AF_INET ? 4 : 16; }
};

Result<Address> parse(const std::string& text) {
  Address out;
  out.family = text.find(':') == std::string::npos ? AF_INET : AF_INET6;
  if (inet_pton(out.family, text.c_str(), out.bytes.data()) != 1) {
    return fail(Code::kInvalidArgument, "no address: " + text);
  }
  return out;
}

int look_at_attribute(const nlattr* attribute, void* up) {
  if (mnl_attr_get_type(attribute) == IFLA_OPERSTATE) {
    *static_cast<bool*>(up) = mnl_attr_get_u8(attribute) == kOperUp;
  }
  return MNL_CB_OK;
}

template <typename T>
T* header(nlmsghdr* request) {
  return static_cast<T*>(mnl_nlmsg_put_extra_header(request, sizeof(T)));
}

void put_link(nlmsghdr* request, const Netlink::End& end, std::uint32_t mtu) {
  mnl_attr_put_strz(request, IFLA_IFNAME, end.name);
  mnl_attr_put_u32(request, IFLA_MTU, mtu);
  mnl_attr_put(request, IFLA_ADDRESS, sizeof(Mac), end.mac);
}

}  // namespace

Result<Netlink> Netlink::open(unsigned groups) {
  mnl_socket* socket = mnl_socket_open2(NETLINK_ROUTE, SOCK_CLOEXEC);
  if (socket == nullptr) return fail_errno(errno, "opening a netlink socket");
  Netlink out(socket);
  if (mnl_socket_bind(socket, groups, MNL_SOCKET_AUTOPID) != 0) {
    return fail_errno(errno, "binding a netlink socket");
  }
  return out;
}

Netlink::Netlink(Netlink&& other) noexcept
    : socket_(std::exchange(other.socket_, nullptr)), sequence_(other.sequence_) {}

Netlink::~Netlink() {
  if (socket_ != nullptr) mnl_socket_close(socket_);
}

nlmsghdr* Netlink::begin(std::uint16_t type, std::uint16_t flags) {
  nlmsghdr* request = mnl_nlmsg_put_header(buffer_.data());
  request->nlmsg_type = type;
  request->nlmsg_flags = static_cast<std::uint16_t>(NLM_F_REQUEST | NLM_F_ACK | flags);
  request->nlmsg_seq = ++sequence_;
  return request;
}

Result<void> Netlink::ask(nlmsghdr* request, const std::string& what, const char* hint) {
  const unsigned port = mnl_socket_get_portid(socket_);
  if (mnl_socket_sendto(socket_, request, request->nlmsg_len) < 0) {
    return fail_errno(errno, what, kMemory);
  }
  // The kernel has done it, or not, when the send returns: the answer is there.
  const ssize_t size = mnl_socket_recvfrom(socket_, buffer_.data(), buffer_.size());
  if (size < 0) return fail_errno(errno, what, kMemory);
  if (mnl_cb_run(buffer_.data(), static_cast<std::size_t>(size), sequence_, port, nullptr,
                 nullptr) < 0) {
    return fail_errno(errno, what, hint);
  }
  return {};
}

Result<void> Netlink::link_up(unsigned index) {
  nlmsghdr* request = begin(RTM_NEWLINK, 0);
  auto* link = header<ifinfomsg>(request);
  link->ifi_index = static_cast<int>(index);
  link->ifi_flags = IFF_UP;
  link->ifi_change = IFF_UP;
  return ask(request, "setting a link up");
}

Result<void> Netlink::wait_until_up(unsigned index, int timeout_ms) {
  struct Wanted {
    unsigned index;
    bool up = false;
  } wanted{index};
  const auto look = [](const nlmsghdr* news, void* data) {
    auto* const link = static_cast<Wanted*>(data);
    const auto* body = static_cast<const ifinfomsg*>(mnl_nlmsg_get_payload(news));
    if (news->nlmsg_type != RTM_NEWLINK || body->ifi_index != static_cast<int>(link->index)) {
      return MNL_CB_OK;
    }
    return mnl_attr_parse(news, sizeof *body, look_at_attribute, &link->up);
  };
  while (!wanted.up) {
    pollfd fd{mnl_socket_get_fd(socket_), POLLIN, 0};
    if (poll(&fd, 1, timeout_ms) == 0) {
      return fail(Code::kTimedOut, "the link to the router does not come up", "try again");
    }
    const ssize_t size = mnl_socket_recvfrom(socket_, buffer_.data(), buffer_.size());
    if (size < 0 ||
        mnl_cb_run(buffer_.data(), static_cast<std::size_t>(size), 0, 0, look, &wanted) < 0) {
      return fail_errno(errno, "waiting for the link to the router", kMemory);
    }
  }
  return {};
}

Result<void> Netlink::make_pair(const End& here, const End& there, std::uint32_t mtu,
                                int there_ns) {
  nlmsghdr* request = begin(RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL);
  header<ifinfomsg>(request)->ifi_index = static_cast<int>(here.index);
  put_link(request, here, mtu);
  nlattr* info = mnl_attr_nest_start(request, IFLA_LINKINFO);
  mnl_attr_put_strz(request, IFLA_INFO_KIND, "veth");
  nlattr* data = mnl_attr_nest_start(request, IFLA_INFO_DATA);
  nlattr* peer = mnl_attr_nest_start(request, VETH_INFO_PEER);
  header<ifinfomsg>(request)->ifi_index = static_cast<int>(there.index);
  put_link(request, there, mtu);
  mnl_attr_put_u32(request, IFLA_NET_NS_FD, static_cast<std::uint32_t>(there_ns));
  mnl_attr_nest_end(request, peer);
  mnl_attr_nest_end(request, data);
  mnl_attr_nest_end(request, info);
  return ask(request, "making a veth pair", "the kernel needs veth: sudo modprobe veth");
}

Result<void> Netlink::add_address(unsigned link, const std::string& address, int prefix) {
  const Address parsed = TRY(parse(address));
  nlmsghdr* request = begin(RTM_NEWADDR, NLM_F_CREATE | NLM_F_EXCL);
  auto* message = header<ifaddrmsg>(request);
  message->ifa_family = static_cast<std::uint8_t>(parsed.family);
  message->ifa_prefixlen = static_cast<std::uint8_t>(prefix);
  message->ifa_index = link;
  mnl_attr_put(request, IFA_LOCAL, parsed.size(), parsed.bytes.data());
  mnl_attr_put(request, IFA_ADDRESS, parsed.size(), parsed.bytes.data());
  if (parsed.family == AF_INET6) mnl_attr_put_u32(request, IFA_FLAGS, IFA_F_NODAD);
  return ask(request, "giving a link the address " + address);
}

Result<void> Netlink::add_neighbour(unsigned link, const std::string& address, const Mac& mac) {
  const Address parsed = TRY(parse(address));
  nlmsghdr* request = begin(RTM_NEWNEIGH, NLM_F_CREATE | NLM_F_REPLACE);
  auto* message = header<ndmsg>(request);
  message->ndm_family = static_cast<std::uint8_t>(parsed.family);
  message->ndm_ifindex = static_cast<int>(link);
  message->ndm_state = NUD_PERMANENT;
  mnl_attr_put(request, NDA_DST, parsed.size(), parsed.bytes.data());
  mnl_attr_put(request, NDA_LLADDR, sizeof mac, mac);
  return ask(request, "noting the neighbour " + address);
}

Result<void> Netlink::add_default_route(unsigned link, const std::string& gateway) {
  const Address parsed = TRY(parse(gateway));
  nlmsghdr* request = begin(RTM_NEWROUTE, NLM_F_CREATE | NLM_F_EXCL);
  auto* route = header<rtmsg>(request);
  route->rtm_family = static_cast<std::uint8_t>(parsed.family);
  route->rtm_table = RT_TABLE_MAIN;
  route->rtm_protocol = RTPROT_STATIC;
  route->rtm_scope = RT_SCOPE_UNIVERSE;
  route->rtm_type = RTN_UNICAST;
  mnl_attr_put(request, RTA_GATEWAY, parsed.size(), parsed.bytes.data());
  mnl_attr_put_u32(request, RTA_OIF, link);
  return ask(request, "making the route to " + gateway);
}

Result<void> Netlink::add_mark_rule(int family, std::uint32_t mark, std::uint8_t table) {
  nlmsghdr* request = begin(RTM_NEWRULE, NLM_F_CREATE | NLM_F_EXCL);
  auto* rule = header<fib_rule_hdr>(request);
  rule->family = static_cast<std::uint8_t>(family);
  rule->table = table;
  rule->action = FR_ACT_TO_TBL;
  mnl_attr_put_u32(request, FRA_PRIORITY, 100);
  mnl_attr_put_u32(request, FRA_FWMARK, mark);
  mnl_attr_put_u32(request, FRA_FWMASK, ~0u);
  return ask(request, "making a rule for marked packets",
             "the kernel needs policy routing (CONFIG_IP_MULTIPLE_TABLES)");
}

Result<void> Netlink::add_local_default(int family, std::uint8_t table) {
  nlmsghdr* request = begin(RTM_NEWROUTE, NLM_F_CREATE | NLM_F_EXCL);
  auto* route = header<rtmsg>(request);
  route->rtm_family = static_cast<std::uint8_t>(family);
  route->rtm_table = table;
  route->rtm_protocol = RTPROT_STATIC;
  route->rtm_scope = RT_SCOPE_HOST;
  route->rtm_type = RTN_LOCAL;
  mnl_attr_put_u32(request, RTA_OIF, 1);  // lo
  return ask(request, "making the route to the listeners");
}

}  // namespace temenos::netns
