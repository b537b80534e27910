// A forwarded connection: a Pump each way. Each direction has its own end (half-close is kept), and
// a reset of one side becomes a reset of the other.
//
// Usable alone: register both sockets with EPOLLIN | EPOLLPRI | EPOLLOUT | EPOLLRDHUP | EPOLLET,
// give their events to Side::note(), then call step() while it says kMore.
//
// Thread-safety: none. Ownership: owns both sockets.
#pragma once

#include "front/pump.h"

namespace temenos::front {

class Relay {
 public:
  explicit Relay(Pipes& pipes) : up(pipes), down(pipes) {}

  enum class Step { kIdle, kMore, kDone, kBroken };
  // Moves what can be moved both ways. kDone: both ends were passed on. kBroken: reset() is next.
  Step step() {
    const Pump::Step there = up.step(client, server);
    if (there == Pump::Step::kBroken) return Step::kBroken;
    const Pump::Step back = down.step(server, client);
    if (back == Pump::Step::kBroken) return Step::kBroken;
    if (lost()) return Step::kBroken;
    if (there == Pump::Step::kEnded && back == Pump::Step::kEnded) return Step::kDone;
    const bool more = there == Pump::Step::kMore || back == Pump::Step::kMore;
    return more ? Step::kMore : Step::kIdle;
  }
  // Everything from now on, both ways.
  void open() {
    up.allow(Pump::kUnlimited);
    down.allow(Pump::kUnlimited);
  }
  // A reset that no read will find, since that direction has ended.
  bool lost() const { return (client.failed && up.ended()) || (server.failed && down.ended()); }
  void reset() {
    up.drop();
    down.drop();
    client.reset();
    server.reset();
  }

  Side client;
  Side server;
  Pump up;    // client to server
  Pump down;  // server to client
};

}  // namespace temenos::front
