#include "keeper/callers.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "keeper/box_limits.h"
#include "keeper/egress_watch.h"
#include "session/control.h"
#include "sys/process_sys.h"

namespace temenos::keeper {
namespace {

using session::ControlMessage;
using session::ControlType;

bool same_user(int socket) {
  ucred peer{};
  socklen_t size = sizeof peer;
  return getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 &&
         (peer.uid == geteuid() || peer.uid == 0);
}

// One whole Message and exactly the descriptors that it takes; else nothing.
bool receive_request(int socket, Message& message, std::vector<UniqueFd>& fds) {
  auto received = sys::receive_with_fds(socket, sizeof message, kMaxMessageFds);
  if (!received || received->bytes.size() != sizeof message) return false;
  memcpy(&message, received->bytes.data(), sizeof message);
  fds = std::move(received->fds);
  return fds.size() == descriptors_of(message.kind);
}

Result<void> ask_session(int session, const ControlMessage& control,
                         const std::vector<UniqueFd>& fds) {
  std::vector<int> raw;
  for (const auto& fd : fds) raw.push_back(fd.get());
  return sys::send_with_fds(session, {reinterpret_cast<const char*>(&control), sizeof control}, raw,
                            MSG_DONTWAIT);
}

// Session may be in the hands of the box: keeper never waits for it.
Error session_is_stuck() {
  return fail(Code::kExhausted, "the box's session takes no more requests",
              "try again, or end the box")
      .value();
}

Error too_many_callers() {
  return fail(Code::kExhausted,
              "the box has as many callers as it takes (" + std::to_string(Callers::kMax) + ")",
              "wait until one has ended")
      .value();
}

}  // namespace

Callers::Callers(UniqueFd starter, UniqueFd listener) : listener_(std::move(listener)) {
  // Who does not read what it asked for is dropped, and holds up nobody.
  (void)fcntl(starter.get(), F_SETFL, O_RDWR | O_NONBLOCK);
  sockets_.push_back(std::move(starter));
}

void Callers::add_polls(std::vector<pollfd>& polls) const {
  polls.push_back({sockets_.size() <= kMax + kSpare ? listener_.get() : -1, POLLIN, 0});
  for (const auto& socket : sockets_) polls.push_back({socket.get(), POLLIN, 0});
}

bool Callers::serve(std::span<const pollfd> polls, int session, const BoxLimits& limits,
                    EgressWatch& egress) {
  bool end = false;
  for (std::size_t i = 1; i < polls.size(); ++i) {
    if (polls[i].revents == 0) continue;
    UniqueFd& socket = sockets_[i - 1];
    const Answer answered = answer(socket.get(), session, limits, egress);
    if (answered == Answer::kNone) continue;
    end = end || answered == Answer::kEnd || (i == 1 && starter_rules_);
    // Who asked for the end, or has gone with the right to rule, is still to hear the last word.
    if (!end) socket.reset();
  }
  for (std::size_t i = sockets_.size(); i-- > 1;) {
    if (!sockets_[i]) sockets_.erase(sockets_.begin() + static_cast<std::ptrdiff_t>(i));
  }
  if (!polls.empty() && polls[0].revents != 0) accept_one();
  return end;
}

void Callers::accept_one() {
  UniqueFd socket(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (socket && same_user(socket.get())) sockets_.push_back(std::move(socket));
}

bool Callers::too_many() const {
  return static_cast<std::size_t>(
             std::count_if(sockets_.begin(), sockets_.end(),
                           [](const auto& s) { return static_cast<bool>(s); })) > kMax;
}

Callers::Answer Callers::answer(int socket, int session, const BoxLimits& limits,
                                EgressWatch& egress) {
  Message request;
  std::vector<UniqueFd> fds;
  if (!receive_request(socket, request, fds)) return Answer::kDrop;
  Message reply;
  reply.kind = Message::kOk;
  ControlMessage control;
  Result<void> asked;
  switch (request.kind) {
    case Message::kStop:
      return Answer::kEnd;
    case Message::kPing:
      break;
    case Message::kStats:
      reply.numbers = limits.numbers();
      put_text(reply, limits.notes());
      break;
    case Message::kRules: {
      const auto replaced = egress.replace_rules(std::move(fds[0]), request.value != 0);
      // Not a failure of the box, whose last word that would be.
      if (!replaced) {
        reply = failure(replaced.error());
        reply.kind = Message::kOk;
        reply.value = 1;
      }
      break;
    }
    case Message::kFlushNetworkLog:
      reply.value = egress.flush_log().value_or(0);
      put_text(reply, egress.trouble());
      break;
    case Message::kAttach:
      if (too_many()) {
        (void)send_message(socket, failure(too_many_callers()));
        return Answer::kDrop;
      }
      control.type = ControlType::kAddClient;
      asked = ask_session(session, control, fds);
      break;
    case Message::kAddJob:
      control = {ControlType::kAddJob, request.limit, request.value};
      asked = ask_session(session, control, fds);
      break;
    default:
      return Answer::kDrop;
  }
  // A session that has gone is about to be the end of the box: that is the answer then.
  if (session < 0 || (!asked && asked.error().sys_errno != EAGAIN)) return Answer::kNone;
  if (!asked) {
    (void)send_message(socket, failure(session_is_stuck()));
    return Answer::kDrop;
  }
  return send_message(socket, reply) ? Answer::kNone : Answer::kDrop;
}

bool Callers::tell_starter(const Message& message) {
  return sockets_[0] && send_message(sockets_[0].get(), message).has_value();
}

void Callers::say_goodbye(const Message& last) {
  for (auto& socket : sockets_) {
    if (!socket) continue;
    (void)send_message(socket.get(), last);
    // Closed with a message unread, the other end would get ECONNRESET instead of the last word.
    shutdown(socket.get(), SHUT_RDWR);
    char bytes[sizeof(Message)];
    while (recv(socket.get(), bytes, sizeof bytes, MSG_DONTWAIT) > 0) {
    }
    socket.reset();
  }
}

}  // namespace temenos::keeper
