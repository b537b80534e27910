// Takes numbers in network order and pieces from the front of bytes, and never beyond their end.
//
// Thread-safety: none. Ownership: borrows the bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace temenos::wire {

using Bytes = std::span<const std::uint8_t>;

// Each call says whether there was enough; if not, nothing is taken and nothing is written.
class ByteCursor {
 public:
  explicit ByteCursor(Bytes bytes) : rest_(bytes) {}

  bool empty() const { return rest_.empty(); }
  Bytes rest() const { return rest_; }

  bool piece(std::size_t size, Bytes& out) {
    if (rest_.size() < size) return false;
    out = rest_.first(size);
    rest_ = rest_.subspan(size);
    return true;
  }
  // A number of `width` bytes.
  template <typename Number>
  bool number(std::size_t width, Number& out) {
    Bytes bytes;
    if (!piece(width, bytes)) return false;
    std::uint32_t value = 0;
    for (const std::uint8_t byte : bytes) value = value << 8 | byte;
    out = static_cast<Number>(value);
    return true;
  }
  // A piece with its size, in `width` bytes, before it.
  bool sized(std::size_t width, Bytes& out) {
    const Bytes before = rest_;
    std::uint32_t size = 0;
    if (number(width, size) && piece(size, out)) return true;
    rest_ = before;
    return false;
  }

 private:
  Bytes rest_;
};

}  // namespace temenos::wire
