#include "sys/process_sys.h"

#include <fcntl.h>
#include <grp.h>
#include <linux/sched.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <ctime>

#include "base/try.h"
#include "sys/file_sys.h"

#ifndef P_PIDFD
#define P_PIDFD 3
#endif

namespace temenos::sys {
namespace {

constexpr int kGoMs = 2'000;  // for what was asked to go to do so

std::string map_text(std::span<const IdMapLine> lines) {
  std::string text;
  for (const auto& line : lines) {
    text += std::to_string(line.inside) + " " + std::to_string(line.outside) + " " +
            std::to_string(line.count) + "\n";
  }
  return text;
}

Result<void> write_proc(pid_t pid, const char* name, std::string_view text) {
  const std::string path = "/proc/" + std::to_string(pid) + "/" + name;
  const UniqueFd fd(open(path.c_str(), O_WRONLY | O_CLOEXEC));
  if (!fd) return fail_errno(errno, "opening " + path);
  // The kernel takes a map in one write only.
  if (write(fd.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
    return fail_errno(errno, "writing " + path);
  }
  return {};
}

}  // namespace

void Process::send(int signal) const {
  if (pidfd_) (void)syscall(SYS_pidfd_send_signal, pidfd_.get(), signal, nullptr, 0);
}

std::optional<ExitStatus> Process::wait(bool block) {
  if (!pidfd_) return std::nullopt;
  siginfo_t info{};
  int rc;
  do {
    rc = waitid(static_cast<idtype_t>(P_PIDFD), static_cast<id_t>(pidfd_.get()), &info,
                WEXITED | (block ? 0 : WNOHANG));
  } while (rc != 0 && errno == EINTR);
  if (rc != 0 || info.si_pid == 0) return std::nullopt;
  pidfd_.reset();
  ExitStatus status;
  if (info.si_code == CLD_EXITED) {
    status.code = info.si_status;
  } else {
    status.signal = info.si_status;
  }
  return status;
}

Result<UniqueFd> open_pidfd(pid_t pid) {
  UniqueFd fd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  if (!fd) return fail_errno(errno, "pidfd_open");
  return fd;
}

Result<pid_t> raw_fork(int namespaces, UniqueFd* pidfd) {
  int fd = -1;
  clone_args args{};
  args.flags = static_cast<__u64>(namespaces) | CLONE_PIDFD;
  args.pidfd = reinterpret_cast<__u64>(&fd);
  args.exit_signal = SIGCHLD;
  const long pid = syscall(SYS_clone3, &args, sizeof args);
  if (pid < 0) return fail_errno(errno, "clone3");
  if (pid > 0) pidfd->reset(fd);
  return static_cast<pid_t>(pid);
}

Result<void> die_with_parent() {
  if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) return fail_errno(errno, "PR_SET_PDEATHSIG");
  return {};
}

Result<void> forbid_inspection() {
  if (prctl(PR_SET_DUMPABLE, 0) != 0) return fail_errno(errno, "PR_SET_DUMPABLE");
  return {};
}

Result<void> write_id_maps(pid_t pid, std::span<const IdMapLine> uids,
                           std::span<const IdMapLine> gids, bool deny_setgroups) {
  TRY(write_proc(pid, "uid_map", map_text(uids)));
  if (deny_setgroups) TRY(write_proc(pid, "setgroups", "deny"));
  return write_proc(pid, "gid_map", map_text(gids));
}

Result<UniqueFd> idmap_namespace(IdMapLine uid, IdMapLine gid) {
  auto [here, there] = TRY(socket_pair(SOCK_SEQPACKET));
  UniqueFd there_fd = std::move(there);
  const int wait_fd = there_fd.get();
  const int parent_end = here.get();
  Process holder = TRY(start_in_namespaces(CLONE_NEWUSER, [wait_fd, parent_end] {
    close(parent_end);
    char byte;
    return read(wait_fd, &byte, 1) == 0 ? 0 : 1;  // until the parent has its descriptor
  }));
  const Result<void> mapped = write_id_maps(holder.pid(), {&uid, 1}, {&gid, 1}, false);
  const std::string path = "/proc/" + std::to_string(holder.pid()) + "/ns/user";
  UniqueFd ns(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  const int err = errno;
  holder.send(SIGKILL);
  holder.wait();
  if (!mapped) return tl::make_unexpected(mapped.error());
  if (!ns) return fail_errno(err, "opening " + path);
  return ns;
}

Result<void> become_namespace_root() {
  // EPERM: setgroups is denied in a namespace with a single-id map; then the groups stay as they
  // are.
  if (setgroups(0, nullptr) != 0 && errno != EPERM) return fail_errno(errno, "setgroups");
  if (setresgid(0, 0, 0) != 0) return fail_errno(errno, "setresgid");
  if (setresuid(0, 0, 0) != 0) return fail_errno(errno, "setresuid");
  return {};
}

Result<RunResult> run_program(const std::vector<std::string>& argv, std::size_t output_limit,
                              int timeout_ms, int cancel_fd) {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) return fail_errno(errno, "pipe");
  const UniqueFd reader(ends[0]);
  UniqueFd writer(ends[1]);
  std::vector<char*> raw;
  for (const auto& arg : argv) raw.push_back(const_cast<char*>(arg.c_str()));
  raw.push_back(nullptr);
  UniqueFd pidfd;
  const pid_t self = getpid();
  const pid_t pid = TRY(raw_fork(0, &pidfd));
  if (pid == 0) {
    // A caller that blocks signals does that for itself.
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, nullptr);
    if (!die_with_parent() || getppid() != self) _exit(127);
    const int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    dup2(null, 0);
    dup2(writer.get(), 1);
    dup2(writer.get(), 2);
    setpgid(0, 0);  // so that it can be ended with all that it started
    (void)close_on_exec_from(3);
    execvp(raw[0], raw.data());
    _exit(127);
  }
  Process process(pid, std::move(pidfd));
  writer.reset();
  RunResult result;
  char buffer[1024];
  timespec begin{};
  clock_gettime(CLOCK_MONOTONIC, &begin);
  for (;;) {
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    const long left =
        timeout_ms - (now.tv_sec - begin.tv_sec) * 1000 - (now.tv_nsec - begin.tv_nsec) / 1'000'000;
    pollfd fds[] = {{reader.get(), POLLIN, 0}, {cancel_fd, POLLIN, 0}};
    const int ready = left <= 0 ? 0 : poll(fds, 2, static_cast<int>(left));
    if (ready < 0 && errno == EINTR) continue;
    const bool given_up = ready > 0 && fds[1].revents != 0;
    if (given_up) {
      process.send(SIGTERM);
      pollfd gone{process.pidfd(), POLLIN, 0};
      (void)poll(&gone, 1, kGoMs);
    }
    if (ready == 0 || given_up) {
      kill(-pid, SIGKILL);
      process.wait();
      return given_up ? fail(Code::kBoxDied, argv[0] + " was given up")
                      : fail(Code::kTimedOut, argv[0] + " does not answer");
    }
    const ssize_t n = read(reader.get(), buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    const std::size_t room = output_limit - result.output.size();
    result.output.append(buffer, std::min(room, static_cast<std::size_t>(n)));
  }
  const auto status = process.wait();
  if (!status) return fail(Code::kInternal, "lost the child " + argv[0]);
  result.status = *status;
  return result;
}

Result<void> close_on_exec_from(int first) {
  if (syscall(SYS_close_range, first, ~0u, CLOSE_RANGE_CLOEXEC) != 0) {
    return fail_errno(errno, "close_range");
  }
  return {};
}

Result<void> close_all_except(std::vector<int> keep) {
  std::sort(keep.begin(), keep.end());
  unsigned from = 3;
  auto close_gap = [&from](unsigned until) {
    return from > until || syscall(SYS_close_range, from, until, 0) == 0;
  };
  for (const int fd : keep) {
    if (fd < static_cast<int>(from)) continue;
    if (static_cast<unsigned>(fd) > from && !close_gap(static_cast<unsigned>(fd) - 1)) {
      return fail_errno(errno, "close_range");
    }
    from = static_cast<unsigned>(fd) + 1;
  }
  if (!close_gap(~0u)) return fail_errno(errno, "close_range");
  return {};
}

Result<void> send_with_fds(int socket, std::string_view bytes, std::span<const int> fds,
                           int flags) {
  iovec iov{const_cast<char*>(bytes.data()), bytes.size()};
  msghdr message{};
  message.msg_iov = &iov;
  message.msg_iovlen = 1;
  std::vector<char> control;
  if (!fds.empty()) {
    control.resize(CMSG_SPACE(fds.size_bytes()));
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(fds.size_bytes());
    memcpy(CMSG_DATA(header), fds.data(), fds.size_bytes());
  }
  ssize_t n;
  do {
    n = fds.empty() ? send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL | flags)
                    : sendmsg(socket, &message, MSG_NOSIGNAL | flags);
  } while (n < 0 && errno == EINTR);
  if (n < 0) return fail_errno(errno, "sendmsg");
  return {};
}

