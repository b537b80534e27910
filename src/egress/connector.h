// Connections to addresses that were checked, and to those themselves: happy eyeballs (RFC 8305)
// over the list, non-blocking, with a deadline. What it hands over is connected, non-blocking and
// close-on-exec, with TCP_NODELAY and keepalive. No descriptor outlives its race but the winner's.
//
// System calls: socket, connect, getsockname, getsockopt (SO_ERROR), setsockopt, poll, close,
// epoll_ctl.
// Thread-safety: none. `now` is a steady clock in milliseconds.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <unordered_map>
#include <vector>

#include "base/unique_fd.h"
#include "egress/engine.h"
#include "temenos/network.h"

namespace temenos::egress {

class Connector {
 public:
  struct Options {
    std::int64_t deadline_ms = 10'000;
    std::int64_t next_ms = 250;  // until the next address is tried beside those that are
    std::size_t max_sockets = 1024;
  };
  using Done = std::function<void(std::uint64_t ticket, Connected)>;
  // For being writable, or (`on` false) no more; false: it cannot be watched.
  using Watch = std::function<bool(int fd, bool on)>;
  Connector(Done done, Watch watch) : Connector(std::move(done), std::move(watch), Options{}) {}
  Connector(Done done, Watch watch, const Options& options)
      : done_(std::move(done)), watch_(std::move(watch)), options_(options) {}

  // `own`: the address is the host's own, and meant; else one that is turns the race into a
  // refusal, also when it became the host's after it was checked.
  void start(std::uint64_t ticket, std::vector<AddressBlock> addresses, std::uint16_t port,
             bool own, std::int64_t now);
  void on_event(int fd, std::int64_t now);
  // -1 or when to call it again.
  std::int64_t tick(std::int64_t now);
  void cancel_all();
  std::size_t sockets() const { return by_fd_.size(); }

 private:
  struct Attempt {
    UniqueFd fd;
    AddressBlock address;
  };
  struct Race {
    std::vector<AddressBlock> addresses;
    std::size_t next = 0;
    std::uint16_t port = 0;
    bool own = false;
    std::vector<Attempt> attempts;
    std::int64_t wake = 0;
    std::int64_t deadline = 0;
    int last_errno = 0;
  };
  enum class Step { kGoesOn, kOver };

  Step advance(std::uint64_t ticket, Race& race, std::int64_t now);
  Step try_one(std::uint64_t ticket, Race& race, const AddressBlock& address);
  Step won(std::uint64_t ticket, Race& race, Attempt attempt);
  void lost(std::uint64_t ticket, int sys_errno);
  void end(std::uint64_t ticket);
  void wake_at(std::uint64_t ticket, Race& race, std::int64_t when);

  Done done_;
  Watch watch_;
  Options options_;
  std::unordered_map<std::uint64_t, Race> races_;
  std::unordered_map<int, std::uint64_t> by_fd_;
  std::set<std::pair<std::int64_t, std::uint64_t>> wakes_;
};

}  // namespace temenos::egress
