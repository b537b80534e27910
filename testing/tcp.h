// TCP connections over loopback, for tests.
#pragma once

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <utility>

#include "base/unique_fd.h"

namespace temenos::testing {

inline void must(bool condition) {
  if (!condition) std::abort();
}

struct LoopbackListener {
  explicit LoopbackListener(int backlog = 512) {
    fd.reset(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    sockaddr_in at{.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t size = sizeof at;
    must(bind(fd.get(), reinterpret_cast<sockaddr*>(&at), size) == 0);
    must(listen(fd.get(), backlog) == 0);
    must(getsockname(fd.get(), reinterpret_cast<sockaddr*>(&at), &size) == 0);
    port = ntohs(at.sin_port);
  }
  // -1 when nobody came in time.
  UniqueFd accept_one(int timeout_ms = 5000) const {
    pollfd entry{fd.get(), POLLIN, 0};
    if (poll(&entry, 1, timeout_ms) != 1) return UniqueFd();
    return UniqueFd(accept4(fd.get(), nullptr, nullptr, SOCK_CLOEXEC));
  }
  UniqueFd fd;
  std::uint16_t port = 0;
};

inline UniqueFd connect_loopback(std::uint16_t port, int receive_buffer = 0) {
  UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (receive_buffer > 0) {
    must(setsockopt(fd.get(), SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof receive_buffer) == 0);
  }
  sockaddr_in at{
      .sin_family = AF_INET, .sin_port = htons(port), .sin_addr = {htonl(INADDR_LOOPBACK)}};
  must(connect(fd.get(), reinterpret_cast<sockaddr*>(&at), sizeof at) == 0);
  return fd;
}

// A connected pair: the first end is the one that connected.
inline std::pair<UniqueFd, UniqueFd> tcp_pair() {
  const LoopbackListener listener;
  UniqueFd near = connect_loopback(listener.port);
  UniqueFd far = listener.accept_one();
  must(static_cast<bool>(far));
  return {std::move(near), std::move(far)};
}

inline void reset_now(UniqueFd& fd) {
  const linger at_once{1, 0};
  must(setsockopt(fd.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once) == 0);
  fd.reset();
}

inline bool send_text(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t count = send(fd, text.data(), text.size(), MSG_NOSIGNAL);
    if (count <= 0) return false;
    text.remove_prefix(static_cast<std::size_t>(count));
  }
  return true;
}

// What comes until the end, `size` bytes, a reset or the time is over. `how` it ended: "" for size,
// "end", "reset" or "time".
struct Heard {
  std::string text;
  std::string how;
};
inline Heard hear(int fd, std::size_t size = SIZE_MAX, int timeout_ms = 5000) {
  using Clock = std::chrono::steady_clock;
  const auto until = Clock::now() + std::chrono::milliseconds(timeout_ms);
  Heard out;
  while (out.text.size() < size) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now()).count();
    pollfd entry{fd, POLLIN, 0};
    if (left < 0 || poll(&entry, 1, static_cast<int>(left)) == 0) {
      out.how = "time";
      return out;
    }
    char room[65536];
    const ssize_t count = recv(fd, room, std::min(sizeof room, size - out.text.size()), 0);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) {
      out.how = count == 0 ? "end" : errno == ECONNRESET ? "reset" : "error";
      return out;
    }
    out.text.append(room, static_cast<std::size_t>(count));
  }
  return out;
}

}  // namespace temenos::testing
