// A box's way out, tried with the stack of this kernel: what reaches the listeners, and that
// nothing goes anywhere else.
#include <arpa/inet.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <netinet/icmp6.h>
#include <netinet/in.h>
#include <netinet/ip_icmp.h>
#include <netpacket/packet.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <fstream>
#include <vector>

#include "keeper/messages.h"
#include "keeper/network_start.h"
#include "netns/netlink.h"
#include "netns/setup.h"
#include "sys/file_sys.h"
#include "testing/cli.h"
#include "tests/integration/frames.h"
#include "tests/integration/netns_fixture.h"

namespace temenos::testing {
namespace {

using Clock = std::chrono::steady_clock;

constexpr char kBox4[] = "198.18.0.2", kRouter4[] = "198.18.0.1";
constexpr char kBox6[] = "fd74:656d:656e:6f73::2", kRouter6[] = "fd74:656d:656e:6f73::1";

std::string own_name(int fd) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  EXPECT_EQ(getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size), 0);
  return text_of(address);
}

UniqueFd open_socket(const std::string& host, int type) {
  const int family = host.find(':') == std::string::npos ? AF_INET : AF_INET6;
  return UniqueFd(socket(family, type | SOCK_CLOEXEC, 0));
}

UniqueFd connected(const std::string& host, unsigned port, int type) {
  UniqueFd fd = open_socket(host, type);
  const auto to = endpoint(host, port);
  must(connect(fd.get(), to.get(), to.size) == 0, "connecting to " + host);
  return fd;
}

TEST_F(NetnsTest, TcpToAnyAddressAndPortReachesTheListener) {
  struct {
    const char* host;
    unsigned port;
    std::size_t listener;
  } const rows[] = {
      {"1.2.3.4", 5, 0},
      {kRouter4, 3128, 0},
      {kRouter4, netns::kTcpPort, 0},
      {"169.254.169.254", 80, 0},
      {"10.0.0.1", 22, 0},
      {"198.18.0.5", 65535, 0},
      {"240.0.0.1", 1, 0},
      {"2001:db8::1", 5, 1},
      {kRouter6, 3128, 1},
      {"fd74:656d:656e:6f73:0:1:0:7", 443, 1},
      {"64:ff9b::7f00:1", 80, 1},
      {"8.8.8.8", 53, 4},
      {kRouter4, 53, 4},
      {"2001:4860:4860::8888", 53, 5},
  };
  for (const auto& row : rows) {
    auto client = go(Place::kBox, [&] {
      const UniqueFd fd = connected(row.host, row.port, SOCK_STREAM);
      char byte = 0;
      must(send(fd.get(), "a", 1, 0) == 1 && recv(fd.get(), &byte, 1, 0) == 1 && byte == 'b',
           "talking");
      return 0;
    });
    const UniqueFd server = accepted(listeners_[row.listener]);
    ASSERT_TRUE(server) << row.host;
    EXPECT_EQ(own_name(server.get()), row.host + (" " + std::to_string(row.port)));
    sockaddr_storage peer{};
    socklen_t size = sizeof peer;
    ASSERT_EQ(getpeername(server.get(), reinterpret_cast<sockaddr*>(&peer), &size), 0);
    EXPECT_THAT(text_of(peer), ::testing::StartsWith(row.listener % 2 == 0 ? kBox4 : kBox6));
    char byte = 0;
    ASSERT_EQ(recv(server.get(), &byte, 1, 0), 1);
    ASSERT_EQ(send(server.get(), "b", 1, MSG_NOSIGNAL), 1);
    expect_well(std::move(client));
  }
}

// Receives on a listener of DNS: where to, and who asks.
struct Question {
  sockaddr_storage from{}, to{};
  socklen_t from_size = 0;
  std::string data;
};

