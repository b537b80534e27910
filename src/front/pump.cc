#include "front/pump.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace temenos::front {
namespace {

// What one step moves at most before others get their turn.
constexpr std::uint64_t kTurn = 1u << 20;
constexpr std::size_t kByHand = 16 * 1024;

}  // namespace

void Pump::push(std::string_view bytes) {
  if (head_sent_ == head_.size()) {
    head_.clear();
    head_sent_ = 0;
  }
  head_ += bytes;
}

void Pump::give_back() {
  if (pipe_) pipes_.give_back(std::exchange(pipe_, {}));
}

void Pump::drop() {
  if (pipe_) {
    if (in_pipe_ == 0) {
      give_back();
    } else {
      pipes_.drop(std::exchange(pipe_, {}));
    }
  }
  in_pipe_ = 0;
  head_ = std::string();
  head_sent_ = 0;
}

Pump::Moved Pump::drain(Side& to) {
  const ssize_t count = splice(pipe_.reader.get(), nullptr, to.fd.get(), nullptr, in_pipe_,
                               SPLICE_F_NONBLOCK | SPLICE_F_MOVE);
  if (count > 0) {
    in_pipe_ -= static_cast<std::size_t>(count);
    moved_ += static_cast<std::uint64_t>(count);
    return Moved::kSome;
  }
  if (count < 0 && errno == EINTR) return Moved::kSome;
  if (count < 0 && errno != EAGAIN) return Moved::kBroken;
  to.writable = false;
  return Moved::kBlocked;
}

Pump::Moved Pump::flush_head(Side& to) {
  const std::ptrdiff_t count = to.send(std::span(head_).subspan(head_sent_));
  if (count == Side::kBroken) return Moved::kBroken;
  if (count == Side::kNone) return Moved::kBlocked;
  head_sent_ += static_cast<std::size_t>(count);
  moved_ += static_cast<std::uint64_t>(count);
  if (head_sent_ == head_.size()) {
    head_ = std::string();  // the first bytes of a connection may have been many
    head_sent_ = 0;
  }
  return Moved::kSome;
}

// Without descriptors for a pipe a connection goes on, slower; as does one with urgent bytes, which
// are left out.
Pump::Moved Pump::fill_by_hand(Side& from) {
  head_.resize(std::min<std::uint64_t>(limit_, kByHand));
  const std::ptrdiff_t count = from.receive(head_);
  head_.resize(static_cast<std::size_t>(std::max<std::ptrdiff_t>(count, 0)));
  if (count <= 0) head_ = std::string();  // nobody counts the room of a string without bytes
  if (count == Side::kBroken) return Moved::kBroken;
  if (count == Side::kNone) return Moved::kBlocked;
  if (count == 0) ended_ = true;
  if (limit_ != kUnlimited) limit_ -= static_cast<std::uint64_t>(count);
  return Moved::kSome;
}

// Only into an empty pipe, so EAGAIN has one meaning: the socket has nothing.
Pump::Moved Pump::fill(Side& from) {
  if (from.urgent) return fill_by_hand(from);
  if (!pipe_) pipe_ = pipes_.take();
  if (!pipe_) return fill_by_hand(from);
  const auto most = static_cast<std::size_t>(std::min<std::uint64_t>(limit_, pipe_.size));
  const ssize_t count = splice(from.fd.get(), nullptr, pipe_.writer.get(), nullptr, most,
                               SPLICE_F_NONBLOCK | SPLICE_F_MOVE);
  if (count > 0) {
    in_pipe_ = static_cast<std::size_t>(count);
    if (limit_ != kUnlimited) limit_ -= static_cast<std::uint64_t>(count);
    return Moved::kSome;
  }
  if (count == 0) {
    ended_ = from.at_end();
    from.urgent = !ended_;
    return Moved::kSome;
  }
  if (errno == EINTR) return Moved::kSome;
  if (errno != EAGAIN) return Moved::kBroken;
  from.readable = false;
  return Moved::kBlocked;
}

Pump::Step Pump::step(Side& from, Side& to) {
  const std::uint64_t turn_end = moved_ + kTurn;
  for (;;) {
    Moved moved = Moved::kSome;
    if (held() > 0) {
      // What is in the pipe was read before anything was pushed behind it.
      if (!to.writable) return Step::kIdle;
      moved = in_pipe_ > 0 ? drain(to) : flush_head(to);
    } else if (ended_) {
      give_back();
      if (!end_passed_on_) to.end_writing();
      end_passed_on_ = true;
      return Step::kEnded;
    } else if (limit_ == 0) {
      give_back();
      return Step::kLimit;
    } else if (!from.readable || moved_ >= turn_end) {
      give_back();
      return from.readable ? Step::kMore : Step::kIdle;
    } else {
      moved = fill(from);
    }
    if (moved == Moved::kBroken) return Step::kBroken;
    if (moved == Moved::kBlocked && held() > 0) return Step::kIdle;
  }
}

}  // namespace temenos::front