Result<Received> receive_with_fds(int socket, std::size_t max_bytes, std::size_t max_fds) {
  Received received;
  received.bytes.resize(max_bytes);
  iovec iov{received.bytes.data(), max_bytes};
  std::vector<char> control(CMSG_SPACE(max_fds * sizeof(int)));
  msghdr message{};
  message.msg_iov = &iov;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  // Not the space, which is rounded up: that has room for one more of an odd number.
  message.msg_controllen = CMSG_LEN(max_fds * sizeof(int));
  ssize_t n;
  do {
    n = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  } while (n < 0 && errno == EINTR);
  if (n < 0) return fail_errno(errno, "recvmsg");
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
       header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd;
      memcpy(&fd, CMSG_DATA(header) + i * sizeof(int), sizeof fd);
      received.fds.emplace_back(fd);
    }
  }
  if ((message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0) {
    return fail(Code::kProtocol, "a control message larger than agreed");
  }
  received.bytes.resize(static_cast<std::size_t>(n));
  return received;
}

Result<std::pair<UniqueFd, UniqueFd>> socket_pair(int type) {
  std::array<int, 2> ends{};
  if (socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    return fail_errno(errno, "socketpair");
  }
  return std::make_pair(UniqueFd(ends[0]), UniqueFd(ends[1]));
}

}  // namespace temenos::sys