Question question_of(int listener) {
  Question out;
  char data[512];
  iovec iov{data, sizeof data};
  alignas(cmsghdr) char control[256];
  msghdr message{};
  message.msg_name = &out.from;
  message.msg_namelen = sizeof out.from;
  message.msg_iov = &iov;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  const ssize_t size = recvmsg(listener, &message, MSG_CMSG_CLOEXEC);
  EXPECT_GT(size, 0) << strerror(errno);
  out.from_size = message.msg_namelen;
  out.data.assign(data, size > 0 ? static_cast<std::size_t>(size) : 0);
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
       header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level == SOL_IP && header->cmsg_type == IP_ORIGDSTADDR) {
      memcpy(&out.to, CMSG_DATA(header), sizeof(sockaddr_in));
    }
    if (header->cmsg_level == SOL_IPV6 && header->cmsg_type == IPV6_ORIGDSTADDR) {
      memcpy(&out.to, CMSG_DATA(header), sizeof(sockaddr_in6));
    }
  }
  return out;
}

template <typename T>
void put_control(msghdr& message, int level, int type, const T& value) {
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = level;
  header->cmsg_type = type;
  header->cmsg_len = CMSG_LEN(sizeof value);
  memcpy(CMSG_DATA(header), &value, sizeof value);
  message.msg_controllen = CMSG_SPACE(sizeof value);
}

// From the address that was asked.
ssize_t answer(int listener, Question& question, std::string text) {
  iovec iov{text.data(), text.size()};
  alignas(cmsghdr) char control[64] = {};
  msghdr message{};
  message.msg_name = &question.from;
  message.msg_namelen = question.from_size;
  message.msg_iov = &iov;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  if (question.to.ss_family == AF_INET) {
    in_pktinfo info{};
    info.ipi_spec_dst = reinterpret_cast<sockaddr_in&>(question.to).sin_addr;
    put_control(message, SOL_IP, IP_PKTINFO, info);
  } else {
    in6_pktinfo info{};
    info.ipi6_addr = reinterpret_cast<sockaddr_in6&>(question.to).sin6_addr;
    put_control(message, SOL_IPV6, IPV6_PKTINFO, info);
  }
  return sendmsg(listener, &message, MSG_NOSIGNAL);
}

TEST_F(NetnsTest, DnsToAnyResolverReachesTheListenerAndIsAnsweredFromThere) {
  for (const std::string host : {"9.9.9.9", kRouter4, "2620:fe::fe", kRouter6}) {
    const std::size_t at = host.find(':') == std::string::npos ? 2 : 3;
    auto client = go(Place::kBox, [&] {
      // A connected socket takes an answer from that address and port only.
      const UniqueFd fd = connected(host, 53, SOCK_DGRAM);
      char data[8];
      must(send(fd.get(), "who?", 4, 0) == 4, "asking");
      must(readable(fd.get()) && recv(fd.get(), data, sizeof data, 0) == 2, "no answer");
      return 0;
    });
    ASSERT_TRUE(readable(listeners_[at].get())) << host;
    auto question = question_of(listeners_[at].get());
    EXPECT_EQ(question.data, "who?");
    EXPECT_EQ(text_of(question.to), host + " 53");
    EXPECT_THAT(text_of(question.from), ::testing::StartsWith(at == 2 ? kBox4 : kBox6));
    EXPECT_EQ(answer(listeners_[at].get(), question, "me"), 2) << strerror(errno);
    expect_well(std::move(client));
  }
}

TEST_F(NetnsTest, OtherUdpIsRefusedAtOnceHoweverOften) {
  in(Place::kBox, [] {
    int slow = 0;
    for (const std::string host : {"1.1.1.1", kRouter4, "2606:4700::1111", kRouter6}) {
      for (unsigned port = 400; port < 600; ++port) {
        const UniqueFd fd = connected(host, port, SOCK_DGRAM);
        const auto begin = Clock::now();
        must(send(fd.get(), "x", 1, 0) == 1, "sending");
        char byte;
        must(readable(fd.get()) && recv(fd.get(), &byte, 1, 0) < 0 && errno == ECONNREFUSED,
             "not refused: " + host + " " + std::to_string(port));
        slow += Clock::now() - begin > std::chrono::milliseconds(100) ? 1 : 0;
      }
    }
    // A busy machine may be slow now and then; a kernel that counts refusals refuses six at once.
    must(slow < 40, std::to_string(slow) + " of 800 were not refused at once");
    return 0;
  });
}

