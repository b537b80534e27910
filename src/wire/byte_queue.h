// Bytes on their way out: a list of chunks that grows with what is appended and gives memory back
// as it is consumed. No I/O: peek() hands iovecs to whoever owns the descriptor.
//
// Thread-safety: none. Ownership: owns its bytes; pointers from prepare() and peek() live until the
// next call that is not const.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>

namespace temenos {

class ByteQueue {
 public:
  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }

  void append(std::span<const std::uint8_t> bytes);
  // Contiguous room to write into, at least `least` bytes and no more than `want`; then commit()
  // says how many were used. Lets a read(2) land where it will be sent from.
  std::span<std::uint8_t> prepare(std::size_t least, std::size_t want);
  void commit(std::size_t used);

  // Fills at most `out.size()` iovecs from the front, gives how many.
  std::size_t peek(std::span<iovec> out) const;
  void consume(std::size_t count);
  void clear();

 private:
  struct Chunk {
    std::unique_ptr<std::uint8_t[]> bytes;
    std::size_t capacity = 0;
    std::size_t begin = 0;
    std::size_t end = 0;
  };
  Chunk& tail_with_room(std::size_t least, std::size_t want);

  static constexpr std::size_t kChunk = 16 * 1024;
  std::deque<Chunk> chunks_;
  std::size_t size_ = 0;
};

}  // namespace temenos
