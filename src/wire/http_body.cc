#include "wire/http_body.h"

#include <algorithm>
#include <cstdlib>

namespace temenos::wire {
namespace {

// Up to 2 GB - 1 in one chunk: no server counts them in fewer than 32 bits.
constexpr std::uint8_t kMaxDigits = 8;
constexpr std::uint64_t kMaxChunk = INT32_MAX;

int hex_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

HttpBodyReader::HttpBodyReader(const HttpHead& head) {
  switch (head.body) {
    case HttpBody::kNone:
      state_ = State::kDone;
      break;
    case HttpBody::kLength:
      left_ = head.content_length;
      state_ = left_ > 0 ? State::kLength : State::kDone;
      break;
    case HttpBody::kChunked:
      state_ = State::kSize;
      break;
  }
}

std::uint64_t HttpBodyReader::opaque() const {
  return state_ == State::kData || state_ == State::kLength ? left_ : 0;
}

void HttpBodyReader::skip(std::uint64_t count) {
  if (count > opaque()) std::abort();
  left_ -= count;
  if (left_ > 0) return;
  if (state_ == State::kData) state_ = State::kDataEnd1;
  if (state_ == State::kLength) state_ = State::kDone;
}

HttpBodyReader::Step HttpBodyReader::feed(Bytes piece) {
  std::size_t at = 0;
  while (at < piece.size() && state_ != State::kDone && state_ != State::kBad) {
    if (const std::uint64_t data = std::min<std::uint64_t>(opaque(), piece.size() - at); data > 0) {
      skip(data);
      at += static_cast<std::size_t>(data);
    } else if (take(static_cast<char>(piece[at]))) {
      ++at;
    } else {
      state_ = State::kBad;
    }
  }
  if (state_ == State::kDone) return {Progress::kGood, at};
  return {state_ == State::kBad ? Progress::kMalformed : Progress::kNeedMore, at};
}

bool HttpBodyReader::expect(char c, char expected, State next) {
  state_ = next;
  return c == expected;
}

bool HttpBodyReader::take_size(char c) {
  const int digit = hex_value(c);
  if (digit < 0) {
    reason_ = c == ';' ? "an extension of a chunk" : "a size of a chunk that is no hex number";
    if (c != '\r' || digits_ == 0) return false;
    state_ = State::kSizeEnd;
    return true;
  }
  left_ = left_ << 4 | static_cast<std::uint64_t>(digit);
  reason_ = "a chunk of 2 GB or more";
  return ++digits_ <= kMaxDigits && left_ <= kMaxChunk;
}

bool HttpBodyReader::take(char c) {
  switch (state_) {
    case State::kSize:
      return take_size(c);
    case State::kSizeEnd:
      reason_ = "a line of a chunk that does not end in CR LF";
      return expect(c, '\n', left_ > 0 ? State::kData : State::kLastEnd1);
    case State::kDataEnd1:
      reason_ = "a chunk that is longer than its size";
#ifdef TEMENOS_PLANT_HTTP_BODY
      if (c == '\n') return expect(c, '\n', State::kDataEnd2), take('\n');
#endif
      return expect(c, '\r', State::kDataEnd2);
    case State::kDataEnd2:
      digits_ = 0;
      return expect(c, '\n', State::kSize);
    case State::kLastEnd1:
      reason_ = "a trailer";
      return expect(c, '\r', State::kLastEnd2);
    case State::kLastEnd2:
      return expect(c, '\n', State::kDone);
    case State::kData:
    case State::kLength:
    case State::kDone:
    case State::kBad:
      break;
  }
  std::abort();
}

}  // namespace temenos::wire