TEST_F(NetnsTest, AMarkOfTheBoxsOwnIsNoPassWord) {
  in(Place::kBox, [] {
    for (const std::string host : {kRouter4, kRouter6, "1.1.1.1"}) {
      UniqueFd fd = open_socket(host, SOCK_DGRAM);
      const std::uint32_t mark = netns::kMark;
      must(setsockopt(fd.get(), SOL_SOCKET, SO_MARK, &mark, sizeof mark) == 0, "SO_MARK");
      const auto to = endpoint(host, 1024);
      must(connect(fd.get(), to.get(), to.size) == 0 && send(fd.get(), "x", 1, 0) == 1, "sending");
      char byte;
      must(readable(fd.get()) && recv(fd.get(), &byte, 1, 0) < 0 && errno == ECONNREFUSED, host);
    }
    return 0;
  });
}

TEST_F(NetnsTest, NobodyAnswersPing) {
  in(Place::kBox, [] {
    for (const std::string host : {"1.1.1.1", kRouter4, "2606:4700::1111", kRouter6}) {
      const bool four = host.find(':') == std::string::npos;
      const UniqueFd fd(socket(four ? AF_INET : AF_INET6, SOCK_RAW | SOCK_CLOEXEC,
                               four ? int{IPPROTO_ICMP} : int{IPPROTO_ICMPV6}));
      must(static_cast<bool>(fd), "a raw socket");
      icmphdr echo{};
      echo.type = static_cast<std::uint8_t>(four ? int{ICMP_ECHO} : int{ICMP6_ECHO_REQUEST});
      // With no data the sum is that of the type alone; for IPv6 the kernel makes it.
      echo.checksum = four ? htons(static_cast<std::uint16_t>(~(ICMP_ECHO << 8))) : 0;
      const auto to = endpoint(host, 0);
      must(sendto(fd.get(), &echo, sizeof echo, 0, to.get(), to.size) == sizeof echo, "sending");
      for (;;) {
        must(readable(fd.get()), "no refusal");
        std::uint8_t packet[1500];
        must(recv(fd.get(), packet, sizeof packet, 0) > 24, "receiving");
        const unsigned type = packet[four ? 20 : 0];
        must(type != static_cast<unsigned>(four ? int{ICMP_ECHOREPLY} : int{ICMP6_ECHO_REPLY}),
             "answered: " + host);
        if (type == static_cast<unsigned>(four ? int{ICMP_DEST_UNREACH} : int{ICMP6_DST_UNREACH}))
          break;
      }
    }
    return 0;
  });
}

std::string setting(const char* name) {
  return sys::read_path(std::string("/proc/sys/net/") + name, 16).value_or("?");
}

