// One direction of a forwarded connection: moves bytes from one socket to another by splice(2),
// through a pipe that it has only while bytes are on their way. Nothing is read that the other side
// does not take (back-pressure), and nothing of it is looked at.
//
// Thread-safety: none. Ownership: owns what it holds, not the sockets.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include "front/pipes.h"
#include "front/side.h"

namespace temenos::front {

class Pump {
 public:
  enum class Step {
    kIdle,    // until an event at one of the sockets
    kMore,    // there is more to do; others may want their turn first
    kLimit,   // all that was allowed is at the other side
    kEnded,   // the end of the source was passed on
    kBroken,  // one of the sockets is
  };
  static constexpr std::uint64_t kUnlimited = std::numeric_limits<std::uint64_t>::max();

  explicit Pump(Pipes& pipes) : pipes_(pipes) {}
  ~Pump() { drop(); }
  Pump(const Pump&) = delete;
  Pump& operator=(const Pump&) = delete;

  // Bytes that go before all that is still to be read.
  void push(std::string_view bytes);
  // How many more bytes may be read from the source: none at first.
  void allow(std::uint64_t count) { limit_ = count; }
  Step step(Side& from, Side& to);

  std::uint64_t moved() const { return moved_; }  // bytes that the other side's socket has taken
  std::size_t held() const { return in_pipe_ + head_.size() - head_sent_; }
  std::size_t memory() const { return head_.empty() ? 0 : head_.capacity(); }
  bool ended() const { return ended_ && held() == 0; }
  // Gives up what it holds.
  void drop();

 private:
  enum class Moved { kSome, kBlocked, kBroken };
  Moved drain(Side& to);
  Moved flush_head(Side& to);
  Moved fill(Side& from);
  Moved fill_by_hand(Side& from);
  void give_back();

  Pipes& pipes_;
  Pipe pipe_;
  std::size_t in_pipe_ = 0;
  std::string head_;
  std::size_t head_sent_ = 0;
  std::uint64_t limit_ = 0;
  std::uint64_t moved_ = 0;
  bool ended_ = false;
  bool end_passed_on_ = false;
};

}  // namespace temenos::front
