#include "front/connection.h"

#include <algorithm>
#include <utility>

namespace temenos::front {
namespace {

// Of a server whose answer may be the end of HTTP: its first line fits.
constexpr std::size_t kServerPeek = 1'024;
// Of a refused client that still sends: then a reset must do.
constexpr std::size_t kMaxDrained = 1u << 20;

}  // namespace

Connection::Connection(Shared& shared, std::uint64_t id, UniqueFd client, Gate gate, Millis now)
    : shared_(shared),
      id_(id),
      gate_(std::move(gate)),
      relay_(shared.pipes),
      begun_(now),
      active_(now),
      waits_since_(now) {
  relay_.client.fd = std::move(client);
}

Connection::~Connection() { shared_.memory -= memory_; }

void Connection::count_memory() {
  const std::size_t now = gate_.memory() + relay_.up.memory() + relay_.down.memory();
  shared_.memory += now - memory_;
  memory_ = now;
}

void Connection::note_progress(Millis now) {
  const std::uint64_t up = relay_.up.moved();
  const std::uint64_t down = relay_.down.moved();
  if (down != seen_down_) answered_ = now;
  if (up != seen_up_ || down != seen_down_) active_ = now;
  seen_up_ = up;
  seen_down_ = down;
  if (down + relay_.down.held() > said_) gate_.note_answered();
}

Connection::Step Connection::step(Millis now) {
  for (int turn = 0; turn < 64; ++turn) {
    if (phase_ == Phase::kOver) return Step::kOver;
    if (phase_ == Phase::kAbandoned) return Step::kIdle;
    if (phase_ == Phase::kFarewell) return farewell();
    if (std::exchange(new_server_, false)) return Step::kWatch;
    if (phase_ == Phase::kGate) {
      if (relay_.client.failed) return lost();
      relay_.down.allow(gate_.down_open() ? Pump::kUnlimited : 0);
    }
    const Pump::Step down = relay_.down.step(relay_.server, relay_.client);
    const Pump::Step up =
        relay_.server.fd ? relay_.up.step(relay_.client, relay_.server) : Pump::Step::kLimit;
    note_progress(now);
    if (down == Pump::Step::kBroken || up == Pump::Step::kBroken || relay_.lost()) return lost();
    if (down == Pump::Step::kEnded && up == Pump::Step::kEnded) return over();
    if (phase_ == Phase::kOpen || up != Pump::Step::kLimit) {
      count_memory();
      // The client's next word waits here, not for it.
      note_wait(Gate::Wait::kClient, now);
      const bool more = down == Pump::Step::kMore || up == Pump::Step::kMore;
      return more ? Step::kMore : Step::kIdle;
    }
    if (down == Pump::Step::kEnded && gate_.wait() == Gate::Wait::kNothing) {
      // The one answer of an absolute-form is there.
      relay_.server.close(std::chrono::milliseconds(shared_.times.unsent));
      phase_ = Phase::kFarewell;
      continue;
    }
    const Gate::Do what = gate_.next();
    if (what == Gate::Do::kWait) {
      if (feed(now)) continue;
      if (phase_ == Phase::kOver || phase_ == Phase::kAbandoned) continue;
      count_memory();
      note_wait(gate_.wait(), now);
      return down == Pump::Step::kMore ? Step::kMore : Step::kIdle;
    }
    const Step acted = act(what, now);
    count_memory();
    if (acted == Step::kOver) return acted;
  }
  return Step::kMore;
}

Connection::Step Connection::act(Gate::Do what, Millis now) {
  switch (what) {
    case Gate::Do::kAsk:
      return ask(now);
    case Gate::Do::kSay: {
      const std::string text = gate_.take_text();
      said_ += text.size();
      relay_.down.push(text);
      break;
    }
    case Gate::Do::kPass:
      relay_.up.push(gate_.take_text());
      break;
    case Gate::Do::kStream:
      relay_.up.allow(gate_.stream_size());
      break;
    case Gate::Do::kOpen:
      relay_.up.push(gate_.take_text());
      relay_.open();
      phase_ = Phase::kOpen;
      break;
    case Gate::Do::kDrop:
      relay_.up.drop();
      relay_.server.reset();
      relay_.down.allow(0);
      relay_.down.push(gate_.take_text());
      phase_ = Phase::kFarewell;
      active_ = now;
      report();  // a command that is refused may end now, and wants to know why
      break;
    case Gate::Do::kReset:
      return lost();
    case Gate::Do::kWait:
      break;
  }
  return Step::kIdle;
}

Connection::Step Connection::ask(Millis now) {
  egress::Request request = gate_.request();
  request.id = id_;
  awaiting_ = shared_.dialer.ask(request);
  if (!awaiting_) gate_.dialer_lost();
  active_ = now;
  return Step::kIdle;
}

// True: the gate has something new to look at.
bool Connection::feed(Millis now) {
  if (gate_.passes_end() && relay_.client.hung_up && !std::exchange(end_passed_on_, true)) {
    relay_.server.end_writing();
  }
  if (gate_.wants_server()) return relay_.server.readable && feed_server();
  std::size_t room = std::min(gate_.client_room(), shared_.room.size());
  if (room == 0 || !relay_.client.readable) return false;
  if (shared_.memory > shared_.max_memory) {
    gate_.too_much();
    (void)lost();
    return false;
  }
  const std::ptrdiff_t count = relay_.client.receive(shared_.room.first(room));
  if (count == Side::kNone) return false;
  if (count == Side::kBroken) {
    (void)lost();
    return false;
  }
  active_ = now;
  if (count == 0) {
    gate_.client_ended();
  } else {
    gate_.client_bytes({shared_.room.data(), static_cast<std::size_t>(count)});
  }
  return true;
}

bool Connection::feed_server() {
  const std::ptrdiff_t count = relay_.server.receive(shared_.room.first(kServerPeek));
  if (count == Side::kNone) return false;
  if (count == 0 && gate_.server_ended()) return true;
  if (count <= 0) {
    // No answer at all.
    (void)lost();
    return false;
  }
  const std::string_view bytes(shared_.room.data(), static_cast<std::size_t>(count));
  gate_.server_bytes(bytes);
  relay_.down.push(bytes);
  return true;
}

void Connection::note_wait(Gate::Wait wait, Millis now) {
  if (wait == wait_ && heads_ == gate_.heads()) return;
  wait_ = wait;
  heads_ = gate_.heads();
  waits_since_ = now;
}

Connection::Step Connection::farewell() {
  const Pump::Step said = relay_.down.step(relay_.server, relay_.client);
  if (said == Pump::Step::kBroken) return over();
  if (said == Pump::Step::kIdle) return Step::kIdle;
  if (!std::exchange(farewell_said_, true)) relay_.client.end_writing();
  // Closing with bytes unread would be a reset, and take away what the client has yet to read.
  while (relay_.client.readable) {
    const std::ptrdiff_t count = relay_.client.receive(shared_.room);
    if (count == Side::kNone) break;
    if (count <= 0) return over();
    drained_ += static_cast<std::size_t>(count);
    if (drained_ > kMaxDrained) return lost();
  }
  return Step::kIdle;
}

// By a reset to whoever is still there.
Connection::Step Connection::lost() {
  relay_.reset();
  return over();
}

Connection::Step Connection::over() {
  if (phase_ == Phase::kOver) return Step::kOver;
  relay_.up.drop();
  relay_.down.drop();
  relay_.client.close(std::chrono::milliseconds(shared_.times.unsent));
  relay_.server.close(std::chrono::milliseconds(shared_.times.unsent));
  count_memory();
  if (awaiting_) {
    // Its place is taken until dialer has answered: whoever comes and goes quickly has no more
    // questions open there than others.
    phase_ = Phase::kAbandoned;
    return Step::kIdle;
  }
  phase_ = Phase::kOver;
  report();
  return Step::kOver;
}

void Connection::report() {
  if (!gate_.to_report() || std::exchange(reported_, true)) return;
  egress::Request out = gate_.report();
  out.id = id_;
  out.up = relay_.up.moved();
  out.down = relay_.down.moved() - std::min(relay_.down.moved(), said_);
  out.duration_ms = static_cast<std::uint64_t>(std::max<Millis>(0, active_ - begun_));
  shared_.dialer.report(out);
}

void Connection::on_reply(const egress::Reply& reply, UniqueFd socket, Millis now) {
  awaiting_ = false;
  active_ = now;
  if (phase_ != Phase::kGate) {
    // Nobody is there any more. The server hears it as it would without us between.
    gate_.replied(reply, static_cast<bool>(socket));
    Side{.fd = std::move(socket)}.reset();
    if (phase_ == Phase::kAbandoned) (void)over();
    return;
  }
  bool connected = static_cast<bool>(socket);
  if (connected && make_non_blocking(socket.get())) {
    send_at_once(socket.get());
    keep_alive(socket.get());
    relay_.server.fd = std::move(socket);
    new_server_ = true;
  } else {
    connected = false;
  }
  gate_.replied(reply, connected);
}

void Connection::on_dialer_lost() {
  awaiting_ = false;
  if (phase_ == Phase::kAbandoned) {
    (void)over();
  } else if (phase_ == Phase::kGate) {
    gate_.dialer_lost();
  }
}

void Connection::on_denied() {
  if (phase_ != Phase::kAbandoned) (void)lost();
}

Millis Connection::deadline() const {
  const Times& times = shared_.times;
  switch (phase_) {
    case Phase::kOver:
      return kNever;
    case Phase::kAbandoned:
      return active_ + 2 * times.dialer;
    case Phase::kFarewell:
      return active_ + times.farewell;
    case Phase::kOpen:
      return active_ + times.idle;
    case Phase::kGate:
      break;
  }
  switch (wait_) {
    case Gate::Wait::kDialer:
      return waits_since_ + times.dialer;
    case Gate::Wait::kHead:
      return waits_since_ + times.head;
    case Gate::Wait::kPeek:
      return waits_since_ + times.peek;
    case Gate::Wait::kHello:
      return waits_since_ + times.hello;
    case Gate::Wait::kQuiet:
      return std::min(waits_since_ + times.head, std::max(waits_since_, answered_) + times.quiet);
    case Gate::Wait::kClient:
    case Gate::Wait::kServer:
    case Gate::Wait::kNothing:
      break;
  }
  return active_ + times.idle;
}

void Connection::on_time(Millis now) {
  if (now < deadline()) return;
  const bool idle =
      wait_ == Gate::Wait::kClient || wait_ == Gate::Wait::kServer || wait_ == Gate::Wait::kNothing;
  if (phase_ == Phase::kGate && !idle) return gate_.timed_out();
  // Whoever was silent for so long gets no answer of dialer either.
  awaiting_ = false;
  (void)lost();
}

}  // namespace temenos::front
