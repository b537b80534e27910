#include "jail/lock_down.h"

#include <cap-ng.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/mount.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "base/host_ids.h"
#include "base/try.h"
#include "sys/mount_sys.h"
#include "sys/process_sys.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define TEMENOS_SANITIZED 1
#endif
#endif

namespace temenos::jail {
namespace {

constexpr int kAllowed[] = {
    SCMP_SYS(read),         SCMP_SYS(readv),          SCMP_SYS(write),
    SCMP_SYS(writev),       SCMP_SYS(recvfrom),       SCMP_SYS(recvmsg),
    SCMP_SYS(shutdown),     SCMP_SYS(close),          SCMP_SYS(poll),
    SCMP_SYS(ppoll),        SCMP_SYS(epoll_wait),     SCMP_SYS(epoll_pwait),
    SCMP_SYS(epoll_ctl),    SCMP_SYS(clock_gettime),  SCMP_SYS(clock_nanosleep),
    SCMP_SYS(brk),          SCMP_SYS(munmap),         SCMP_SYS(madvise),
    SCMP_SYS(mremap),       SCMP_SYS(futex),          SCMP_SYS(getrandom),
    SCMP_SYS(rt_sigreturn), SCMP_SYS(rt_sigprocmask), SCMP_SYS(restart_syscall),
    SCMP_SYS(exit),         SCMP_SYS(exit_group),     SCMP_SYS(gettid),
    SCMP_SYS(getpid),
};

Result<void> limit(decltype(RLIMIT_CORE) resource, rlim_t value) {
  const rlimit limits{value, value};
  if (setrlimit(resource, &limits) != 0) return fail_errno(errno, "setrlimit");
  return {};
}

}  // namespace

Result<void> become_nobody_special() {
  if (geteuid() != 0) return {};
  if (setgroups(0, nullptr) != 0) return fail_errno(errno, "setgroups");
  if (setresgid(kSessionId, kSessionId, kSessionId) != 0) {
    return fail_errno(errno, "setresgid");
  }
  if (setresuid(kSessionId, kSessionId, kSessionId) != 0) {
    return fail_errno(errno, "setresuid");
  }
  return {};
}

Result<void> leave_the_host(int more) {
  const sys::IdMapLine uid{0, geteuid(), 1};
  const sys::IdMapLine gid{0, getegid(), 1};
  // A change of uid makes a process undumpable, and then its own /proc files belong to root.
  if (prctl(PR_SET_DUMPABLE, 1) != 0) return fail_errno(errno, "PR_SET_DUMPABLE");
  if (unshare(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP | more) !=
      0) {
    return fail_errno(errno, "unshare");
  }
  TRY(sys::write_id_maps(getpid(), {&uid, 1}, {&gid, 1}, true));
  TRY(sys::make_all_private());
  const UniqueFd root = TRY(sys::new_filesystem(
      "tmpfs", {{"size", "4096"}, {"nr_inodes", "2"}, {"mode", "0555"}},
      MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC));
  return sys::pivot_into(root.get());
}

Result<void> drop_rights(const Bounds& bounds) {
  if (prctl(PR_SET_DUMPABLE, 0) != 0) return fail_errno(errno, "PR_SET_DUMPABLE");
  capng_clear(CAPNG_SELECT_ALL);
  if (capng_apply(CAPNG_SELECT_ALL) != 0) return fail_errno(errno, "dropping capabilities");
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return fail_errno(errno, "PR_SET_NO_NEW_PRIVS");
  TRY(sys::die_with_parent());
  TRY(limit(RLIMIT_CORE, 0));
  TRY(limit(RLIMIT_FSIZE, bounds.file));
  TRY(limit(RLIMIT_NPROC, 0));
#ifndef TEMENOS_SANITIZED  // a sanitizer's shadow memory is larger than any sensible limit
  TRY(limit(RLIMIT_AS, bounds.memory));
#endif
  return {};
}

std::vector<Rule> everyday_rules() {
  std::vector<Rule> out;
  for (const int call : kAllowed) out.push_back(rule(SCMP_ACT_ALLOW, call));
#ifdef TEMENOS_SANITIZED  // a sanitizer's runtime takes its signal stack away at the end
  out.push_back(rule(SCMP_ACT_ALLOW, SCMP_SYS(sigaltstack)));
#endif
  // With that flag sending is connecting, which is nobody's right here.
  out.push_back(rule(SCMP_ACT_ALLOW, SCMP_SYS(sendto), masked(3, MSG_FASTOPEN, 0)));
  // Memory without execution, never a file's.
  out.push_back(rule(SCMP_ACT_ALLOW, SCMP_SYS(mmap), masked(2, PROT_EXEC, 0),
                     masked(3, MAP_ANONYMOUS, MAP_ANONYMOUS)));
  out.push_back(rule(SCMP_ACT_ALLOW, SCMP_SYS(mprotect), masked(2, PROT_EXEC, 0)));
  // Descriptor flags only: no leases, no signals to owners.
  for (const std::uint64_t command : {F_GETFD, F_SETFD, F_GETFL, F_SETFL}) {
    out.push_back(rule(SCMP_ACT_ALLOW, SCMP_SYS(fcntl), equals(1, command)));
  }
  return out;
}

JailProbe probe(const char* attempt, long result) {
  return {attempt, result < 0 && errno == EPERM};
}

std::vector<JailProbe> probe_every_jail() {
  std::vector<JailProbe> probes;
  char* const no_arguments[] = {nullptr};
  probes.push_back(probe("open", syscall(SYS_open, "/", O_RDONLY, 0)));
  probes.push_back(probe("openat", syscall(SYS_openat, AT_FDCWD, ".", O_RDONLY, 0)));
  probes.push_back(probe("openat2", syscall(SYS_openat2, AT_FDCWD, ".", nullptr, 0)));
  probes.push_back(
      probe("exec", syscall(SYS_execve, "/proc/self/exe", no_arguments, no_arguments)));
  probes.push_back(
      probe("execveat", syscall(SYS_execveat, AT_FDCWD, "x", no_arguments, no_arguments, 0)));
  const sockaddr_in elsewhere{.sin_family = AF_INET};
  probes.push_back(probe("a connection by sending", syscall(SYS_sendto, 0, "", 0, MSG_FASTOPEN,
                                                            &elsewhere, sizeof elsewhere)));
  const msghdr message{};
  probes.push_back(probe("the same by sendmsg", syscall(SYS_sendmsg, 0, &message, MSG_FASTOPEN)));
  probes.push_back(probe("unix socket", syscall(SYS_socket, AF_UNIX, SOCK_STREAM, 0)));
  probes.push_back(probe("netlink socket", syscall(SYS_socket, AF_NETLINK, SOCK_RAW, 0)));
  probes.push_back(probe("ptrace", syscall(SYS_ptrace, PTRACE_TRACEME, 0, nullptr, nullptr)));
  probes.push_back(probe("kill", syscall(SYS_kill, getpid(), 0)));
  probes.push_back(probe("kill the parent", syscall(SYS_kill, 1, 0)));
  probes.push_back(probe("tgkill", syscall(SYS_tgkill, getpid(), gettid(), 0)));
  probes.push_back(probe("pidfd_open", syscall(SYS_pidfd_open, getpid(), 0)));
  probes.push_back(probe("fork", syscall(SYS_fork)));
  probes.push_back(probe("clone", syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0)));
  probes.push_back(probe("unshare", syscall(SYS_unshare, CLONE_NEWUSER)));
  probes.push_back(probe("mount", syscall(SYS_mount, "x", "/", "tmpfs", 0, nullptr)));
  probes.push_back(probe("memory with execution",
                         syscall(SYS_mmap, nullptr, 4096, 7, 0x22 /* PRIVATE|ANONYMOUS */, -1, 0)));
  probes.push_back(probe("process_vm_readv",
                         syscall(SYS_process_vm_readv, getpid(), nullptr, 0, nullptr, 0, 0)));
  probes.push_back(probe("bpf", syscall(SYS_bpf, 0, nullptr, 0)));
  probes.push_back(probe("io_uring_setup", syscall(SYS_io_uring_setup, 1, nullptr)));
  probes.push_back(probe("setuid", syscall(SYS_setuid, 0)));
  const rlimit more{4096, 4096};
  probes.push_back(
      probe("more descriptors", syscall(SYS_prlimit64, 0, RLIMIT_NOFILE, &more, nullptr)));
  return probes;
}

}  // namespace temenos::jail