TEST_F(NetnsTest, TheRouterHasNoOtherLinkAndNoRouteElsewhere) {
  in(Place::kRouter, [] {
    ifreq request{};
    const UniqueFd any(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    struct if_nameindex* const all = if_nameindex();
    for (auto* link = all; link->if_index != 0; ++link) {
      strncpy(request.ifr_name, link->if_name, sizeof request.ifr_name - 1);
      must(ioctl(any.get(), SIOCGIFFLAGS, &request) == 0, link->if_name);
      const bool ours = strcmp(link->if_name, "lo") == 0 || strcmp(link->if_name, "box") == 0;
      must(ours == ((request.ifr_flags & IFF_UP) != 0), link->if_name);
    }
    if_freenameindex(all);
    for (const std::string host : {"1.1.1.1", "198.18.0.5", "2606:4700::1111"}) {
      UniqueFd fd = open_socket(host, SOCK_DGRAM);
      const auto to = endpoint(host, 9);
      must(connect(fd.get(), to.get(), to.size) != 0, "there is a route to " + host);
    }
    must(setting("ipv4/ip_forward") == "0\n", "it forwards IPv4");
    must(setting("ipv6/conf/all/forwarding") == "0\n", "it forwards IPv6");
    return 0;
  });
}

// What is held for a box that sends and does not read, and for the connections that it has had, is
// the host's memory and counts for no limit of the box.
TEST_F(NetnsTest, TheKernelHoldsLittleForAConnection) {
  in(Place::kRouter, [] {
    must(setting("ipv4/tcp_max_tw_buckets") == "4096\n", "closed connections");
    return 0;
  });
  auto client = go(Place::kBox, [] {
    const UniqueFd fd = connected("1.2.3.4", 5, SOCK_STREAM);
    const std::string bytes(65536, 'x');
    // Fast as long as there is a reader, so that the kernel gives it all the room there is.
    for (int i = 0; i < 4096; ++i) {
      must(send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) > 0, "sending");
    }
    for (;;) pause();
    return 0;
  });
  UniqueFd server = accepted(listeners_[0]);
  std::string room(1 << 20, 0);
  for (std::size_t got = 0; got < (std::size_t{4096} << 16);) {
    const ssize_t n = recv(server.get(), room.data(), room.size(), 0);
    ASSERT_GT(n, 0);
    got += static_cast<std::size_t>(n);
  }
  int held = 0;
  socklen_t size = sizeof held;
  ASSERT_EQ(getsockopt(server.get(), SOL_SOCKET, SO_RCVBUF, &held, &size), 0);
  EXPECT_LE(held, 1 << 20);
  // And the other way, to a client that does not read.
  ASSERT_EQ(fcntl(server.get(), F_SETFL, O_NONBLOCK), 0);
  while (send(server.get(), room.data(), room.size(), MSG_NOSIGNAL) > 0) {
  }
  ASSERT_EQ(getsockopt(server.get(), SOL_SOCKET, SO_SNDBUF, &held, &size), 0);
  EXPECT_LE(held, 1 << 20);
  const linger at_once{1, 0};
  ASSERT_EQ(setsockopt(server.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once), 0);
  server.reset();
  client.send(SIGKILL);
  client.wait();
}

// Even where somebody gave the router a way out, and told it to forward.
TEST_F(NetnsTest, NothingIsForwarded) {
  auto [here, there] = *sys::socket_pair(SOCK_SEQPACKET);
  const int control = there.get();
  in(Place::kRouter, [control] {
    const UniqueFd self(open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC));
    auto link = netns::Netlink::open();
    const netns::Mac near = {2, 0, 0, 0, 0, 1}, far = {2, 0, 0, 0, 0, 2};
    must(link && link->make_pair({"up", 200, near}, {"net", 201, far}, 1500, self.get()) &&
             link->add_address(200, "203.0.113.1", 24) &&
             link->add_address(200, "2001:db8:9::1", 64) && link->link_up(200) &&
             link->link_up(201) && link->add_neighbour(200, "203.0.113.2", far) &&
             link->add_neighbour(200, "2001:db8:9::2", far) &&
             link->add_default_route(200, "203.0.113.2") &&
             link->add_default_route(200, "2001:db8:9::2"),
         "a way out");
    std::ofstream("/proc/sys/net/ipv4/ip_forward") << 1;
    std::ofstream("/proc/sys/net/ipv6/conf/all/forwarding") << 1;
    must(setting("ipv4/ip_forward") == "1\n", "forwarding");
    const UniqueFd ear(socket(AF_PACKET, SOCK_DGRAM | SOCK_CLOEXEC, htons(0x0003)));
    must(ear && sys::send_with_fds(control, "ear", {{ear.get()}}), "listening");
    return 0;
  });
  const auto received = sys::receive_with_fds(here.get(), 8, 1);
  ASSERT_TRUE(received && received->fds.size() == 1);
  in(Place::kBox, [] {
    for (const std::string host : {"203.0.113.2", "8.8.8.8", "2001:db8:9::2", "2606:4700::1111"}) {
      UniqueFd fd = connected(host, 9, SOCK_DGRAM);
      char byte;
      must(send(fd.get(), "x", 1, 0) == 1 && readable(fd.get()) &&
               recv(fd.get(), &byte, 1, 0) < 0 && errno == ECONNREFUSED,
           "not refused: " + host);
      fd = connected(host, 9, SOCK_STREAM);
    }
    return 0;
  });
  // All of it has been handled: what would have gone out is here.
  char packet[2048];
  sockaddr_ll from{};
  socklen_t size = sizeof from;
  int frames = 0;
  while (recvfrom(received->fds[0].get(), packet, sizeof packet, MSG_DONTWAIT,
                  reinterpret_cast<sockaddr*>(&from), &size) > 0) {
    ++frames;
    if (from.sll_ifindex != 201) continue;
    const bool four = ntohs(from.sll_protocol) == 0x0800;
    const std::string source(packet + (four ? 12 : 8), four ? 4 : 16);
    EXPECT_NE(source, address_bytes(four ? kBox4 : kBox6));
  }
  EXPECT_GT(frames, 8);  // the ear hears
}

