// front's end of the socket to dialer: requests out, replies in (egress/dial_protocol.h). Who asks
// keeps its own id and is the one who knows whether an answer is still wanted.
//
// Thread-safety: none. Ownership: owns the socket.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>

#include "base/unique_fd.h"
#include "egress/dial_protocol.h"

namespace temenos::front {

class DialClient {
 public:
  // What a dialer that does not read leaves waiting here. Reports are dropped sooner: they are only
  // for the log. Where dialer is only slow none is: each connection has one question at most here,
  // each name too, and each that was answered leads to one report at most.
  static constexpr std::size_t kMaxQueued = 4'096;
  static constexpr std::size_t kMaxQueuedReports = 3'072;

  // To a new dialer, whose answers go to nobody who asked the last one.
  void use(UniqueFd socket);
  // It is gone, or has said what it may not say.
  void lose();
  bool connected() const { return static_cast<bool>(socket_); }
  int fd() const { return socket_.get(); }

  // False: there is no dialer, or too much waits for it already.
  bool ask(const egress::Request& request);
  void report(const egress::Request& request);

  // Sends what waits and hands over what has come, until there is nothing more. False: it is lost.
  using Receive = std::function<void(const egress::Reply&, UniqueFd)>;
  bool exchange(const Receive& receive);
  bool blocked() const { return !queue_.empty(); }

 private:
  enum class Got { kReply, kNothing, kLost };
  Got receive_one(egress::Reply& reply, UniqueFd& passed);
  bool flush();

  UniqueFd socket_;
  std::deque<egress::Request> queue_;
};

}  // namespace temenos::front
