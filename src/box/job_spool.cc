#include "box/job_spool.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "base/try.h"
#include "box/session_channel.h"
#include "sys/file_sys.h"
#include "wire/job_messages.h"

namespace temenos::box {
namespace {

using namespace box_wire;

constexpr std::size_t kWindowSize = 16 * 1024;
constexpr std::size_t kMaxEndPayload = 512;  // of EXITED, DONE, ERROR
constexpr std::size_t kMaxChunks = 16 * 1024;
// A job would have to write faster than memory, each time, to use them up.
constexpr int kMaxTries = 100;

tl::unexpected<Error> damaged(const char* what) {
  return fail(Code::kProtocol, std::string("the job's log is damaged: ") + what,
              "its session or its disk failed; run the command again");
}

// Bytes read, fewer only at the end of the file.
Result<std::size_t> read_at(int fd, std::span<std::uint8_t> room, std::uint64_t offset) {
  std::size_t done = 0;
  while (done < room.size()) {
    const ssize_t count =
        pread(fd, room.data() + done, room.size() - done, static_cast<off_t>(offset + done));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return fail_errno(errno, "reading the job's log", "check the disk");
    if (count == 0) break;
    done += static_cast<std::size_t>(count);
  }
  return done;
}

// One segment, as it was when it was opened. What is read of it counts only if same() afterwards:
// the writer changes nothing without a new offset in the header.
class Segment {
 public:
  static Result<Segment> open(int dir, const std::string& name) {
    Segment segment;
    segment.fd_ = TRY(sys::open_beneath(dir, name, O_RDONLY | O_NONBLOCK));
    const struct stat kind = TRY(sys::stat_fd(segment.fd_.get()));
    if (!S_ISREG(kind.st_mode)) return damaged("a segment that is no file");
    // The size after the offset: one from before it could be that of what was emptied meanwhile,
    // and then more than is there.
    segment.offset_ = TRY(segment.read_offset());
    segment.size_ = static_cast<std::uint64_t>(TRY(sys::stat_fd(segment.fd_.get())).st_size);
    return segment;
  }
  // Empty: nothing is in it, or not yet a whole header.
  const std::optional<std::uint64_t>& offset() const { return offset_; }
  Result<bool> same() const { return TRY(read_offset()) == offset_; }

  // The next whole frame, without its payload; nullopt at the end of what is there.
  Result<std::optional<FrameHeader>> next() {
    if (at_ + kHeaderSize > size_) return std::nullopt;
    if (at_ < window_at_ || at_ + kHeaderSize > window_at_ + window_size_) {
      window_at_ = at_;
      window_size_ = TRY(read_at(fd_.get(), window_, at_));
      if (window_size_ < kHeaderSize) return std::nullopt;  // emptied in this moment
    }
    const FrameHeader header = get_header(window_.data() + (at_ - window_at_));
    if (header.length > kMaxPayload || header.flags != 0 || header.id != kJobFrameId) {
      return damaged("a bad frame");
    }
    if (at_ + kHeaderSize + header.length > size_) return std::nullopt;
    payload_at_ = at_ + kHeaderSize;
    at_ = payload_at_ + header.length;
    return header;
  }
  // Of the payload of the last frame that next() gave; fewer bytes when it was emptied just now.
  Result<std::size_t> payload(std::size_t from, std::span<std::uint8_t> room) const {
    return read_at(fd_.get(), room, payload_at_ + from);
  }

 private:
  Result<std::optional<std::uint64_t>> read_offset() const {
    std::array<std::uint8_t, kJobSegmentSize> bytes;
    if (TRY(read_at(fd_.get(), bytes, 0)) < bytes.size()) return std::nullopt;
    const FrameHeader header = get_header(bytes.data());
    JobSegment segment;
    if (static_cast<Type>(header.type) != Type::kJobSegment || header.flags != 0 ||
        header.id != kJobFrameId || header.length != bytes.size() - kHeaderSize ||
        !decode(Bytes(bytes).subspan(kHeaderSize), segment)) {
      return damaged("a segment without its header");
    }
    return segment.offset;
  }

  UniqueFd fd_;
  std::uint64_t size_ = 0;
  std::optional<std::uint64_t> offset_;
  std::uint64_t at_ = kJobSegmentSize;
  std::uint64_t payload_at_ = 0;
  std::array<std::uint8_t, kWindowSize> window_;
  std::uint64_t window_at_ = 0;
  std::size_t window_size_ = 0;
};

// Takes the frames of the segments in their order.
class Reading {
 public:
  Reading(std::uint64_t cursor, std::size_t max_bytes) : room_(max_bytes) { read_.next = cursor; }

  Result<void> take(Segment& segment) {
    std::uint64_t at = *segment.offset();
    if (at < end_) return damaged("segments that overlap");
    pass_gap(at);
    for (;;) {
      const auto header = TRY(segment.next());
      if (!header) break;
      if (ended_) return damaged("frames after the end");
      TRY(take_frame(segment, *header, at));
      at += kHeaderSize + header->length;
    }
    end_ = at;
    return {};
  }

  SpoolRead finish() {
    read_.whole = !full_;
    if (read_.next == kSpoolEnd) read_.next = end_;
    return std::move(read_);
  }

