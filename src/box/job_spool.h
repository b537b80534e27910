// Reading what a job has written: the two segments of its spool (src/session/spool.h writes them,
// docs/box-protocol.md has the format), while it is written or after. session wrote it, and a box
// may have taken session over: everything is bounded and decoded strictly, and what is damaged is
// an error, never a guess.
//
// A cursor is an offset in the stream of frames of the job since it began. Every number is a good
// cursor; 0 is the beginning, kSpoolEnd the end as it is now. Old output goes when both segments
// are full: `dropped` says how much.
//
// Thread-safety: plain functions. Ownership: results own their bytes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "temenos/error.h"
#include "temenos/exec_result.h"
#include "wire/box_types.h"

namespace temenos::box {

inline constexpr std::uint64_t kSpoolEnd = ~std::uint64_t{0};

struct JobEnd {
  enum class How {
    kExited,  // `result` says how
    kFailed,  // it never ran: `error` says why
    kLost,    // the box ended before it
  };
  How how = How::kLost;
  ExecResult result;  // without output and duration
  std::optional<Error> error;
};

struct SpoolChunk {
  box_wire::Stream stream = box_wire::Stream::kStdout;
  std::string bytes;
};

struct SpoolRead {
  std::vector<SpoolChunk> chunks;  // as they came; neighbours are of different streams
  std::uint64_t next = 0;          // the cursor for what comes after them
  std::uint64_t dropped = 0;       // bytes of the stream between the cursor and the first of them
  bool whole = false;              // there is nothing more now
  std::optional<JobEnd> end;       // also when `chunks` do not reach that far
};

// At most `max_bytes` of output after `cursor`, from `log.0` and `log.1` in the job's directory.
// Never waits; nothing new is no error. kProtocol: it is damaged.
Result<SpoolRead> read_spool(int job_dir, std::uint64_t cursor, std::size_t max_bytes);

}  // namespace temenos::box
