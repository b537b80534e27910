// One connection of a box, from accept to its end: its two sockets, what its gate (gate.h) says,
// and its time. Forwards with a Relay.
//
// Thread-safety: none. Ownership: owns its sockets. What it shares with others is in Shared, which
// outlives it.
#pragma once

#include <cstdint>
#include <limits>
#include <span>

#include "base/unique_fd.h"
#include "egress/dial_protocol.h"
#include "front/dial_client.h"
#include "front/gate.h"
#include "front/relay.h"

namespace temenos::front {

using Millis = std::int64_t;  // of CLOCK_MONOTONIC
inline constexpr Millis kNever = std::numeric_limits<Millis>::max();

struct Times {
  Millis head = 10'000;     // for a whole head or hello, from its first moment on
  Millis dialer = 30'000;   // it has its own, shorter ones
  Millis idle = 3'600'000;  // nothing in either direction
  // For what a refused client speaks; and where it is to speak first, since a large one on a busy
  // machine takes its time between connecting and its hello.
  Millis peek = 800;
  Millis hello = 5'000;
  Millis quiet = 200;       // of the server, before a refusal in the midst of a connection
  Millis farewell = 5'000;  // for a client to read why
  Millis unsent = kUnsentTime.count();
};

struct Shared {
  Pipes pipes;
  DialClient dialer;
  Times times;
  std::span<char> room;    // what is read goes through it
  std::size_t memory = 0;  // of all connections together
  std::size_t max_memory = 0;
};

class Connection {
 public:
  // `id` comes back with dialer's answers and stays its name in dialer's log.
  Connection(Shared& shared, std::uint64_t id, UniqueFd client, Gate gate, Millis now);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  enum class Step : std::uint8_t {
    kIdle,   // until an event, an answer or deadline()
    kMore,   // others may want their turn first
    kOver,   // closed, reported
    kWatch,  // a new socket to the server: watch server_fd(), then go on
  };
  Step step(Millis now);

  void on_client(std::uint32_t events) { relay_.client.note(events); }
  void on_server(std::uint32_t events) { relay_.server.note(events); }
  void on_reply(const egress::Reply& reply, UniqueFd socket, Millis now);
  void on_dialer_lost();
  void on_denied();  // it may be no longer
  void on_time(Millis now);
  Millis deadline() const;

  std::uint64_t id() const { return id_; }
  int client_fd() const { return relay_.client.fd.get(); }
  int server_fd() const { return relay_.server.fd.get(); }

 private:
  enum class Phase : std::uint8_t {
    kGate,       // its gate decides what goes on
    kOpen,       // everything goes both ways
    kFarewell,   // the client reads why, then the end
    kAbandoned,  // the client is gone, dialer still has to answer
    kOver,
  };
  Step act(Gate::Do what, Millis now);
  Step ask(Millis now);
  void note_wait(Gate::Wait wait, Millis now);
  bool feed(Millis now);
  bool feed_server();
  Step farewell();
  Step over();
  Step lost();
  void note_progress(Millis now);
  void count_memory();
  void report();

  Shared& shared_;
  std::uint64_t id_;
  Gate gate_;
  Relay relay_;
  Phase phase_ = Phase::kGate;
  bool awaiting_ = false;    // an answer of dialer
  bool new_server_ = false;  // not watched yet
  bool farewell_said_ = false;
  bool reported_ = false;
  bool end_passed_on_ = false;  // of a client that may say no more
  std::uint64_t said_ = 0;      // bytes to the client that are our own
  std::uint64_t seen_up_ = 0;
  std::uint64_t seen_down_ = 0;
  std::size_t drained_ = 0;
  std::size_t memory_ = 0;
  Millis begun_;
  Millis active_;        // the last byte in either direction
  Millis answered_ = 0;  // the last byte of the server
  Millis waits_since_;
  Gate::Wait wait_ = Gate::Wait::kNothing;
  std::uint32_t heads_ = 0;
};

}  // namespace temenos::front