 private:
  // What was dropped lies before the chunks, not between them.
  void pass_gap(std::uint64_t at) {
    if (full_ || read_.next >= at) return;
    if (!read_.chunks.empty()) {
      full_ = true;
      return;
    }
    read_.dropped += at - read_.next;
    read_.next = at;
  }

  Result<void> take_frame(Segment& segment, const FrameHeader& header, std::uint64_t at) {
    const auto type = static_cast<Type>(header.type);
    const std::uint64_t after = at + kHeaderSize + header.length;
    switch (type) {
      case Type::kStdout:
      case Type::kStderr:
        if (header.length == 0) return damaged("empty output");
        if (full_ || after <= read_.next) return {};
        return take_output(segment, header, at);
      case Type::kStarted:
      case Type::kOutputEof:
        break;
      case Type::kExited:
      case Type::kDone:
      case Type::kError:
        TRY(take_end(segment, header));
        break;
      default:
        return damaged("a message that is no job's");
    }
    if (!full_ && read_.next < after) read_.next = after;
    return {};
  }

  Result<void> take_output(const Segment& segment, const FrameHeader& header, std::uint64_t at) {
    const std::uint64_t payload_at = at + kHeaderSize;
#ifndef TEMENOS_PLANT_JOB_SPOOL
    const std::size_t skip =
        read_.next > payload_at ? static_cast<std::size_t>(read_.next - payload_at) : 0;
#else
    const std::size_t skip = 0;
#endif
    const std::size_t size = std::min<std::size_t>(header.length - skip, room_);
    const Stream stream =
        static_cast<Type>(header.type) == Type::kStdout ? Stream::kStdout : Stream::kStderr;
    const bool same_stream = !read_.chunks.empty() && read_.chunks.back().stream == stream;
    if (size == 0 || (!same_stream && read_.chunks.size() == kMaxChunks)) {
      full_ = true;
      return {};
    }
    if (!same_stream) read_.chunks.push_back({stream, {}});
    std::string& bytes = read_.chunks.back().bytes;
    const std::size_t before = bytes.size();
    bytes.resize(before + size);
    // A short one is found by same().
    TRY(segment.payload(skip, {reinterpret_cast<std::uint8_t*>(bytes.data()) + before, size}));
    room_ -= size;
    read_.next = payload_at + skip + size;
    full_ = skip + size < header.length;
    return {};
  }

  Result<void> take_end(const Segment& segment, const FrameHeader& header) {
    std::array<std::uint8_t, kMaxEndPayload> room;
    if (header.length > room.size()) return damaged("an end that is too long");
    const std::size_t size = TRY(segment.payload(0, std::span(room).first(header.length)));
    const Bytes payload = Bytes(room).first(size);
    const auto type = static_cast<Type>(header.type);
    ErrorReply reply;
    Done done;
    if (type == Type::kExited) {
      Exited exited;
      if (exited_ || !decode(payload, exited)) return damaged("an exit");
      exited_ = exited;
      return {};
    }
    ended_ = true;
    JobEnd& end = read_.end.emplace();
    if (type == Type::kError && decode(payload, reply)) {
      if (reply.stage == Stage::kBoxLost) return {};
      end.how = JobEnd::How::kFailed;
      end.error = error_of(reply, "the job").value();
      return {};
    }
    if (type != Type::kDone || !decode(payload, done)) return damaged("an end");
    if (!exited_) return {};  // it did not fit on the disk, so how it ended is not known
    end.how = JobEnd::How::kExited;
    set_exited(end.result, *exited_);
    set_done(end.result, std::move(done));
    return {};
  }

  SpoolRead read_;
  std::size_t room_;
  bool full_ = false;      // no more output is taken
  bool ended_ = false;     // the last frame was seen
  std::uint64_t end_ = 0;  // of the stream so far
  std::optional<Exited> exited_;
};

// nullopt: it was written while it was read, in a way that changes what is there.
Result<std::optional<SpoolRead>> try_read(int job_dir, std::uint64_t cursor,
                                          std::size_t max_bytes) {
  std::array<Segment, 2> segments{TRY(Segment::open(job_dir, "log.0")),
                                  TRY(Segment::open(job_dir, "log.1"))};
  std::vector<Segment*> order;
  for (Segment& segment : segments) {
    if (segment.offset()) order.push_back(&segment);
  }
  if (order.size() == 2 && *order[1]->offset() < *order[0]->offset()) {
    std::swap(order[0], order[1]);
  }
  Reading reading(cursor, max_bytes);
  Result<void> taken;
  for (Segment* segment : order) {
    if (taken) taken = reading.take(*segment);
  }
  // Also what looked damaged may only have been a moment.
  for (const Segment* segment : order) {
    if (!TRY(segment->same())) return std::nullopt;
  }
  TRY(std::move(taken));
  return reading.finish();
}

}  // namespace

Result<SpoolRead> read_spool(int job_dir, std::uint64_t cursor, std::size_t max_bytes) {
  for (int i = 0; i < kMaxTries; ++i) {
    auto read = TRY(try_read(job_dir, cursor, max_bytes));
    if (read) return std::move(*read);
  }
  return fail(Code::kTimedOut, "the job writes faster than its log can be read", "try again");
}

}  // namespace temenos::box
