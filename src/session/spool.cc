#include "session/spool.h"

#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "session/control.h"
#include "wire/job_messages.h"

namespace temenos::session {

using namespace box_wire;

namespace {

static_assert(kMinSegment >= kMaxFrame + kJobSegmentSize);

// The first frame; empty when there is no whole one.
template <typename Byte>
std::span<Byte> first_frame(std::span<Byte> bytes) {
  if (bytes.size() < kHeaderSize) return {};
  const std::size_t size = kHeaderSize + get_header(bytes.data()).length;
  return size <= bytes.size() ? bytes.first(size) : std::span<Byte>{};
}

// Bytes of whole frames at the front of `bytes`.
std::size_t whole_frames(std::span<const std::uint8_t> bytes) {
  std::size_t size = 0;
  for (;;) {
    const auto frame = first_frame(bytes.subspan(size));
    if (frame.empty()) return size;
    size += frame.size();
  }
}

// Moves the frames that are no output to the front; their bytes.
std::size_t keep_the_end(std::span<std::uint8_t> frames) {
  std::size_t kept = 0;
  for (std::size_t at = 0; at < frames.size();) {
    const auto frame = first_frame(frames.subspan(at));
    const auto type = static_cast<Type>(get_header(frame.data()).type);
    at += frame.size();
    if (type == Type::kStdout || type == Type::kStderr) continue;
    std::memmove(frames.data() + kept, frame.data(), frame.size());
    kept += frame.size();
  }
  return kept;
}

void say_lost(std::span<std::uint8_t> frames) {
  while (!frames.empty()) {
    const auto frame = first_frame(frames);
    if (static_cast<Type>(get_header(frame.data()).type) == Type::kDone) {
      frame[kHeaderSize] |= kDoneOutputLost;  // the flags are the first field, little-endian
    }
    frames = frames.subspan(frame.size());
  }
}

// As much as the file takes.
std::size_t write_all(int fd, std::span<const std::uint8_t> bytes) {
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t count = ::write(fd, bytes.data() + done, bytes.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    done += static_cast<std::size_t>(count);
  }
  return done;
}

}  // namespace

Spool::Spool(std::array<UniqueFd, 2> segments, std::uint32_t limit)
    : segments_(std::move(segments)), limit_(std::clamp(limit, kMinSegment, kMaxSegment)) {}

// As many of them as fit into the current segment; their bytes.
std::size_t Spool::append(std::span<const std::uint8_t> frames) {
  if (full_) return 0;
  const std::size_t used = size_ == 0 ? kJobSegmentSize : size_;
  frames = frames.first(whole_frames(frames.first(std::min(frames.size(), limit_ - used))));
  if (frames.empty()) return 0;
  const int fd = segments_[current_].get();
  if (size_ == 0) {
    std::uint8_t header[kJobSegmentSize];
    put_header({8, static_cast<std::uint16_t>(Type::kJobSegment), 0, kJobFrameId}, header);
    std::memcpy(header + kHeaderSize, &stream_, sizeof stream_);
    full_ = write_all(fd, header) != sizeof header;
    if (full_) return 0;
    size_ = kJobSegmentSize;
  }
  const std::size_t written = write_all(fd, frames);
  full_ = written != frames.size();
  const std::size_t whole = whole_frames(frames.first(written));
  size_ += whole;
  stream_ += whole;
  return whole;
}

bool Spool::empty_current() {
  int failed = 0;
  do {
    failed = ftruncate(segments_[current_].get(), 0);
  } while (failed != 0 && errno == EINTR);
  size_ = 0;
  return failed == 0;
}

void Spool::rotate() {
  // Or the frame that is only begun here would be whole there, at the same offset.
  if (size_ <= kJobSegmentSize) (void)empty_current();
  current_ ^= 1;
  full_ = !empty_current();
}

void Spool::write(std::span<std::uint8_t> frames) {
  if (lost_) say_lost(frames);
  for (int emptied = 0; !frames.empty();) {
    const std::size_t done = append(frames);
    frames = frames.subspan(done);
    if (done != 0) {
      emptied = 0;
    } else if (emptied < 2) {
      rotate();
      ++emptied;
    } else {
      // Not even two empty segments take it. The end of a job is small and worth another try.
      const std::size_t kept = keep_the_end(frames);
      const bool all_tried = kept == frames.size();
      stream_ += all_tried ? kept : frames.size() - kept;
      lost_ = true;
      if (all_tried) return;
      frames = frames.first(kept);
      say_lost(frames);
      emptied = 0;
    }
  }
}

std::size_t copy_frames(const ByteQueue& queue, std::span<std::uint8_t> room) {
  iovec parts[64];
  const std::size_t count = queue.peek(parts);
  std::size_t size = 0;
  for (std::size_t i = 0; i < count && size < room.size(); ++i) {
    const std::size_t part = std::min(parts[i].iov_len, room.size() - size);
    std::memcpy(room.data() + size, parts[i].iov_base, part);
    size += part;
  }
  return whole_frames(room.first(size));
}

}  // namespace temenos::session
