#include "wire/box_frame.h"

#include <algorithm>
#include <cstring>

namespace temenos::box_wire {
namespace {

// The wire is little-endian and so is every host that this runs on.
static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__);

}  // namespace

FrameHeader get_header(const std::uint8_t* in) {
  FrameHeader header;
  std::memcpy(&header.length, in, 4);
  std::memcpy(&header.type, in + 4, 2);
  std::memcpy(&header.flags, in + 6, 2);
  std::memcpy(&header.id, in + 8, 4);
  return header;
}

void put_header(const FrameHeader& header, std::uint8_t* out) {
  std::memcpy(out, &header.length, 4);
  std::memcpy(out + 4, &header.type, 2);
  std::memcpy(out + 6, &header.flags, 2);
  std::memcpy(out + 8, &header.id, 4);
}

FrameReader::FrameReader(std::size_t capacity) : capacity_(std::max(capacity, kMaxFrame)) {}

std::span<std::uint8_t> FrameReader::space() {
  if (!buffer_) buffer_ = std::make_unique_for_overwrite<std::uint8_t[]>(capacity_);
  if (begin_ != 0) {
    std::memmove(buffer_.get(), buffer_.get() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  return {buffer_.get() + end_, capacity_ - end_};
}

void FrameReader::commit(std::size_t count) { end_ += count; }

FrameReader::Status FrameReader::peek(Frame& frame) const {
  if (end_ - begin_ < kHeaderSize) return Status::kNeedMore;
  frame.header = get_header(buffer_.get() + begin_);
  if (frame.header.length > kMaxPayload || (frame.header.flags & ~kFlagMore) != 0) {
    return Status::kBad;
  }
  if (end_ - begin_ - kHeaderSize < frame.header.length) return Status::kNeedMore;
  frame.payload = {buffer_.get() + begin_ + kHeaderSize, frame.header.length};
  return Status::kFrame;
}

void FrameReader::pop() {
  Frame frame;
  if (peek(frame) == Status::kFrame) begin_ += kHeaderSize + frame.payload.size();
}

void FrameReader::release_if_empty() {
  if (begin_ != end_) return;
  buffer_.reset();
  begin_ = end_ = 0;
}

void append_message(ByteQueue& out, std::uint16_t type, std::uint32_t id,
                    std::span<const std::uint8_t> head, std::span<const std::uint8_t> rest) {
  do {
    const std::size_t from_head = std::min(head.size(), kMaxPayload);
    const std::size_t from_rest = std::min(rest.size(), kMaxPayload - from_head);
    const bool more = head.size() + rest.size() > from_head + from_rest;
    std::uint8_t header[kHeaderSize];
    put_header({static_cast<std::uint32_t>(from_head + from_rest), type,
                more ? kFlagMore : std::uint16_t{0}, id},
               header);
    out.append(header);
    out.append(head.first(from_head));
    out.append(rest.first(from_rest));
    head = head.subspan(from_head);
    rest = rest.subspan(from_rest);
  } while (!head.empty() || !rest.empty());
}

}  // namespace temenos::box_wire
