// Follows the body of an HTTP/1 request through pieces of any size, to say where the next request
// begins. Nothing is kept of the body and nothing is changed in it.
//
// Chunks are taken in their plainest form alone: no extensions, no trailers, no blanks. Hardly any
// client sends these, and servers differ in how they read them.
//
// Thread-safety: none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "wire/byte_cursor.h"
#include "wire/http_head.h"
#include "wire/progress.h"

namespace temenos::wire {

class HttpBodyReader {
 public:
  explicit HttpBodyReader(const HttpHead& head);

  struct Step {
    Progress progress = Progress::kNeedMore;  // kGood: the body is over
    // Bytes at the front of the piece that belong to the body; what is behind them is the next
    // request, or, with kMalformed, begins with the byte that cannot be there.
    std::size_t taken = 0;
  };
  // The bytes behind those that were taken before. After kGood nothing more is taken.
  Step feed(Bytes piece);
  std::string_view reason() const { return reason_; }  // kMalformed; static text
  bool is_done() const { return state_ == State::kDone; }

  // So many of the next bytes are data whatever they are: they need not be looked at and may be
  // moved on by the kernel. skip() says how many were, at most this many.
  std::uint64_t opaque() const;
  void skip(std::uint64_t count);

 private:
  enum class State : std::uint8_t {
    kSize,      // hex digits
    kSizeEnd,   // the line feed behind them
    kData,      // of a chunk
    kDataEnd1,  // its carriage return and line feed
    kDataEnd2,
    kLastEnd1,  // those behind the chunk of size 0
    kLastEnd2,
    kLength,  // the whole body is data
    kDone,
    kBad,
  };
  bool take(char c);
  bool take_size(char c);
  bool expect(char c, char expected, State next);

  State state_;
  std::uint8_t digits_ = 0;
  std::uint64_t left_ = 0;  // kData, kLength: bytes; kSize: what was read of the number
  std::string_view reason_;
};

}  // namespace temenos::wire
