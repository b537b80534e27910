#include "testing/packet_recorder.h"

#include <arpa/inet.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace temenos::testing {
namespace {

constexpr int kRoom = 64 << 20;  // between two looks of the thread
constexpr unsigned char kSyn = 0x02;
constexpr unsigned char kAck = 0x10;

[[noreturn]] void fatal(const char* what) {
  perror(what);
  abort();
}

int number16(const unsigned char* at) { return at[0] << 8 | at[1]; }

std::string address(const unsigned char* bytes, bool v6) {
  char text[INET6_ADDRSTRLEN] = "";
  inet_ntop(v6 ? AF_INET6 : AF_INET, bytes, text, sizeof text);
  return text;
}

std::string with_port(const std::string& address, int port) {
  const bool v6 = address.find(':') != std::string::npos;
  return (v6 ? "[" + address + "]" : address) + ":" + std::to_string(port);
}

// The name that a DNS question asks for, with what is no letter of a name written as \N.
std::string question(const unsigned char* bytes, std::size_t size) {
  std::string name;
  for (std::size_t at = 12; at < size && bytes[at] != 0;) {
    const std::size_t length = bytes[at++];
    if (length > 63 || at + length > size) return name + "(cut)";
    if (!name.empty()) name += '.';
    for (std::size_t i = 0; i < length; ++i) {
      const int c = tolower(bytes[at + i]);
      name += isalnum(c) || c == '-' || c == '_' ? std::string(1, static_cast<char>(c))
                                                 : "\\" + std::to_string(c);
    }
    at += length;
  }
  return name;
}

// Behind IPv6's extension headers: where, and which protocol. A later fragment has none.
std::pair<std::size_t, int> payload6(const unsigned char* packet, std::size_t size) {
  int next = packet[6];
  std::size_t at = 40;
  for (int n = 0; n < 8 && at + 8 <= size; ++n) {
    if (next == IPPROTO_FRAGMENT && (number16(packet + at + 2) & ~7) != 0) break;
    if (next != IPPROTO_HOPOPTS && next != IPPROTO_ROUTING && next != IPPROTO_DSTOPTS &&
        next != IPPROTO_FRAGMENT) {
      break;
    }
    const std::size_t length = next == IPPROTO_FRAGMENT ? 8 : (packet[at + 1] + 1u) * 8;
    next = packet[at];
    at += length;
  }
  return {at, next};
}

// What hosts say to their neighbours and routers by themselves, and the errors of packets that
// came.
bool is_upkeep(int protocol, const unsigned char* bytes, std::size_t size) {
  if (size < 1) return false;
  const int type = bytes[0];
  if (protocol == IPPROTO_ICMPV6) return (type >= 130 && type <= 137) || type == 143;
  return false;
}
bool is_error(int protocol, const unsigned char* bytes, std::size_t size) {
  if (size < 1) return false;
  return protocol == IPPROTO_ICMPV6 ? bytes[0] >= 1 && bytes[0] <= 4 : bytes[0] == 3;
}

}  // namespace

