// dialer: the process of a box that has the host's network. It takes fixed-size requests of front,
// which is hostile once the box owns it, decides by the allowlist (egress/engine.h), looks up,
// checks, connects, and hands over connected sockets; keeper gives it rules, front's socket and the
// host's resolver files (egress/control.h). It reads no byte of any connection.
//
// After Dialer is made nothing is opened: see jail/dialer_jail.h for the calls that are left.
// Single-threaded: one epoll loop.
#pragma once

#include <memory>

#include "base/unique_fd.h"
#include "egress/log.h"
#include "egress/names.h"
#include "temenos/error.h"

namespace temenos::egress {

class Dialer {
 public:
  struct Options {
    std::uint16_t dns_port = 53;
  };
  // What keeper has started it with.
  static Result<Dialer> make(UniqueFd control, Log log, NameTable names, const Options& options);
  static Result<Dialer> make(UniqueFd control, Log log, NameTable names) {
    return make(std::move(control), std::move(log), std::move(names), Options{});
  }
  Dialer(Dialer&&) noexcept;
  ~Dialer();

  // Until keeper goes: an error when it has said something that is no record of ours.
  Result<void> serve();

 private:
  class Loop;
  explicit Dialer(std::unique_ptr<Loop> loop);
  std::unique_ptr<Loop> loop_;
};

}  // namespace temenos::egress
