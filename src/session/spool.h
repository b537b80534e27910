// Where the output of one job goes: two files, its segments, of which the older one is emptied and
// written anew when the newer one is full, so that the newest output is kept and never more than
// both hold. A segment begins with JOB_SEGMENT and holds whole frames (docs/box-protocol.md has the
// format, box/job_spool.h reads it). A disk that is full makes segments shorter and costs output,
// never the box: what cannot be written is left out, and the job's DONE says so.
//
// A reader may look at any moment. So what a segment holds is only ever changed by emptying it, and
// then its header has a higher offset than before.
//
// Trusts: its frames, which the engine made. Uses write and ftruncate only: the files are opened
// for appending by whoever made them. Thread-safety: none. Ownership: owns the descriptors.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "base/unique_fd.h"
#include "wire/byte_queue.h"

namespace temenos::session {

class Spool {
 public:
  Spool() = default;
  // `limit`: bytes of one segment, raised or lowered into kMinSegment to kMaxSegment.
  Spool(std::array<UniqueFd, 2> segments, std::uint32_t limit);
  explicit operator bool() const { return static_cast<bool>(segments_[0]); }

  // Writes whole frames, as well as the disk lets it. They may be changed.
  void write(std::span<std::uint8_t> frames);

 private:
  std::size_t append(std::span<const std::uint8_t> frames);
  bool empty_current();
  void rotate();

  std::array<UniqueFd, 2> segments_;
  std::size_t limit_ = 0;
  int current_ = 0;
  std::size_t size_ = 0;      // bytes of whole frames in the current segment, its header with them
  bool full_ = false;         // nothing more goes into it: a write has failed
  bool lost_ = false;         // some output was left out
  std::uint64_t stream_ = 0;  // bytes of frames so far, those left out with them
};

// Copies whole frames from the front of `queue` into `room`, which holds at least one; how many
// bytes.
std::size_t copy_frames(const ByteQueue& queue, std::span<std::uint8_t> room);

}  // namespace temenos::session
