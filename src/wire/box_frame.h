// The frames of the box protocol (docs/box-protocol.md): a fixed header, a bounded payload, an
// incremental parser over a fixed buffer. Both hops, init - session and session - client, use the
// same. Trusts nothing: an announced length is checked before it means anything, and never
// allocated by. Does not know message types; wire/box_protocol.h does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "wire/byte_queue.h"

namespace temenos::box_wire {

inline constexpr std::size_t kHeaderSize = 12;
inline constexpr std::size_t kMaxPayload = 65536;
inline constexpr std::size_t kMaxFrame = kHeaderSize + kMaxPayload;
// The message goes on in the next frame (same type and id, nothing between). Other flag bits must
// be 0.
inline constexpr std::uint16_t kFlagMore = 1;

// Little-endian on the wire: u32 payload length, u16 type, u16 flags, u32 id.
struct FrameHeader {
  std::uint32_t length = 0;
  std::uint16_t type = 0;
  std::uint16_t flags = 0;
  std::uint32_t id = 0;
};
void put_header(const FrameHeader& header, std::uint8_t* out);  // writes kHeaderSize bytes
FrameHeader get_header(const std::uint8_t* in);  // reads as many; nothing of it is checked

struct Frame {
  FrameHeader header;
  std::span<const std::uint8_t> payload;  // lives until the reader's next space()
};

// Read into space(), tell commit() how much came, then peek() and pop() frame by frame.
// Thread-safety: none. Ownership: owns its buffer, which never grows.
class FrameReader {
 public:
  enum class Status { kFrame, kNeedMore, kBad };

  // `capacity` below kMaxFrame is raised to it.
  explicit FrameReader(std::size_t capacity);
  // Never empty as long as peek() said kNeedMore.
  std::span<std::uint8_t> space();
  void commit(std::size_t count);
  // kBad: a length above kMaxPayload or an unknown flag; it stays bad.
  Status peek(Frame& frame) const;
  void pop();
  std::size_t buffered() const { return end_ - begin_; }
  // Gives the buffer back when nothing is in it; space() takes a new one.
  void release_if_empty();

 private:
  std::size_t capacity_;
  std::unique_ptr<std::uint8_t[]> buffer_;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
};

// Appends one message to `out`, in as many frames as it needs.
void append_message(ByteQueue& out, std::uint16_t type, std::uint32_t id,
                    std::span<const std::uint8_t> head, std::span<const std::uint8_t> rest = {});

}  // namespace temenos::box_wire
