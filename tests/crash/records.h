// What writers write that are killed in the middle: numbered records, each of which says itself
// what it must be. A log is whole when it is the beginning of the one possible stream, and keeps
// its word when that is long enough for all records whose write had returned.
#pragma once

#include <cstddef>
#include <cstdio>
#include <string>
#include <string_view>

namespace temenos::testing {

inline constexpr std::size_t kRecordSize = 200;

inline std::string record(std::size_t n) {
  char text[kRecordSize + 1];
  snprintf(text, sizeof text, "%08zu %0190zu\n", n, n);
  return text;
}

// The same by a shell in the box: appends to the file in $1, and prints each number after its write
// has returned.
inline constexpr char kShellWriter[] =
    "i=0; while :; do printf '%08d %0190d\\n' $i $i >>\"$1\" || exit 9; echo $i; "
    "i=$((i+1)); done";

// A file that is replaced whole, again and again.
inline std::string state(std::size_t n) {
  std::string text;
  for (int i = 0; i < 20; ++i) text += record(n);
  return text;
}

// Empty when `log` is what a writer can have left that printed `returned` lines; else what is
// wrong.
inline std::string trouble_in_log(std::string_view log, std::size_t returned) {
  if (log.size() < returned * kRecordSize) {
    return "of " + std::to_string(returned) + " records that were written only " +
           std::to_string(log.size() / kRecordSize) + " are there";
  }
  for (std::size_t n = 0; n * kRecordSize < log.size(); ++n) {
    const std::string_view part = log.substr(n * kRecordSize, kRecordSize);
    if (part != std::string_view(record(n)).substr(0, part.size())) {
      return "record " + std::to_string(n) + " is not what was written: " + std::string(part);
    }
  }
  return "";
}

// The same for a file that was replaced.
inline std::string trouble_in_state(std::string_view content, std::size_t returned) {
  if (returned == 0 && content.empty()) return "";
  const std::size_t n = static_cast<std::size_t>(atol(std::string(content.substr(0, 8)).c_str()));
  if (content != state(n)) return "it is not whole, " + std::to_string(content.size()) + " bytes";
  if (n + 1 < returned) return "it is older than what was written";
  return "";
}

}  // namespace temenos::testing
