#include "netns/listeners.h"

#include <arpa/inet.h>
#include <linux/in.h>
#include <linux/in6.h>
#include <sys/socket.h>

#include <cerrno>
#include <string>

#include "base/try.h"

namespace temenos::netns {
namespace {

// Connections that front has not accepted yet; it stops to accept when it has enough.
constexpr int kBacklog = 256;

Result<void> set(int socket, int level, int option, const char* name) {
  const int on = 1;
  if (setsockopt(socket, level, option, &on, sizeof on) == 0) return {};
  return fail_errno(errno, std::string("setting ") + name);
}

struct Address {
  sockaddr_storage storage{};
  socklen_t size = 0;
};

Result<Address> address_of(int family, const std::string& text, std::uint16_t port) {
  Address out;
  void* bytes;
  if (family == AF_INET) {
    auto* in = reinterpret_cast<sockaddr_in*>(&out.storage);
    in->sin_family = AF_INET;
    in->sin_port = htons(port);
    bytes = &in->sin_addr;
    out.size = sizeof *in;
  } else {
    auto* in6 = reinterpret_cast<sockaddr_in6*>(&out.storage);
    in6->sin6_family = AF_INET6;
    in6->sin6_port = htons(port);
    bytes = &in6->sin6_addr;
    out.size = sizeof *in6;
  }
  if (inet_pton(family, text.c_str(), bytes) != 1) {
    return fail(Code::kInvalidArgument, "no address: " + text);
  }
  return out;
}

// No SO_REUSEADDR or SO_REUSEPORT: a second socket on the same port must fail.
Result<UniqueFd> make(int family, int type, const std::string& text, std::uint16_t port) {
  UniqueFd socket(::socket(family, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) return fail_errno(errno, "making a socket");
  const int fd = socket.get();
  // Accepts what goes to any address, and answers from there.
  if (family == AF_INET) {
    TRY(set(fd, IPPROTO_IP, IP_TRANSPARENT, "IP_TRANSPARENT"));
    if (type == SOCK_DGRAM) TRY(set(fd, IPPROTO_IP, IP_RECVORIGDSTADDR, "IP_RECVORIGDSTADDR"));
  } else {
    TRY(set(fd, IPPROTO_IPV6, IPV6_V6ONLY, "IPV6_V6ONLY"));
    TRY(set(fd, IPPROTO_IPV6, IPV6_TRANSPARENT, "IPV6_TRANSPARENT"));
    if (type == SOCK_DGRAM) {
      TRY(set(fd, IPPROTO_IPV6, IPV6_RECVORIGDSTADDR, "IPV6_RECVORIGDSTADDR"));
    }
  }
  const Address address = TRY(address_of(family, text, port));
  if (bind(fd, reinterpret_cast<const sockaddr*>(&address.storage), address.size) != 0) {
    return fail_errno(errno, "binding to " + text);
  }
  if (type == SOCK_STREAM && listen(fd, kBacklog) != 0) return fail_errno(errno, "listening");
  return socket;
}

}  // namespace

Result<Listeners> make_listeners(const Plan& plan) {
  Listeners out;
  std::size_t next = 0;
  struct {
    int type;
    std::uint16_t port;
  } const pairs[] = {{SOCK_STREAM, kTcpPort}, {SOCK_DGRAM, kDnsPort}, {SOCK_STREAM, kDnsPort}};
  for (const auto& pair : pairs) {
    out[next++] = TRY(make(AF_INET, pair.type, plan.router4, pair.port));
    out[next++] = TRY(make(AF_INET6, pair.type, plan.router6, pair.port));
  }
  return out;
}

}  // namespace temenos::netns
