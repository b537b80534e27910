// What a box's root can put on the wire by hand. An honest frame, sent after the forged ones, is
// answered: all that is there by then was caused by them.
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <linux/neighbour.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <netinet/icmp6.h>
#include <netinet/in.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <vector>

#include "netns/setup.h"
#include "tests/integration/frames.h"
#include "tests/integration/netns_fixture.h"

namespace temenos::testing {
namespace {

constexpr char kBox4[] = "198.18.0.2", kRouter4[] = "198.18.0.1";
constexpr char kBox6[] = "fd74:656d:656e:6f73::2", kRouter6[] = "fd74:656d:656e:6f73::1";
const std::string kBroadcast(6, '\xff');
constexpr unsigned kIp4 = 0x0800, kIp6 = 0x86dd, kArp = 0x0806, kVlan = 0x8100;

std::string mac(const std::uint8_t (&bytes)[6]) {
  return std::string(reinterpret_cast<const char*>(bytes), sizeof bytes);
}
std::string honest(unsigned type, const std::string& payload) {
  return ethernet(mac(netns::kRouterMac), mac(netns::kBoxMac), type, payload);
}

// A packet socket on the box's link.
class Wire {
 public:
  Wire() : fd_(socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, htons(ETH_P_ALL))) {
    sockaddr_ll link{};
    link.sll_family = AF_PACKET;
    link.sll_protocol = htons(ETH_P_ALL);
    link.sll_ifindex = static_cast<int>(if_nametoindex("eth0"));
    must(fd_ && bind(fd_.get(), reinterpret_cast<sockaddr*>(&link), sizeof link) == 0, "a wire");
  }
  void send(const std::string& frame) const {
    must(::send(fd_.get(), frame.data(), frame.size(), 0) == static_cast<ssize_t>(frame.size()),
         "sending a frame");
  }
  // The next that comes in.
  std::string receive() const {
    for (;;) {
      pollfd ready{fd_.get(), POLLIN, 0};
      must(poll(&ready, 1, 10'000) == 1, "the honest frame is not answered");
      char frame[2048];
      sockaddr_ll from{};
      socklen_t size = sizeof from;
      const ssize_t n =
          recvfrom(fd_.get(), frame, sizeof frame, 0, reinterpret_cast<sockaddr*>(&from), &size);
      must(n > 0, "receiving a frame");
      if (from.sll_pkttype != PACKET_OUTGOING)
        return std::string(frame, static_cast<std::size_t>(n));
    }
  }

 private:
  UniqueFd fd_;
};

// SYN of this protocol from the box to a port that tells it from others.
std::string honest_syn(bool four, std::uint16_t port) {
  const Ends ends{four ? kBox4 : kBox6, four ? "1.2.3.4" : "2001:db8::1", port, 80};
  return four ? honest(kIp4, ip4(ends, {}, tcp_syn(ends)))
              : honest(kIp6, ip6(ends, IPPROTO_TCP, tcp_syn(ends)));
}
bool is_answer_to(const std::string& frame, bool four, std::uint16_t port) {
  const std::size_t tcp = four ? 34 : 54;
  return frame.size() > tcp + 13 && frame.substr(12, 2) == be16(four ? kIp4 : kIp6) &&
         frame.substr(tcp + 2, 2) == be16(port) && frame[tcp + 13] == 0x12;
}

// None of them is answered, by anything.
void expect_silence(const std::vector<std::string>& forged) {
  const Wire wire;
  std::uint16_t port = 4000;
  for (const auto& frame : forged) wire.send(frame);
  for (const bool four : {true, false}) {
    wire.send(honest_syn(four, ++port));
    const auto first = wire.receive();
    if (!is_answer_to(first, four, port)) {
      for (const char byte : first.substr(0, 80)) {
        fprintf(stderr, "%02x", static_cast<unsigned char>(byte));
      }
      must(false, " was the answer to a forged frame");
    }
  }
}

std::vector<std::string> forged_ip4() {
  std::vector<std::string> out;
  for (const char* from : {kRouter4, "127.0.0.1", "10.9.9.9", "8.8.8.8", "0.0.0.0", "198.18.0.3",
                           "255.255.255.255", "224.0.0.1"}) {
    for (const std::uint16_t port : {std::uint16_t{80}, std::uint16_t{53}}) {
      const Ends ends{from, "1.2.3.4", 4000, port};
      out.push_back(honest(kIp4, ip4(ends, {}, tcp_syn(ends))));
      const std::string question = udp(ends, "a question");
      out.push_back(honest(kIp4, ip4(ends, {.protocol = IPPROTO_UDP}, question)));
    }
  }
  for (const char* to : {"127.0.0.1", "0.0.0.0", "224.0.0.251", "255.255.255.255"}) {
    const Ends ends{kBox4, to, 4000, 53};
    out.push_back(honest(kIp4, ip4(ends, {}, tcp_syn(ends))));
    out.push_back(honest(kIp4, ip4(ends, {.protocol = IPPROTO_UDP}, udp(ends, "a question"))));
  }
  const Ends ends{kBox4, "1.2.3.4", 4000, 53};
  const std::string question = udp(ends, std::string(64, 'q'));
  // Both halves of a datagram; a first part that hides its ports; one that never ends.
  out.push_back(honest(
      kIp4, ip4(ends, {.fragment = 0x2000, .protocol = IPPROTO_UDP}, question.substr(0, 32))));
  out.push_back(
      honest(kIp4, ip4(ends, {.fragment = 4, .protocol = IPPROTO_UDP}, question.substr(32))));
  out.push_back(honest(kIp4, ip4(ends, {.fragment = 0x2000}, tcp_syn(ends).substr(0, 8))));
  // Loose and strict source routes by way of the router, and a record of the route.
  for (const char kind : {'\x83', '\x89', '\x07'}) {
    const std::string options = std::string(1, kind) + "\x07\x04" + address_bytes("8.8.8.8") + "\1";
    out.push_back(honest(kIp4, ip4(ends, {.options = options}, tcp_syn(ends))));
  }
  const std::string plain = ip4(ends, {}, tcp_syn(ends));
  out.push_back(ethernet(kBroadcast, mac(netns::kBoxMac), kIp4, plain));
  out.push_back(ethernet(mac(netns::kRouterMac), std::string("\2\0\0\0\0\7", 6), kIp4, plain));
  out.push_back(honest(kVlan, be16(5) + be16(kIp4) + plain));
  out.push_back(honest(kIp4, plain.substr(0, 30)));
  return out;
}

std::vector<std::string> forged_ip6() {
  std::vector<std::string> out;
  for (const char* from : {kRouter6, "::1", "::", "2001:db8::7", "fe80::1", "::ffff:127.0.0.1",
                           "ff02::1", "fd74:656d:656e:6f73::3"}) {
    for (const std::uint16_t port : {std::uint16_t{80}, std::uint16_t{53}}) {
      const Ends ends{from, "2001:db8::1", 4000, port};
      out.push_back(honest(kIp6, ip6(ends, IPPROTO_TCP, tcp_syn(ends))));
      out.push_back(honest(kIp6, ip6(ends, IPPROTO_UDP, udp(ends, "a question"))));
    }
  }
  for (const char* to : {"::1", "::", "ff02::1", "ff02::fb", "fe80::1", "::ffff:10.0.0.1"}) {
    const Ends ends{kBox6, to, 4000, 53};
    out.push_back(honest(kIp6, ip6(ends, IPPROTO_TCP, tcp_syn(ends))));
    out.push_back(honest(kIp6, ip6(ends, IPPROTO_UDP, udp(ends, "a question"))));
  }
  const Ends ends{kBox6, "2001:db8::1", 4000, 53};
  const std::string syn = tcp_syn(ends);
  const auto next = [](unsigned protocol, std::string_view rest) {
    return std::string(1, static_cast<char>(protocol)) + std::string(rest);
  };
  // Hop-by-hop and destination options, a routing header, a fragment (whole, and the first of two).
  for (const unsigned header : {0u, 60u}) {
    const std::string options = next(IPPROTO_TCP, std::string_view("\0\1\4\0\0\0\0", 7));
    out.push_back(honest(kIp6, ip6(ends, header, options + syn)));
  }
  const std::string routing = next(IPPROTO_TCP, std::string_view("\2\0\1\0\0\0\0", 7));
  out.push_back(honest(kIp6, ip6(ends, 43, routing + address_bytes("2001:db8::8") + syn)));
  for (const char more : {'\0', '\1'}) {
    const std::string fragment =
        next(IPPROTO_TCP, std::string("\0\0", 2) + more + std::string("\0\0\0\7", 4));
    out.push_back(honest(kIp6, ip6(ends, 44, fragment + syn)));
  }
  out.push_back(ethernet(kBroadcast, mac(netns::kBoxMac), kIp6, ip6(ends, IPPROTO_TCP, syn)));
  return out;
}

std::string arp(unsigned operation, const std::string& from_mac, const char* from, const char* to) {
  return be16(1) + be16(kIp4) + std::string("\6\4", 2) + be16(operation) + from_mac +
         address_bytes(from) + std::string(6, '\0') + address_bytes(to);
}

std::string neighbour(unsigned type, const char* from, const char* to, const char* target) {
  std::string message = std::string(1, static_cast<char>(type)) + std::string(3, '\0') +
                        std::string(4, type == ND_NEIGHBOR_ADVERT ? '\x60' : '\0') +
                        address_bytes(target) + std::string("\1\1", 2) + mac(netns::kBoxMac);
  const Ends ends{from, to};
  return ip6(ends, IPPROTO_ICMPV6, with_sum(ends, IPPROTO_ICMPV6, std::move(message), 2));
}

std::vector<std::string> forged_neighbours() {
  std::vector<std::string> out;
  const std::string other("\2\0\0\0\0\7", 6);
  for (int i = 4; i < 200; ++i) {
    const std::string from = "198.18.0." + std::to_string(i);
    out.push_back(ethernet(kBroadcast, mac(netns::kBoxMac), kArp,
                           arp(1, mac(netns::kBoxMac), from.c_str(), kRouter4)));
    const std::string from6 = "fd74:656d:656e:6f73::" + std::to_string(i);
    out.push_back(honest(kIp6, neighbour(ND_NEIGHBOR_SOLICIT, from6.c_str(), kRouter6, kRouter6)));
    const std::string local = "fe80::" + std::to_string(i);
    out.push_back(honest(kIp6, neighbour(ND_NEIGHBOR_SOLICIT, local.c_str(), kRouter6, kRouter6)));
  }
  for (const unsigned operation : {1u, 2u}) {  // "I am the router", to itself
    out.push_back(ethernet(kBroadcast, mac(netns::kBoxMac), kArp,
                           arp(operation, mac(netns::kBoxMac), kRouter4, kRouter4)));
    out.push_back(ethernet(kBroadcast, mac(netns::kBoxMac), kArp,
                           arp(operation, other, kBox4, "198.18.0.3")));
  }
  out.push_back(honest(kIp6, neighbour(ND_NEIGHBOR_ADVERT, kRouter6, "ff02::1", kRouter6)));
  out.push_back(honest(kIp6, neighbour(ND_NEIGHBOR_ADVERT, kBox6, kRouter6, "2001:db8::1")));
  out.push_back(honest(kIp6, neighbour(ND_ROUTER_ADVERT, "fe80::1", "ff02::1", kRouter6)));
  out.push_back(honest(kIp6, neighbour(ND_REDIRECT, kBox6, kRouter6, kRouter6)));
  return out;
}

class NetnsFrames : public NetnsTest {
 protected:
  void send_forged(std::vector<std::string> (*forged)()) {
    in(Place::kBox, [forged] {
      expect_silence(forged());
      return 0;
    });
    // Nor did any of it come to a listener: the honest ones were SYNs that nobody went on with.
    for (const auto& listener : listeners_) EXPECT_FALSE(readable(listener.get(), 0));
  }
};

TEST_F(NetnsFrames, ForgedIp4GetsNowhere) { send_forged(forged_ip4); }
TEST_F(NetnsFrames, ForgedIp6GetsNowhere) { send_forged(forged_ip6); }

// How many neighbours the kernel has noted that were not given to it. The table is one for all
// namespaces of the host.
int learnt_neighbours() {
  const UniqueFd fd(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE));
  struct {
    nlmsghdr header;
    ndmsg body;
  } request{};
  request.header = {sizeof request, RTM_GETNEIGH, NLM_F_REQUEST | NLM_F_DUMP, 1, 0};
  must(send(fd.get(), &request, sizeof request, 0) == sizeof request, "asking for neighbours");
  int learnt = 0;
  for (;;) {
    alignas(nlmsghdr) char buffer[32768];
    auto left =
        static_cast<unsigned>(std::max<ssize_t>(recv(fd.get(), buffer, sizeof buffer, 0), 0));
    must(left > 0, "hearing of neighbours");
    for (auto* header = reinterpret_cast<nlmsghdr*>(buffer); NLMSG_OK(header, left);
         header = NLMSG_NEXT(header, left)) {
      if (header->nlmsg_type == NLMSG_DONE) return learnt;
      must(header->nlmsg_type == RTM_NEWNEIGH, "no neighbours");
      const auto* entry = static_cast<const ndmsg*>(NLMSG_DATA(header));
      if ((entry->ndm_state & (NUD_PERMANENT | NUD_NOARP)) == 0) ++learnt;
    }
  }
}

TEST_F(NetnsFrames, ForgedNeighboursAreNotAnsweredAndNotNoted) {
  send_forged(forged_neighbours);
  in(Place::kRouter, [] {
    const int learnt = learnt_neighbours();
    must(learnt == 0, std::to_string(learnt) + " neighbours were learnt");
    return 0;
  });
}

// The form in which an honest stack asks.
TEST_F(NetnsFrames, TheRoutersHardwareAddressIsTold) {
  in(Place::kBox, [] {
    const Wire wire;
    wire.send(ethernet(kBroadcast, mac(netns::kBoxMac), kArp,
                       arp(1, mac(netns::kBoxMac), kBox4, kRouter4)));
    const std::string told = wire.receive();
    must(told.substr(12, 2) == be16(kArp) && told.substr(22, 6) == mac(netns::kRouterMac), "ARP");
    const std::string group("\x33\x33\xff\0\0\1", 6);
    wire.send(ethernet(group, mac(netns::kBoxMac), kIp6,
                       neighbour(ND_NEIGHBOR_SOLICIT, kBox6, "ff02::1:ff00:1", kRouter6)));
    const std::string advert = wire.receive();
    must(advert.size() > 86 - 1 && advert.substr(12, 2) == be16(kIp6) &&
             static_cast<unsigned char>(advert[54]) == ND_NEIGHBOR_ADVERT &&
             advert.substr(80, 6) == mac(netns::kRouterMac),
         "neighbour discovery");
    return 0;
  });
}

}  // namespace
}  // namespace temenos::testing
