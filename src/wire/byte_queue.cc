#include "wire/byte_queue.h"

#include <algorithm>
#include <cstring>

namespace temenos {

ByteQueue::Chunk& ByteQueue::tail_with_room(std::size_t least, std::size_t want) {
  if (!chunks_.empty() && chunks_.back().capacity - chunks_.back().end >= least) {
    return chunks_.back();
  }
  Chunk chunk;
  chunk.capacity = std::max(kChunk, want);
  chunk.bytes = std::make_unique_for_overwrite<std::uint8_t[]>(chunk.capacity);
  chunks_.push_back(std::move(chunk));
  return chunks_.back();
}

void ByteQueue::append(std::span<const std::uint8_t> bytes) {
  while (!bytes.empty()) {
    Chunk& tail = tail_with_room(1, kChunk);
    const std::size_t count = std::min(bytes.size(), tail.capacity - tail.end);
    std::memcpy(tail.bytes.get() + tail.end, bytes.data(), count);
    tail.end += count;
    size_ += count;
    bytes = bytes.subspan(count);
  }
}

std::span<std::uint8_t> ByteQueue::prepare(std::size_t least, std::size_t want) {
  Chunk& tail = tail_with_room(least, want);
  return {tail.bytes.get() + tail.end, std::min(want, tail.capacity - tail.end)};
}

void ByteQueue::commit(std::size_t used) {
  chunks_.back().end += used;
  size_ += used;
}

std::size_t ByteQueue::peek(std::span<iovec> out) const {
  std::size_t count = 0;
  for (const Chunk& chunk : chunks_) {
    if (count == out.size()) break;
    if (chunk.begin == chunk.end) continue;
    out[count].iov_base = chunk.bytes.get() + chunk.begin;
    out[count].iov_len = chunk.end - chunk.begin;
    ++count;
  }
  return count;
}

void ByteQueue::consume(std::size_t count) {
  size_ -= count;
  while (!chunks_.empty()) {
    Chunk& head = chunks_.front();
    const std::size_t part = std::min(count, head.end - head.begin);
    head.begin += part;
    count -= part;
    if (head.begin != head.end) return;
    if (size_ == 0 && chunks_.size() == 1 && head.capacity == kChunk) {
      head.begin = head.end = 0;  // the common case: one small chunk, used again and again
      return;
    }
    chunks_.pop_front();
  }
}

void ByteQueue::clear() {
  chunks_.clear();
  size_ = 0;
}

}  // namespace temenos