TEST_F(NetnsTest, ItIsMadeOnceInANewNamespaceOnly) {
  in(Place::kBox, [] {
    const std::string bin = temenos_program().substr(0, temenos_program().rfind('/'));
    const UniqueFd program(
        open((bin + "/../libexec/temenos/temenos-netsetup").c_str(), O_PATH | O_CLOEXEC));
    keeper::NetworkStart again;
    must(again.begin(program.get()).has_value(), "starting it");
    const auto done = again.finish(-1);
    must(!done && done.error().what.find("in use already") != std::string::npos, "made again");
    return 0;
  });
  // And the first one is as it was.
  auto client = go(Place::kBox, [] {
    (void)connected("1.2.3.4", 5, SOCK_STREAM);
    return 0;
  });
  EXPECT_TRUE(accepted(listeners_[0]));
  expect_well(std::move(client));
}

// It is there as long as somebody can serve it.
TEST_F(NetnsTest, TheRouterAndTheLinkGoWithTheLastListener) {
  auto [here, there] = *sys::socket_pair(SOCK_SEQPACKET);
  const int control = there.get();
  auto box = go(Place::kBox, [this, control] {
    for (auto& listener : listeners_) listener.reset();  // of this copy of the test
    const UniqueFd ear(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE));
    sockaddr_nl links{};
    links.nl_family = AF_NETLINK;
    links.nl_groups = RTMGRP_LINK;
    must(bind(ear.get(), reinterpret_cast<sockaddr*>(&links), sizeof links) == 0, "listening");
    must(if_nametoindex("eth0") == netns::kLinkIndex, "there is no link");
    must(sys::send_with_fds(control, "ready", {}).has_value(), "saying so");
    while (if_nametoindex("eth0") != 0) {
      char news[8192];
      must(readable(ear.get()) && recv(ear.get(), news, sizeof news, 0) > 0, "it stays");
    }
    return 0;
  });
  ASSERT_TRUE(sys::receive_with_fds(here.get(), 8, 0));
  for (auto& listener : listeners_) listener.reset();
  expect_well(std::move(box));
}

TEST_F(NetnsTest, WhatCannotBeMadeIsSaidWithWhatToDo) {
  const auto refused = start([] {
    std::ofstream("/proc/sys/user/max_net_namespaces") << 0;
    must(setting("../user/max_net_namespaces") == "0\n", "the limit");
  });
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().to_string(),
              ::testing::AllOf(::testing::HasSubstr("making a network namespace"),
                               ::testing::HasSubstr("max_net_namespaces")));
}

}  // namespace
}  // namespace temenos::testing
