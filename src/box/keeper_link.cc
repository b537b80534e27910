#include "box/keeper_link.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <vector>

#include "base/text.h"
#include "base/try.h"
#include "keeper/keeper.h"
#include "keeper/proxy_main.h"
#include "sys/file_sys.h"

namespace temenos::box {
namespace {

using keeper::Message;

// After its start-up time-out a keeper ends by itself, and an end has a limit too; this is for a
// keeper that hangs.
constexpr int kKeeperGraceMs = 70'000;

// The keeper gets its control socket as descriptor 3, what else is for it from 4 on, and nothing
// else but 0 to 2. `argv` ends with a null pointer.
[[noreturn]] void become_keeper(const std::string& path, char* const* argv,
                                std::span<const int> fds) {
  constexpr int kFirst = 3;
  setpgid(0, 0);  // a Ctrl-C is for the command in the box, not for the keeper
  const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  std::array<int, keeper::kProxyFds> copies{};
  for (std::size_t i = 0; i < fds.size(); ++i) copies[i] = fcntl(fds[i], F_DUPFD_CLOEXEC, 10);
  for (std::size_t i = 0; i < fds.size(); ++i) {
    if (dup2(copies[i], kFirst + static_cast<int>(i)) < 0) _exit(125);
  }
  for (const int fd : {0, 1, 2}) dup2(null, fd);
  (void)!chdir("/");  // it may outlive the directory that it was started in
  (void)sys::close_on_exec_from(kFirst + static_cast<int>(fds.size()));
  char search[] = "PATH=/usr/sbin:/usr/bin:/sbin:/bin";
  char* const environment[] = {search, nullptr};
  execve(path.c_str(), argv, environment);
  _exit(125);
}

// A durable keeper is a grandchild: its end is nobody's to wait for, and no terminal reaches it.
Result<sys::Process> spawn_keeper(const std::string& path, std::vector<std::string> arguments,
                                  std::span<const int> fds, bool durable) {
  // Before the fork: nothing is allocated after it.
  arguments.insert(arguments.begin(), "temenos-keeper");
  std::vector<char*> argv;
  for (auto& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  UniqueFd pidfd;
  const pid_t pid = TRY(sys::raw_fork(0, &pidfd));
  if (pid == 0) {
    if (durable) {
      setsid();
      UniqueFd second_pidfd;
      const auto second = sys::raw_fork(0, &second_pidfd);
      if (!second || *second != 0) _exit(second ? 0 : 125);
    }
    become_keeper(path, argv.data(), fds);
  }
  sys::Process process(pid, std::move(pidfd));
  if (!durable) return process;
  // Nothing is known of it where the program ignores SIGCHLD.
  const auto status = process.wait();
  if (status && status->code != 0) {
    return fail(Code::kExhausted, "cannot start the keeper of the box",
                "end some processes, or see ulimit -u");
  }
  return sys::Process();
}

// A path of any length fits: the directory is named by its descriptor (unix(7) allows 108 bytes).
sockaddr_un address_in(const store::DataDir& dir) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string path =
      "/proc/self/fd/" + std::to_string(dir.directory.get()) + "/" + keeper::kSocketName;
  memcpy(address.sun_path, path.c_str(), path.size() + 1);
  return address;
}

Error killed() {
  constexpr auto kReason = keeper::EndReason::kKeeperDied;
  Error error;
  error.code = Code::kBoxDied;
  error.what = std::string(keeper::end_reason_text(kReason));
  error.hint = std::string(keeper::end_reason_hint(kReason));
  return error;
}

}  // namespace

Result<KeeperLink> KeeperLink::launch(const std::string& program, keeper::Launch launch,
                                      int cancel_fd) {
  KeeperLink link;
  auto [here, there] = TRY(sys::socket_pair(SOCK_SEQPACKET));
  const int control = there.get();
  link.keeper_ = TRY(spawn_keeper(program, {}, {&control, 1}, launch.spec.durable));
  there.reset();
  link.socket_ = std::move(here);
  TRY(keeper::send_launch(link.socket_.get(), launch));
  launch = {};
  TRY(link.wait_until_ready(cancel_fd));
  return link;
}

Result<KeeperLink> KeeperLink::launch_proxy(const std::string& program, const ProxyStart& start) {
  KeeperLink link;
  auto [here, there] = TRY(sys::socket_pair(SOCK_SEQPACKET));
  const int fds[keeper::kProxyFds] = {there.get(), start.log[0].get(), start.log[1].get(),
                                      start.rules.get()};
  link.keeper_ =
      TRY(spawn_keeper(program, {keeper::kBeProxy, start.dialer, start.front}, fds, false));
  there.reset();
  link.socket_ = std::move(here);
  TRY(link.wait_until_ready(-1));
  return link;
}

// Else it is ended.
Result<void> KeeperLink::wait_until_ready(int cancel_fd) {
  pollfd fds[] = {{socket_.get(), POLLIN, 0}, {cancel_fd, POLLIN, 0}};
  while (poll(fds, 2, -1) < 0 && errno == EINTR) {
  }
  auto failed = [this](Error error) {
    (void)stop();
    return tl::make_unexpected(std::move(error));
  };
  if (fds[0].revents == 0) {
    return failed(fail(Code::kBoxDied, "the start was given up", "start it again").value());
  }
  const auto message = keeper::receive_message(socket_.get());
  if (!message) return failed(killed().with_hint("try again"));
  if (message->kind != Message::kReady) return failed(keeper::to_error(*message));
  ready_ = *message;
  return {};
}

Result<UniqueFd> KeeperLink::listen(const store::DataDir& dir) {
  UniqueFd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (!socket) return fail_errno(errno, "socket");
  const sockaddr_un address = address_in(dir);
  // Of a keeper that was killed: nobody listens there, since we hold the life lock.
  unlinkat(dir.directory.get(), keeper::kSocketName, 0);
  if (bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      ::listen(socket.get(), 64) != 0) {
    return fail_errno(errno, "cannot make " + escape(dir.path) + "/" + keeper::kSocketName,
                      "the data directory must be on a local file system with room: set "
                      "XDG_DATA_HOME");
  }
  return socket;
}

Result<KeeperLink> KeeperLink::connect(const store::DataDir& dir) {
  KeeperLink link;
  link.socket_.reset(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (!link.socket_) return fail_errno(errno, "socket");
  const sockaddr_un address = address_in(dir);
  if (::connect(link.socket_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) !=
      0) {
    if (errno == ENOENT || errno == ECONNREFUSED) {
      return fail(Code::kNotFound, "the box is not running", "start it first");
    }
    return fail_errno(errno, "connecting to the box's keeper", "try again");
  }
  ucred peer{};
  socklen_t size = sizeof peer;
  if (getsockopt(link.socket_.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 ||
      peer.uid != geteuid()) {
    return fail(Code::kPermissionDenied, "another user listens in " + escape(dir.path),
                "remove that directory");
  }
  return link;
}

Result<Message> KeeperLink::request(const Message& message, std::span<const int> fds) {
  if (ended_) return tl::make_unexpected(*ended_);
  auto sent = sys::send_with_fds(socket_.get(),
                                 {reinterpret_cast<const char*>(&message), sizeof message}, fds);
  // A keeper that has gone may have left its last word.
  const auto reply = keeper::receive_message(socket_.get());
  if (sent && reply && reply->kind == Message::kOk) return *reply;
  heard(reply);
  return tl::make_unexpected(*ended_);
}

// The last word, or that there is none.
void KeeperLink::heard(const Result<Message>& last) {
  ended_ = last ? keeper::to_error(*last) : killed();
  reason_ = last ? static_cast<keeper::EndReason>(last->value) : keeper::EndReason::kKeeperDied;
  evidence_ = last ? keeper::evidence_of(*last) : "";
}

Result<UniqueFd> KeeperLink::attach() {
  auto [here, there] = TRY(sys::socket_pair(SOCK_STREAM));
  Message message;
  message.kind = Message::kAttach;
  const int fd = there.get();
  TRY(request(message, {&fd, 1}));
  return std::move(here);
}

Result<void> KeeperLink::add_job(std::uint32_t number, std::uint32_t segment_limit,
                                 const std::array<UniqueFd, 2>& segments) {
  Message message;
  message.kind = Message::kAddJob;
  message.value = number;
  message.limit = segment_limit;
  const int fds[] = {segments[0].get(), segments[1].get()};
  TRY(request(message, fds));
  return {};
}

Result<void> KeeperLink::set_rules(int sealed_file, bool narrowed) {
  Message message;
  message.kind = Message::kRules;
  message.value = narrowed ? 1 : 0;
  const auto reply = TRY(request(message, {&sealed_file, 1}));
  if (reply.value != 0) return tl::make_unexpected(keeper::to_error(reply));
  return {};
}

Result<KeeperLink::NetworkNews> KeeperLink::flush_network_log() {
  Message message;
  message.kind = Message::kFlushNetworkLog;
  const auto reply = TRY(request(message, {}));
  if (reply.code != 0) return tl::make_unexpected(keeper::to_error(reply));
  return NetworkNews{reply.value, keeper::text_of(reply)};
}

Result<keeper::ProxyAddress> KeeperLink::proxy() {
  Message message;
  message.kind = Message::kProxy;
  return TRY(request(message, {})).proxy;
}

Result<Message> KeeperLink::stats() {
  Message message;
  message.kind = Message::kStats;
  return request(message, {});
}

bool KeeperLink::alive() {
  Message message;
  message.kind = Message::kPing;
  return socket_ && request(message, {}).has_value();
}

std::optional<Error> KeeperLink::why_ended(int wait_ms) {
  if (ended_ || !socket_) return ended_;
  pollfd fd{socket_.get(), POLLIN, 0};
  if (poll(&fd, 1, wait_ms) <= 0) return std::nullopt;
  heard(keeper::receive_message(socket_.get()));
  return ended_;
}

Result<void> KeeperLink::stop() {
  if (!socket_) return {};
  if (!ended_) {
    Message stop;
    stop.kind = Message::kStop;
    (void)keeper::send_message(socket_.get(), stop);
  }
  // Its last word comes when all is gone; the socket's end, when it was killed.
  const bool over = why_ended(kKeeperGraceMs).has_value();
  if (keeper_) {
    pollfd fd{keeper_.pidfd(), POLLIN, 0};
    if (!over || poll(&fd, 1, kKeeperGraceMs) <= 0) keeper_.send(SIGKILL);
    keeper_.wait();
  } else if (!over) {
    return fail(Code::kTimedOut, "the keeper of the box does not end it",
                "end it by hand: pkill -9 temenos-keeper ends the keepers of all your boxes");
  }
  socket_.reset();
  return {};
}

}  // namespace temenos::box
