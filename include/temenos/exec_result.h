// What became of one exec. Plain data; docs of the JSON form are in docs/cli.md, the form itself is
// made by box/exec_result_json.h.
//
// Thread-safety: plain values. Ownership: owns everything.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace temenos {

// Something that the policy refused while the exec ran.
struct Denial {
  std::string kind;    // "egress": a connection; "dns": a name that was only looked up
  std::string target;  // HOST:PORT; of "dns" a name. Escape before printing
  std::string rule;    // the rule that refused it, or "default"
  std::string hint;    // the command that would allow it
  std::string time;    // RFC 3339, UTC
};

// Where captured output lacks its middle.
struct Omitted {
  std::uint64_t at = 0;     // bytes of the data before the gap
  std::uint64_t bytes = 0;  // left out there; 0: nothing is missing
};

struct ExecResult {
  // Exactly one of these two is set; neither when `job` is.
  std::optional<int> exit_code;       // 0 to 255
  std::optional<std::string> signal;  // "SIGKILL"; what ended the leader

  bool timed_out = false;
  bool oom = false;          // the kernel killed for want of memory while it ran
  std::string oom_evidence;  // which of the kernel's counters says so, for people
  bool truncated =
      false;  // output is missing: its cap, the capture's middle, or pipes of a killed tree
  std::chrono::milliseconds duration{0};  // from the request to the end, as the caller saw it

  std::string stdout_data;  // what was captured; empty when it went to a descriptor
  std::string stderr_data;
  Omitted stdout_omitted;
  Omitted stderr_omitted;

  std::vector<Denial> denials;
  std::vector<std::uint32_t> left_running;  // pids in the box, the first 64
  std::uint32_t left_running_total = 0;
  std::optional<std::string> job;  // its number, when it goes on as a job

  std::chrono::microseconds user_time{0};  // of the leader and what it waited for
  std::chrono::microseconds system_time{0};
  std::uint64_t max_rss_kb = 0;
};

}  // namespace temenos
