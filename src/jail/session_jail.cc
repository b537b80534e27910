#include "jail/session_jail.h"

#include <cap-ng.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/mount.h>
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

#include "base/try.h"
#include "jail/filter.h"
#include "sys/ids.h"
#include "sys/mount_sys.h"
#include "sys/process_sys.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define TEMENOS_SANITIZED 1
#endif
#endif

namespace temenos::jail {
namespace {

#ifndef TEMENOS_SANITIZED  // a sanitizer's shadow memory is larger than any sensible limit
// Ample for its bounded buffers; a parser that runs wild ends here.
constexpr rlim_t kMemoryLimit = 192u << 20;
#endif

constexpr std::uint64_t kLastStartFd = 4;  // 0 to 2, init and keeper

constexpr int kAllowed[] = {
    SCMP_SYS(read),
    SCMP_SYS(readv),
    SCMP_SYS(write),
    SCMP_SYS(writev),
    SCMP_SYS(recvfrom),
    SCMP_SYS(recvmsg),
    SCMP_SYS(sendto),
    SCMP_SYS(sendmsg),
    SCMP_SYS(shutdown),
    SCMP_SYS(close),
    SCMP_SYS(poll),
    SCMP_SYS(ppoll),
    SCMP_SYS(epoll_wait),
    SCMP_SYS(epoll_pwait),
    SCMP_SYS(epoll_ctl),
    SCMP_SYS(clock_gettime),
    SCMP_SYS(clock_nanosleep),
    SCMP_SYS(brk),
    SCMP_SYS(munmap),
    SCMP_SYS(madvise),
    SCMP_SYS(mremap),
    SCMP_SYS(futex),
    SCMP_SYS(getrandom),
    SCMP_SYS(rt_sigreturn),
    SCMP_SYS(rt_sigprocmask),
    SCMP_SYS(restart_syscall),
    SCMP_SYS(exit),
    SCMP_SYS(exit_group),
    SCMP_SYS(gettid),
    SCMP_SYS(getpid),
};

Result<void> limit(decltype(RLIMIT_CORE) resource, rlim_t value) {
  const rlimit limits{value, value};
  if (setrlimit(resource, &limits) != 0) return fail_errno(errno, "setrlimit");
  return {};
}

Result<void> become_nobody_special() {
  if (geteuid() != 0) return {};
  if (setgroups(0, nullptr) != 0) return fail_errno(errno, "setgroups");
  if (setresgid(sys::kSessionId, sys::kSessionId, sys::kSessionId) != 0) {
    return fail_errno(errno, "setresgid");
  }
  if (setresuid(sys::kSessionId, sys::kSessionId, sys::kSessionId) != 0) {
    return fail_errno(errno, "setresuid");
  }
  return {};
}

Result<void> leave_the_host() {
  const sys::IdMapLine uid{0, geteuid(), 1};
  const sys::IdMapLine gid{0, getegid(), 1};
  // A change of uid makes a process undumpable, and then its own /proc files belong to root.
  if (prctl(PR_SET_DUMPABLE, 1) != 0) return fail_errno(errno, "PR_SET_DUMPABLE");
  if (unshare(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS |
              CLONE_NEWCGROUP) != 0) {
    return fail_errno(errno, "unshare");
  }
  TRY(sys::write_id_maps(getpid(), {&uid, 1}, {&gid, 1}, true));
  TRY(sys::make_all_private());
  const UniqueFd root = TRY(sys::new_filesystem(
      "tmpfs", {{"size", "4096"}, {"nr_inodes", "2"}, {"mode", "0555"}},
      MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC));
  return sys::pivot_into(root.get());
}

Result<void> drop_rights(std::uint64_t max_file) {
  if (prctl(PR_SET_DUMPABLE, 0) != 0) return fail_errno(errno, "PR_SET_DUMPABLE");
  capng_clear(CAPNG_SELECT_ALL);
  if (capng_apply(CAPNG_SELECT_ALL) != 0) return fail_errno(errno, "dropping capabilities");
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return fail_errno(errno, "PR_SET_NO_NEW_PRIVS");
  TRY(limit(RLIMIT_CORE, 0));
  TRY(limit(RLIMIT_FSIZE, max_file));
  TRY(limit(RLIMIT_NPROC, 0));
#ifndef TEMENOS_SANITIZED
  TRY(limit(RLIMIT_AS, kMemoryLimit));
#endif
  return {};
}

std::vector<Rule> rules(std::uint64_t max_file) {
  std::vector<Rule> out;
  for (const int call : kAllowed) out.push_back(rule(SCMP_ACT_ALLOW, call));
  // Memory without execution, never a file's.
  out.push_back(rule(SCMP_ACT_ALLOW, SCMP_SYS(mmap), masked(2, PROT_EXEC, 0),
                     masked(3, MAP_ANONYMOUS, MAP_ANONYMOUS)));
  out.push_back(rule(SCMP_ACT_ALLOW, SCMP_SYS(mprotect), masked(2, PROT_EXEC, 0)));
  // Descriptor flags only: no leases, no signals to owners.
  for (const std::uint64_t command : {F_GETFD, F_SETFD, F_GETFL, F_SETFL}) {
    out.push_back(rule(SCMP_ACT_ALLOW, SCMP_SYS(fcntl), equals(1, command)));
  }
  // write(2) is there anyway, and spools are open for appending, so this is all that they need. Who
  // has taken session over can empty or overwrite, with it, the spools of this box's live jobs, up
  // to max_file each, and nothing else: no other file of the host is open here, descriptors cannot
  // be copied to other numbers, and those that session was started with are left out.
  if (max_file != 0) {
    out.push_back(rule(SCMP_ACT_ALLOW, SCMP_SYS(ftruncate), above(0, kLastStartFd)));
  }
  return out;
}

}  // namespace

Result<void> enter_session_jail(std::uint64_t max_file) {
  TRY(become_nobody_special());
  TRY(leave_the_host());
  TRY(drop_rights(max_file));
  TRY(load_filter(SCMP_ACT_ERRNO(EPERM), SCMP_ACT_KILL_PROCESS, rules(max_file)));
  return {};
}

std::vector<JailProbe> probe_session_jail() {
  std::vector<JailProbe> probes;
  // Raw calls: what libc would refuse by itself must not count.
  auto attempt = [&probes](const char* name, long result) {
    probes.push_back({name, result < 0 && errno == EPERM});
  };
  char* const no_arguments[] = {nullptr};
  attempt("open", syscall(SYS_open, "/", O_RDONLY, 0));
  attempt("openat", syscall(SYS_openat, AT_FDCWD, ".", O_RDONLY, 0));
  attempt("openat2", syscall(SYS_openat2, AT_FDCWD, ".", nullptr, 0));
  attempt("exec", syscall(SYS_execve, "/proc/self/exe", no_arguments, no_arguments));
  attempt("execveat", syscall(SYS_execveat, AT_FDCWD, "x", no_arguments, no_arguments, 0));
  attempt("socket", syscall(SYS_socket, AF_INET, SOCK_STREAM, 0));
  attempt("unix socket", syscall(SYS_socket, AF_UNIX, SOCK_STREAM, 0));
  attempt("netlink socket", syscall(SYS_socket, AF_NETLINK, SOCK_RAW, 0));
  attempt("ptrace", syscall(SYS_ptrace, PTRACE_TRACEME, 0, nullptr, nullptr));
  attempt("kill", syscall(SYS_kill, getpid(), 0));
  attempt("kill the parent", syscall(SYS_kill, 1, 0));
  attempt("tgkill", syscall(SYS_tgkill, getpid(), gettid(), 0));
  attempt("pidfd_open", syscall(SYS_pidfd_open, getpid(), 0));
  attempt("fork", syscall(SYS_fork));
  attempt("clone", syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0));
  attempt("unshare", syscall(SYS_unshare, CLONE_NEWUSER));
  attempt("mount", syscall(SYS_mount, "x", "/", "tmpfs", 0, nullptr));
  attempt("memory with execution",
          syscall(SYS_mmap, nullptr, 4096, 7, 0x22 /* PRIVATE|ANONYMOUS */, -1, 0));
  attempt("process_vm_readv", syscall(SYS_process_vm_readv, getpid(), nullptr, 0, nullptr, 0, 0));
  attempt("bpf", syscall(SYS_bpf, 0, nullptr, 0));
  attempt("io_uring_setup", syscall(SYS_io_uring_setup, 1, nullptr));
  attempt("setuid", syscall(SYS_setuid, 0));
  return probes;
}

}  // namespace temenos::jail
