// Commands of a box that go on without their caller: what is known of them, and what they wrote.
//
// Thread-safety: plain values. Ownership: owns everything.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "temenos/error.h"
#include "temenos/exec_result.h"

namespace temenos {

enum class JobState {
  kRunning,
  kExited,  // `result` says how
  kFailed,  // it never ran: `error` says why
  kLost,    // the box ended before it
};

struct JobInfo {
  std::uint32_t number = 0;
  // For people: what is long is cut off with "…", what is not UTF-8 escaped. Escape before
  // printing.
  std::vector<std::string> argv;
  std::string cwd;
  std::string started;  // RFC 3339, UTC
  std::string ended;    // when its log was last written, once it is over; else empty
  std::chrono::milliseconds timeout{0};
  JobState state = JobState::kLost;
  ExecResult result;           // of kExited: without output and duration
  std::optional<Error> error;  // of kFailed, why; else what is damaged in its record
};

// Of Box::job_log(): the end as it is now.
inline constexpr std::uint64_t kLogEnd = ~std::uint64_t{0};

struct JobLog {
  struct Chunk {
    bool is_stderr = false;
    std::string bytes;
  };
  std::vector<Chunk> chunks;  // as they came
  std::uint64_t next = 0;     // the cursor for what comes after them
  std::uint64_t dropped = 0;  // bytes of the log between the cursor and the first of them
  bool whole = false;         // there is nothing more now
  bool over = false;          // the job is over; with `whole`: nothing will come
};

}  // namespace temenos
