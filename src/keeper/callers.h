// Who may use a live box: the process that started it and, for a box that outlives that one, those
// that come later through the box's socket. Each has one SOCK_SEQPACKET connection for fixed-size
// Messages: it asks for a way to the session, or for the end of the box, and hears why the box
// ended. Callers are trusted (the same user); their form is checked all the same. No byte of the
// box is here.
//
// Thread-safety: none. Ownership: owns its sockets.
#pragma once

#include <poll.h>

#include <span>
#include <vector>

#include "base/unique_fd.h"
#include "keeper/messages.h"

namespace temenos::keeper {

class BoxLimits;
class EgressWatch;

class Callers {
 public:
  static constexpr std::size_t kMax = 64;  // with a way to the session: as many as it has clients
  // More, for those that only want the end of the box, and to tell others that there are too many.
  static constexpr std::size_t kSpare = 16;

  // `starter` is the connection of who started the box: its end is the end of the box until
  // outlive_starter(). `listener` may be empty.
  Callers(UniqueFd starter, UniqueFd listener);
  // Before that nobody gets a way to the session, whoever asks.
  void box_is_ready() { ready_ = true; }
  // From here on nobody's end is the box's.
  void outlive_starter() { starter_rules_ = false; }

  void add_polls(std::vector<pollfd>& polls) const;
  // `polls` is what add_polls() added, after poll(2). `session` is the control socket of the
  // session; nothing is asked of it when it is negative. True: the box is to end.
  bool serve(std::span<const pollfd> polls, int session, const BoxLimits& limits,
             EgressWatch& egress);

  // To the starter; false when it has gone.
  bool tell_starter(const Message& message);
  // No one new; those in the socket's queue are refused.
  void close_listener() { listener_.reset(); }
  // The last word to each, and the end of all connections.
  void say_goodbye(const Message& last);

 private:
  enum class Answer { kNone, kDrop, kEnd };
  void accept_one();
  Answer answer(int socket, int session, const BoxLimits& limits, EgressWatch& egress);
  bool too_many() const;

  std::vector<UniqueFd> sockets_;  // the first is the starter's, empty once it has gone
  UniqueFd listener_;
  bool starter_rules_ = true;
  bool ready_ = false;
};

}  // namespace temenos::keeper
