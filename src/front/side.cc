#include "front/side.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <cerrno>

namespace temenos::front {
namespace {

void set_option(int fd, int level, int name, int value) {
  // Where it cannot be set (a socket of a test that is not TCP) forwarding works without.
  (void)setsockopt(fd, level, name, &value, sizeof value);
}

}  // namespace

void Side::note(std::uint32_t events) {
  // A broken socket is found out by the next call.
  if ((events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0) readable = true;
  if ((events & (EPOLLOUT | EPOLLHUP | EPOLLERR)) != 0) writable = true;
  if ((events & (EPOLLRDHUP | EPOLLHUP)) != 0) hung_up = true;
  if ((events & EPOLLERR) != 0) failed = true;
  if ((events & EPOLLPRI) != 0) readable = urgent = true;
}

std::ptrdiff_t Side::receive(std::span<char> room) {
  for (;;) {
    const ssize_t count = recv(fd.get(), room.data(), room.size(), MSG_DONTWAIT);
    if (count >= 0) return count;
    if (errno == EINTR) continue;
    if (errno != EAGAIN) return kBroken;
    readable = false;
    return kNone;
  }
}

bool Side::at_end() {
  char byte = 0;
  return recv(fd.get(), &byte, 1, MSG_DONTWAIT | MSG_PEEK) == 0;
}

std::ptrdiff_t Side::send(std::span<const char> bytes) {
  for (;;) {
    const ssize_t count = ::send(fd.get(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (count >= 0) return count;
    if (errno == EINTR) continue;
    if (errno != EAGAIN) return kBroken;
    writable = false;
    return kNone;
  }
}

void Side::end_writing() { (void)shutdown(fd.get(), SHUT_WR); }

void Side::close(std::chrono::milliseconds unsent) {
  if (!fd) return;
  set_option(fd.get(), IPPROTO_TCP, TCP_USER_TIMEOUT, static_cast<int>(unsent.count()));
  fd.reset();
}

void Side::reset() {
  if (!fd) return;
  const linger at_once{1, 0};
  (void)setsockopt(fd.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  fd.reset();
}

void send_at_once(int fd) { set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1); }

void keep_alive(int fd) {
  set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, 300);
  set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, 15);
  set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, 5);
}

bool make_non_blocking(int fd) {
  const int flags = fcntl(fd, F_GETFL);
  return flags >= 0 && ((flags & O_NONBLOCK) != 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) == 0);
}

}  // namespace temenos::front
