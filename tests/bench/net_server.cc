#include "tests/bench/net_server.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/try.h"
#include "sys/process_sys.h"

namespace temenos::bench {
namespace {

constexpr int kBacklog = 1024;
constexpr std::size_t kChunk = 256 * 1024;

void at_once(int fd) {
  const int one = 1;
  (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
}

bool send_all(int fd, const char* bytes, std::size_t size) {
  while (size > 0) {
    const ssize_t sent = send(fd, bytes, size, MSG_NOSIGNAL);
    if (sent <= 0) return false;
    bytes += sent;
    size -= static_cast<std::size_t>(sent);
  }
  return true;
}

void stream(int fd, std::uint64_t bytes) {
  static const std::vector<char> data(kChunk, 'x');
  char go = 0;
  if (!send_all(fd, "k", 1) || recv(fd, &go, 1, 0) != 1) return;
  while (bytes > 0) {
    const auto size = static_cast<std::size_t>(std::min<std::uint64_t>(bytes, kChunk));
    if (!send_all(fd, data.data(), size)) return;
    bytes -= size;
  }
}

void short_answer(int fd, bool http) {
  std::string answer = kShortAnswer;
  if (http) {
    answer = "HTTP/1.1 200 OK\r\nContent-Length: " + std::to_string(answer.size()) +
             "\r\nConnection: close\r\n\r\n" + answer;
  }
  (void)send_all(fd, answer.data(), answer.size());
}

// A request is sent in one piece and is far smaller than any buffer on its way.
void serve_one(UniqueFd client) {
  at_once(client.get());
  char room[512];
  for (;;) {
    const ssize_t size = recv(client.get(), room, sizeof room, 0);
    if (size <= 0) return;
    if (room[0] == kEcho) {
      if (!send_all(client.get(), room, static_cast<std::size_t>(size))) return;
      continue;
    }
    if (room[0] == kStream && size == sizeof(StreamOrder)) {
      StreamOrder order{};
      memcpy(&order, room, sizeof order);
      stream(client.get(), order.bytes);
    } else {
      short_answer(client.get(), room[0] == 'G');
    }
    return;
  }
}

int serve(int listener, int other) {
  for (;;) {
    pollfd polls[] = {{listener, POLLIN, 0}, {other, POLLIN, 0}};
    if (poll(polls, 2, -1) < 0) return 1;
    for (const auto& ready : polls) {
      if (ready.revents == 0) continue;
      UniqueFd client(accept4(ready.fd, nullptr, nullptr, SOCK_CLOEXEC));
      if (client) std::thread(serve_one, std::move(client)).detach();
    }
  }
}

// ---- the forwarder

struct Way {
  UniqueFd reader;
  UniqueFd writer;
  std::size_t held = 0;
  bool ended = false;
};

struct Forwarded {
  UniqueFd ends[2];
  Way ways[2];  // from ends[i] to the other
};

bool open_way(Way& way) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) return false;
  way.reader.reset(ends[0]);
  way.writer.reset(ends[1]);
  (void)fcntl(ends[1], F_SETPIPE_SZ, static_cast<int>(kChunk));
  return true;
}

// False when the connection is broken.
bool move(Way& way, int from, int to) {
  constexpr unsigned kFlags = SPLICE_F_MOVE | SPLICE_F_NONBLOCK;
  while (!way.ended || way.held > 0) {
    if (way.held == 0) {
      const ssize_t got = splice(from, nullptr, way.writer.get(), nullptr, kChunk, kFlags);
      if (got < 0) return errno == EAGAIN;
      if (got == 0) {
        (void)shutdown(to, SHUT_WR);
        way.ended = true;
      }
      way.held = static_cast<std::size_t>(got);
    }
    while (way.held > 0) {
      const ssize_t sent = splice(way.reader.get(), nullptr, to, nullptr, way.held, kFlags);
      if (sent < 0) return errno == EAGAIN;
      way.held -= static_cast<std::size_t>(sent);
    }
  }
  return true;
}

class Forwarder {
 public:
  explicit Forwarder(std::uint16_t port) : port_(port) {}