UniqueFd PacketRecorder::open_socket(unsigned interface) {
  UniqueFd fd(socket(AF_PACKET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) fatal("a packet socket");
  if (setsockopt(fd.get(), SOL_SOCKET, SO_RCVBUFFORCE, &kRoom, sizeof kRoom) != 0) {
    fatal("SO_RCVBUFFORCE");
  }
  sockaddr_ll to{};
  to.sll_family = AF_PACKET;
  to.sll_protocol = htons(ETH_P_ALL);
  to.sll_ifindex = static_cast<int>(interface);
  if (bind(fd.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to) != 0) fatal("bind");
  return fd;
}

PacketRecorder::PacketRecorder(UniqueFd internet, UniqueFd loopback,
                               std::set<std::string> resolvers)
    : internet_(std::move(internet)),
      loopback_(std::move(loopback)),
      end_(eventfd(0, EFD_CLOEXEC)),
      resolvers_(std::move(resolvers)),
      reader_([this] { read_on(); }) {}

PacketRecorder::~PacketRecorder() {
  if (eventfd_write(end_.get(), 1) != 0) fatal("eventfd");
  reader_.join();
}

void PacketRecorder::read_on() {
  for (;;) {
    pollfd fds[] = {
        {internet_.get(), POLLIN, 0}, {loopback_.get(), POLLIN, 0}, {end_.get(), POLLIN, 0}};
    if (poll(fds, 3, -1) < 0) continue;
    if (fds[2].revents != 0) return;
    const std::lock_guard lock(mutex_);
    drain(internet_.get(), "");
    drain(loopback_.get(), "host ");
  }
}

std::set<std::string> PacketRecorder::record() {
  const std::lock_guard lock(mutex_);
  drain(internet_.get(), "");
  drain(loopback_.get(), "host ");
  return seen_;
}

void PacketRecorder::forget() {
  (void)record();
  const std::lock_guard lock(mutex_);
  seen_.clear();
}

void PacketRecorder::drain(int fd, const char* before) {
  unsigned char packet[2048];
  sockaddr_ll from{};
  socklen_t size = sizeof from;
  ssize_t n = 0;
  while ((n = recvfrom(fd, packet, sizeof packet, 0, reinterpret_cast<sockaddr*>(&from), &size)) >
         0) {
    const int protocol = ntohs(from.sll_protocol);
    // Of loopback each packet is seen twice; in the internet its own servers talk by loopback, too.
    const bool inner = *before == '\0' && from.sll_hatype == 772 /* ARPHRD_LOOPBACK */;
    if (from.sll_pkttype != PACKET_OUTGOING && !inner &&
        (protocol == ETH_P_IP || protocol == ETH_P_IPV6)) {
      note(packet, static_cast<std::size_t>(n), protocol == ETH_P_IPV6, before);
    }
    size = sizeof from;
  }
  tpacket_stats stats{};
  size = sizeof stats;
  if (getsockopt(fd, SOL_PACKET, PACKET_STATISTICS, &stats, &size) == 0 && stats.tp_drops > 0) {
    seen_.insert("packets that the recorder missed");
  }
}

void PacketRecorder::note(const unsigned char* packet, std::size_t size, bool v6,
                          const char* before) {
  if (size < (v6 ? 40u : 20u)) return;
  const std::string from = address(packet + (v6 ? 8 : 12), v6);
  const std::string to = address(packet + (v6 ? 24 : 16), v6);
  auto [at, protocol] =
      v6 ? payload6(packet, size) : std::pair<std::size_t, int>((packet[0] & 15u) * 4, packet[9]);
  const bool later = !v6 && (number16(packet + 6) & 0x1fff) != 0;
  if (later || at >= size) protocol = -1;
  const unsigned char* rest = packet + at;
  const std::size_t left = at < size ? size - at : 0;
  if (protocol == IPPROTO_TCP && left >= 14) {
    note_tcp(from, to, rest, left, before);
  } else if (protocol == IPPROTO_UDP && left >= 8) {
    note_udp(to, rest, left, before);
  } else if (protocol == IPPROTO_ICMP || protocol == IPPROTO_ICMPV6) {
    // A resolver's late answer finds nobody.
    const bool late = is_error(protocol, rest, left) && resolvers_.contains(to);
    if (!is_upkeep(protocol, rest, left) && !late) seen_.insert(before + ("icmp " + to));
  } else {
    seen_.insert(before + ("ip " + std::to_string(protocol) + " " + to));
  }
}

void PacketRecorder::note_tcp(const std::string& from, const std::string& to,
                              const unsigned char* segment, std::size_t size, const char* before) {
  if (size < 14) return;
  const std::string source = with_port(from, number16(segment));
  const std::string target = with_port(to, number16(segment + 2));
  const unsigned char flags = segment[13];
  if ((flags & kSyn) != 0 && (flags & kAck) == 0) {
    flows_.insert(source + " " + target);
    seen_.insert(before + ("tcp " + target));
  } else if (!flows_.contains(source + " " + target) && !flows_.contains(target + " " + source)) {
    seen_.insert(before + ("stray tcp " + target));
  }
}

void PacketRecorder::note_udp(const std::string& to, const unsigned char* datagram,
                              std::size_t size, const char* before) {
  const int port = number16(datagram + 2);
  if (port == 53 && resolvers_.contains(to)) {
    seen_.insert(before + ("dns " + question(datagram + 8, size - 8)));
  } else {
    seen_.insert(before + ("udp " + with_port(to, port)));
  }
}

}  // namespace temenos::testing
