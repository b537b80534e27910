// Ports and sockets of a box, reached from the host: any number of connections at once over one
// connection to its session. One thread moves the bytes; each way of a connection ends by itself,
// and who does not read holds up nobody else. Trusts session to have bounded what comes from the
// box; decodes it strictly all the same. What arrives from a port is the box's, hostile as all of
// it.
//
// The box cannot tell who connects: whoever reaches a listener that is handed to forward() reaches
// the port behind it. Bind listeners to loopback, or to a socket file that only its user may open.
//
// Thread-safety: all calls but construction and destruction from any thread. Ownership: owns the
// connection and the listeners, which it makes non-blocking; an end that dial() gives is the
// caller's.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/unique_fd.h"
#include "box/session_client.h"
#include "temenos/box.h"
#include "temenos/error.h"

namespace temenos {

class PortPump {
 public:
  // Beyond that many, dial() fails (kExhausted), and who connects to a listener waits in its
  // backlog.
  static constexpr std::size_t kMaxConnections = 256;

  // `client` is of no more use.
  static Result<std::unique_ptr<PortPump>> start(SessionClient client);
  // Connections are cut, listeners closed.
  ~PortPump();
  PortPump(const PortPump&) = delete;
  PortPump& operator=(const PortPump&) = delete;

  // Blocks until the port has answered: at most 10 s, if the box keeps to its word. The descriptor
  // is a stream socket, blocking, close-on-exec: shutdown(2) and end of file mean what they mean at
  // the other end. A connection that the box resets ends like one that it closes.
  // kIo with sys_errno ECONNREFUSED: nobody listens there.
  Result<UniqueFd> dial(const PortTarget& target);

  // Accepts on `listener`, a listening stream socket, for as long as this lives, and connects each
  // to `target`; where nobody listens in the box, the accepted connection is reset. Gives the
  // listener's port, 0 when it is a unix socket.
  Result<std::uint16_t> forward(UniqueFd listener, const PortTarget& target);

 private:
  class Loop;
  using Dialed = std::promise<Result<UniqueFd>>;
  struct Order {
    PortTarget target;
    UniqueFd listener;  // of forward(); none: dial()
    std::unique_ptr<Dialed> dialed;
  };
  explicit PortPump(UniqueFd wake) : wake_(std::move(wake)) {}
  Result<void> give(Order order);

  UniqueFd wake_;  // an eventfd: there are orders, or it is time to stop
  std::mutex mutex_;
  std::vector<Order> orders_;  // under mutex_, as all below
  bool stopping_ = false;
  std::unique_ptr<Error> ended_;  // why nothing goes any more
  std::thread thread_;
};

}  // namespace temenos
