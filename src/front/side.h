// One socket of a forwarded connection, as an edge-triggered epoll(7) sees it, and the few calls
// that are made on it. The socket must not block.
//
// Thread-safety: none. Ownership: owns its descriptor.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/unique_fd.h"

namespace temenos::front {

// What was sent and not taken yet when a connection is over is the kernel's to deliver, outside of
// every bound of front's: without progress for so long, no more.
inline constexpr std::chrono::milliseconds kUnsentTime{30'000};

struct Side {
  UniqueFd fd;
  // Not known to be empty, or full: a call says so by EAGAIN, the next event takes it back.
  bool readable = true;
  bool writable = true;
  bool hung_up = false;  // its peer sends nothing more; what it sent may still be there to read
  bool failed = false;   // reset, or given up by the kernel
  bool urgent = false;   // an urgent byte was on its way: splice(2) does not get past one

  // What epoll_wait has said of it.
  void note(std::uint32_t events);
  // Bytes into `room`; 0 at the end, -1 when there are none now, -2 when it is broken.
  static constexpr std::ptrdiff_t kNone = -1;
  static constexpr std::ptrdiff_t kBroken = -2;
  std::ptrdiff_t receive(std::span<char> room);
  // Whether nothing more comes: splice(2) says so at an urgent byte, too.
  bool at_end();
  // Bytes sent, or kNone or kBroken.
  std::ptrdiff_t send(std::span<const char> bytes);
  // The peer is told that nothing more comes.
  void end_writing();
  // Closed in order.
  void close(std::chrono::milliseconds unsent = kUnsentTime);
  // Closed by a reset: the peer sees an error and not an orderly end.
  void reset();
};

// Bytes are passed on as they come. For sockets of both sides.
void send_at_once(int fd);
// A peer that is gone without a word is noticed: after 5 idle minutes, by 5 probes 15 s apart.
void keep_alive(int fd);
bool make_non_blocking(int fd);

}  // namespace temenos::front
