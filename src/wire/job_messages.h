// The messages of jobs: execs whose output goes to files, a spool, instead of to a client. Client
// and session speak them; init knows none. docs/box-protocol.md has the rules. As in
// wire/box_protocol.h: encoders write a frame, decoders refuse what is out of range or too long.
//
// Thread-safety: plain functions and values.
#pragma once

#include <cstdint>

#include "wire/box_protocol.h"

namespace temenos::box_wire {

inline constexpr std::uint32_t kMaxJob = std::uint32_t{1} << 31;  // job numbers: 1 to this
inline constexpr std::uint32_t kJobFrameId = 1;                   // of every frame in a spool

struct Detach {  // the exec with this id goes on as job `job`
  std::uint32_t job = 0;
};
struct JobWait {
  std::uint32_t job = 0;
  std::uint32_t timeout_ms = 0;  // 0: only ask
};
struct JobSignal {
  std::uint32_t job = 0;
  std::uint8_t signal = 0;  // 1 to 64; 0: end the tree as KILL does
  bool tree = false;        // else the leader alone; of no meaning with signal 0
};
// The first frame of each segment of a spool.
struct JobSegment {
  std::uint64_t offset = 0;  // of the frame after it, in the stream of all frames but these
};
inline constexpr std::size_t kJobSegmentSize = kHeaderSize + 8;

void put(ByteQueue& out, std::uint32_t id, const Detach& message);
void put(ByteQueue& out, std::uint32_t id, const JobWait& message);
void put(ByteQueue& out, std::uint32_t id, const JobSignal& message);
void put(ByteQueue& out, std::uint32_t id, const JobSegment& message);
bool decode(Bytes payload, Detach& message);
bool decode(Bytes payload, JobWait& message);
bool decode(Bytes payload, JobSignal& message);
bool decode(Bytes payload, JobSegment& message);

}  // namespace temenos::box_wire