  int run(int listener) {
    epoll_event come{.events = EPOLLIN, .data = {.ptr = nullptr}};
    epoll_.reset(epoll_create1(EPOLL_CLOEXEC));
    if (!epoll_ || epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, listener, &come) != 0) return 1;
    for (;;) {
      epoll_event events[64];
      const int count = epoll_wait(epoll_.get(), events, 64, -1);
      if (count < 0 && errno != EINTR) return 1;
      for (int i = 0; i < count; ++i) {
        auto* const known = static_cast<Forwarded*>(events[i].data.ptr);
        if (known == nullptr) {
          begin(listener);
        } else if (!step(*known)) {
          forget(known);
        }
      }
      over_.clear();
    }
  }

 private:
  void begin(int listener) {
    auto made = std::make_unique<Forwarded>();
    made->ends[0].reset(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    made->ends[1].reset(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const sockaddr_in to{
        .sin_family = AF_INET, .sin_port = htons(port_), .sin_addr = {htonl(INADDR_LOOPBACK)}};
    if (!made->ends[0] || !open_way(made->ways[0]) || !open_way(made->ways[1]) ||
        connect(made->ends[1].get(), reinterpret_cast<const sockaddr*>(&to), sizeof to) != 0 ||
        fcntl(made->ends[1].get(), F_SETFL, O_NONBLOCK) != 0) {
      return;
    }
    for (const auto& end : made->ends) {
      at_once(end.get());
      epoll_event event{.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET,
                        .data = {.ptr = made.get()}};
      (void)epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, end.get(), &event);
    }
    live_.push_back(std::move(made));
  }

  static bool step(Forwarded& one) {
    for (int i = 0; i < 2; ++i) {
      if (!move(one.ways[i], one.ends[i].get(), one.ends[1 - i].get())) return false;
    }
    return !(one.ways[0].ended && one.ways[1].ended);
  }

  // Not freed before the turn is over: it may have another event in it.
  void forget(Forwarded* one) {
    for (auto& at : live_) {
      if (at.get() != one) continue;
      for (auto& end : one->ends) end.reset();
      over_.push_back(std::move(at));
      at = std::move(live_.back());
      live_.pop_back();
      return;
    }
  }

  std::uint16_t port_;
  UniqueFd epoll_;
  std::vector<std::unique_ptr<Forwarded>> live_;
  std::vector<std::unique_ptr<Forwarded>> over_;
};

// `act` in a process that has `kept` and nothing else.
template <typename F>
Result<Child> in_process(std::vector<int> kept, F&& act) {
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0) return fail_errno(errno, "fork");
  if (pid == 0) {
    signal(SIGPIPE, SIG_IGN);
    if (!sys::die_with_parent() || getppid() != parent || !sys::close_all_except(std::move(kept))) {
      _exit(1);
    }
    _exit(act());
  }
  return Child(pid);
}

}  // namespace

Child::~Child() {
  if (pid_ <= 0) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

Result<Listening> listen_at(const char* address) {
  Listening out;
  out.fd.reset(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in at{.sin_family = AF_INET};
  socklen_t size = sizeof at;
  if (!out.fd || inet_pton(AF_INET, address, &at.sin_addr) != 1 ||
      bind(out.fd.get(), reinterpret_cast<const sockaddr*>(&at), size) != 0 ||
      listen(out.fd.get(), kBacklog) != 0 ||
      getsockname(out.fd.get(), reinterpret_cast<sockaddr*>(&at), &size) != 0) {
    return fail_errno(errno, std::string("listening at ") + address);
  }
  out.port = ntohs(at.sin_port);
  return out;
}

Result<Child> start_server(int listener, int other) {
  return in_process({listener, other}, [=] { return serve(listener, other); });
}

Result<Child> start_forwarder(int listener, std::uint16_t port) {
  return in_process({listener}, [=] { return Forwarder(port).run(listener); });
}

}  // namespace temenos::bench
