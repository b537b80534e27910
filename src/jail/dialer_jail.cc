#include "jail/dialer_jail.h"

#include <linux/mptcp.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "base/try.h"

namespace temenos::jail {
namespace {

constexpr std::uint64_t kLastStartFd = 3;   // 0 to 2 and keeper; the log's segments come after
constexpr std::uint64_t kSocketType = 0xf;  // without SOCK_CLOEXEC and SOCK_NONBLOCK

constexpr int kAlso[] = {
    SCMP_SYS(connect), SCMP_SYS(getsockname),
    SCMP_SYS(pread64),  // of the sealed files that keeper hands over
};

struct SocketOption {
  int level;
  int option;
};
constexpr SocketOption kSet[] = {
    {SOL_SOCKET, SO_KEEPALIVE},   {IPPROTO_TCP, TCP_NODELAY}, {IPPROTO_TCP, TCP_KEEPIDLE},
    {IPPROTO_TCP, TCP_KEEPINTVL}, {IPPROTO_TCP, TCP_KEEPCNT},
};

std::vector<Rule> rules() {
  std::vector<Rule> out = everyday_rules();
  for (const int call : kAlso) out.push_back(rule(SCMP_ACT_ALLOW, call));
  // Connections to front, which the box may own; keeper bounds how many are under way.
  out.push_back(rule(SCMP_ACT_ALLOW, SCMP_SYS(sendmsg), masked(2, MSG_FASTOPEN, 0)));
  for (const std::uint64_t family : {AF_INET, AF_INET6}) {
    for (const std::uint64_t type : {SOCK_STREAM, SOCK_DGRAM}) {
      // Protocol 0: TCP and UDP, and no other that has these types.
      out.push_back(rule(SCMP_ACT_ALLOW, SCMP_SYS(socket), equals(0, family),
                         masked(1, kSocketType, type), equals(2, 0)));
    }
  }
  out.push_back(
      rule(SCMP_ACT_ALLOW, SCMP_SYS(getsockopt), equals(1, SOL_SOCKET), equals(2, SO_ERROR)));
  for (const auto& [level, option] : kSet) {
    out.push_back(rule(SCMP_ACT_ALLOW, SCMP_SYS(setsockopt),
                       equals(1, static_cast<std::uint64_t>(level)),
                       equals(2, static_cast<std::uint64_t>(option))));
  }
  out.push_back(rule(SCMP_ACT_ALLOW, SCMP_SYS(ftruncate), above(0, kLastStartFd)));
  return out;
}

}  // namespace

Result<void> enter_dialer_jail(std::uint64_t max_file) {
  TRY(become_nobody_special());
  TRY(leave_the_host(0));
  TRY(drop_rights({.file = max_file}));
  TRY(load_filter(SCMP_ACT_ERRNO(EPERM), SCMP_ACT_KILL_PROCESS, rules()));
  return {};
}

std::vector<JailProbe> probe_dialer_jail() {
  std::vector<JailProbe> probes = probe_every_jail();
  const auto attempt = [&probes](const char* name, long result) {
    probes.push_back(probe(name, result));
  };
  attempt("raw socket", syscall(SYS_socket, AF_INET, SOCK_RAW, IPPROTO_ICMP));
  attempt("raw IPv6 socket", syscall(SYS_socket, AF_INET6, SOCK_RAW, IPPROTO_ICMPV6));
  attempt("ping socket", syscall(SYS_socket, AF_INET, SOCK_DGRAM, IPPROTO_ICMP));
  attempt("packet socket", syscall(SYS_socket, AF_PACKET, SOCK_RAW, 0));
  attempt("vsock", syscall(SYS_socket, AF_VSOCK, SOCK_STREAM, 0));
  attempt("SCTP", syscall(SYS_socket, AF_INET, SOCK_STREAM, IPPROTO_SCTP));
  attempt("MPTCP", syscall(SYS_socket, AF_INET, SOCK_STREAM, IPPROTO_MPTCP));
  attempt("socketpair", syscall(SYS_socketpair, AF_UNIX, SOCK_STREAM, 0, nullptr));
  const auto tcp = static_cast<int>(syscall(SYS_socket, AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  attempt("bind", syscall(SYS_bind, tcp, nullptr, 0));
  attempt("listen", syscall(SYS_listen, tcp, 1));
  attempt("accept", syscall(SYS_accept4, tcp, nullptr, nullptr, 0));
  attempt("another option", syscall(SYS_setsockopt, tcp, SOL_SOCKET, SO_MARK, nullptr, 0));
  attempt("a proxy's option", syscall(SYS_setsockopt, tcp, IPPROTO_IP, IP_TRANSPARENT, nullptr, 0));
  attempt("ioctl", syscall(SYS_ioctl, tcp, 0x8913 /* SIOCGIFFLAGS */, nullptr));
  attempt("dup", syscall(SYS_dup, tcp));
  attempt("setns", syscall(SYS_setns, tcp, 0));
  attempt("cut what it was started with", syscall(SYS_ftruncate, 2, 0));
  if (tcp >= 0) close(tcp);
  return probes;
}

}  // namespace temenos::jail
