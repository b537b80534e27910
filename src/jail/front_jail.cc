#include "jail/front_jail.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/try.h"
#include "jail/filter.h"

namespace temenos::jail {
namespace {

constexpr int kAllowed[] = {
    SCMP_SYS(accept4), SCMP_SYS(getsockname), SCMP_SYS(epoll_create1),
    SCMP_SYS(splice),  SCMP_SYS(pipe2),
};

struct Option {
  int level;
  int name;
};
// Nothing that changes where a socket's bytes go or come from.
constexpr Option kSettable[] = {
    {SOL_SOCKET, SO_LINGER},         {SOL_SOCKET, SO_KEEPALIVE},   {IPPROTO_TCP, TCP_NODELAY},
    {IPPROTO_TCP, TCP_KEEPIDLE},     {IPPROTO_TCP, TCP_KEEPINTVL}, {IPPROTO_TCP, TCP_KEEPCNT},
    {IPPROTO_TCP, TCP_USER_TIMEOUT},
};

std::vector<Rule> rules(std::span<UniqueFd* const> datagrams) {
  std::vector<Rule> out = everyday_rules();
  for (const UniqueFd* const fd : datagrams) {
    out.push_back(rule(SCMP_ACT_ALLOW, SCMP_SYS(sendmsg),
                       equals(0, static_cast<std::uint64_t>(fd->get())),
                       masked(2, MSG_FASTOPEN, 0)));
  }
  for (const int call : kAllowed) out.push_back(rule(SCMP_ACT_ALLOW, call));
  out.push_back(rule(SCMP_ACT_ALLOW, SCMP_SYS(fcntl), equals(1, F_SETPIPE_SZ)));
  for (const auto& option : kSettable) {
    out.push_back(rule(SCMP_ACT_ALLOW, SCMP_SYS(setsockopt),
                       equals(1, static_cast<std::uint64_t>(option.level)),
                       equals(2, static_cast<std::uint64_t>(option.name))));
  }
  return out;
}

// The numbers of `datagrams` lie beyond the limit, so that no other descriptor, a socket to dialer,
// ever has one of them, also when they are closed.
Result<unsigned> bound_descriptors(unsigned most, std::span<UniqueFd* const> datagrams) {
  const rlim_t beyond = datagrams.size();
  rlimit limits{};
  if (getrlimit(RLIMIT_NOFILE, &limits) != 0) return fail_errno(errno, "getrlimit");
  limits.rlim_cur = limits.rlim_max = std::min<rlim_t>(limits.rlim_max, most + beyond);
  if (setrlimit(RLIMIT_NOFILE, &limits) != 0) return fail_errno(errno, "setrlimit");
  if (limits.rlim_cur <= beyond) return fail_errno(EMFILE, "a limit for descriptors");
  limits.rlim_cur = limits.rlim_max = limits.rlim_cur - beyond;
  for (UniqueFd* const fd : datagrams) {
    fd->reset(fcntl(fd->get(), F_DUPFD_CLOEXEC, static_cast<int>(limits.rlim_cur)));
    if (!*fd) return fail_errno(errno, "moving a descriptor");
  }
  if (setrlimit(RLIMIT_NOFILE, &limits) != 0) return fail_errno(errno, "setrlimit");
  return static_cast<unsigned>(limits.rlim_cur);
}

}  // namespace

Result<unsigned> enter_front_jail(unsigned max_fds, std::span<UniqueFd* const> datagrams) {
  TRY(become_nobody_special());
  TRY(leave_the_host(CLONE_NEWNET));
  const unsigned fds = TRY(bound_descriptors(max_fds, datagrams));
  TRY(drop_rights({}));
  TRY(load_filter(SCMP_ACT_ERRNO(EPERM), SCMP_ACT_KILL_PROCESS, rules(datagrams)));
  return fds;
}

std::vector<JailProbe> probe_front_jail() {
  std::vector<JailProbe> probes = probe_every_jail();
  const int one = 1;
  const sockaddr_in anywhere{.sin_family = AF_INET};
  auto attempt = [&probes](const char* name, long result) {
    probes.push_back(probe(name, result));
  };
  attempt("socket", syscall(SYS_socket, AF_INET, SOCK_STREAM, 0));
  attempt("datagram socket", syscall(SYS_socket, AF_INET6, SOCK_DGRAM, 0));
  attempt("raw socket", syscall(SYS_socket, AF_INET, SOCK_RAW, IPPROTO_ICMP));
  attempt("packet socket", syscall(SYS_socket, AF_PACKET, SOCK_RAW, 0));
  attempt("socketpair", syscall(SYS_socketpair, AF_UNIX, SOCK_STREAM, 0, nullptr));
  attempt("connect", syscall(SYS_connect, 0, &anywhere, sizeof anywhere));
  attempt("bind", syscall(SYS_bind, 0, &anywhere, sizeof anywhere));
  attempt("listen", syscall(SYS_listen, 0, 1));
  attempt("binding to a device", syscall(SYS_setsockopt, 0, SOL_SOCKET, SO_BINDTODEVICE, "lo", 3));
  attempt("a packet mark", syscall(SYS_setsockopt, 0, SOL_SOCKET, SO_MARK, &one, sizeof one));
  attempt("a foreign address",
          syscall(SYS_setsockopt, 0, IPPROTO_IP, IP_TRANSPARENT, &one, sizeof one));
  attempt("getsockopt", syscall(SYS_getsockopt, 0, SOL_SOCKET, SO_TYPE, nullptr, nullptr));
  attempt("ftruncate", syscall(SYS_ftruncate, 0, 0));
  attempt("sendmsg", syscall(SYS_sendmsg, 0, nullptr, 0));
  attempt("dup", syscall(SYS_dup, 0));
  attempt("another limit", syscall(SYS_prlimit64, 0, RLIMIT_NOFILE, nullptr, nullptr));
  return probes;
}

}  // namespace temenos::jail
