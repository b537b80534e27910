// The log of what a box asked its network for: JSON lines in two files, the segments, of which the
// older one is emptied and written anew when the newer one is full, so that the newest lines are
// kept and never more than both hold. Equal lines are counted together, a flood is dropped and
// counted, and what was in an emptied segment lives on in a line of totals per host.
//
// Lines: "time" (UTC with milliseconds) and "event" with
//   segment    the first one of a segment
//   resolve    a name was asked for: host, verdict
//   connect    a connection was refused, failed, or made: host, address, port, protocol, verdict,
//              rule, why, seen
//   end        a connection that had been made is over: and up, down, ms
//   self_test  the box's own refused request has arrived
//   totals     of a host, in the lines that were emptied: allowed, refused, up, down
//   dropped    `count` lines were not written
// `count` is there when a line stands for several. What front says it has seen ("seen", bytes,
// protocol) is front's word, which the box may own.
//
// Log trusts its records (dialer's). read_log() trusts nothing. Thread-safety: none.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/unique_fd.h"

namespace temenos::egress {

inline constexpr std::size_t kLogSegment = std::size_t{2} << 20;
inline constexpr std::size_t kMaxLogLine = 4096;
inline constexpr std::size_t kMaxLogHosts = 1024;  // counted by themselves, then "(others)"

struct LogRecord {
  std::string time;   // read_log() only
  std::string event;  // "resolve", "connect", "end", "self_test"
  std::string host;   // a name in canonical form, or an address
  std::string address;
  std::uint16_t port = 0;
  std::string protocol;  // "tls", "http", "other", or nothing
  std::string verdict;   // "allowed", "refused", "failed"
  std::string rule;
  std::string why;
  std::string seen;  // the foreign name, escaped
  std::uint64_t up = 0;
  std::uint64_t down = 0;
  std::uint64_t ms = 0;
  std::uint64_t count = 1;
};

struct HostTotals {
  std::uint64_t allowed = 0;  // connections made
  std::uint64_t refused = 0;
  std::uint64_t up = 0;
  std::uint64_t down = 0;
};
using TotalsByHost = std::map<std::string, HostTotals, std::less<>>;

class Log {
 public:
  struct Limits {
    std::size_t segment = kLogSegment;
    std::uint64_t per_second = 256;
    std::uint64_t burst = 4096;
    std::int64_t together_ms = 10'000;  // equal lines within are one
  };
  // The files are open for appending. The newer one is gone on with: fstat, before the jail.
  // Writing uses write and ftruncate.
  explicit Log(std::array<UniqueFd, 2> segments) : Log(std::move(segments), Limits{}) {}
  Log(std::array<UniqueFd, 2> segments, const Limits& limits);

  // `now`: a steady clock, in milliseconds.
  void add(const LogRecord& record, std::int64_t now);
  // Writes what was counted together long enough; -1 or when to call it again.
  std::int64_t tick(std::int64_t now);
  // Writes all that was counted.
  void flush(std::int64_t now);
  // Connections and look-ups that were refused since this Log was made.
  std::uint64_t refused() const { return refused_; }
  // Of all lines since this Log was made.
  TotalsByHost totals() const;

 private:
  struct Pending {
    LogRecord record;  // with what came since the last line
    std::int64_t until = 0;
    std::uint64_t more = 0;
  };
  void line(const LogRecord& record, std::int64_t now);
  bool allowed_now(std::int64_t now);
  [[nodiscard]] bool write_line(const std::string& text);
  void make_room(std::size_t bytes);
  void rotate();
  void begin_segment();
  void count(const LogRecord& record);
  void say_dropped();
  void settle(Pending& pending, std::int64_t now);

  std::array<UniqueFd, 2> segments_;
  Limits limits_;
  int current_ = 0;
  std::size_t size_ = 0;
  std::uint64_t tokens_;
  std::int64_t filled_at_ = 0;
  std::uint64_t dropped_ = 0;
  std::uint64_t refused_ = 0;
  bool rotating_ = false;
  std::map<std::string, Pending> pending_;  // by what makes lines equal
  TotalsByHost emptied_;
  std::array<TotalsByHost, 2> in_segment_;
};

// What the two segments hold, in order. At most `max_records`, the newest; lines that are none are
// counted and left out.
struct LogText {
  std::vector<LogRecord> records;
  TotalsByHost totals;  // of all lines, those that were emptied with them
  std::uint64_t dropped = 0;
  std::uint64_t malformed = 0;
};
LogText read_log(std::string_view first, std::string_view second,
                 std::size_t max_records = std::size_t{1} << 16);

}  // namespace temenos::egress
