#include "egress/log.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <limits>

#include "base/time.h"

namespace temenos::egress {
namespace {

constexpr std::size_t kMaxPending = 1024;
constexpr std::string_view kOthers = "(others)";

// Text of ours or of front's as a JSON string: bytes above ASCII are not taken for UTF-8.
std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text.substr(0, 512)) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (byte < 0x20 || byte >= 0x7f) {
      char escaped[8];
      std::snprintf(escaped, sizeof escaped, "\\u%04x", byte);
      out += escaped;
    } else {
      out += c;
    }
  }
  return out + '"';
}

std::string begun(std::string_view event) {
  return R"({"time":")" + utc_now_ms() + R"(","event":)" + quoted(event);
}

void field(std::string& out, std::string_view name, std::string_view text) {
  if (text.empty()) return;
  out.append(",\"").append(name).append("\":").append(quoted(text));
}

void field(std::string& out, std::string_view name, std::uint64_t number) {
  if (number == 0) return;
  out.append(",\"").append(name).append("\":").append(std::to_string(number));
}

std::string text_of(const LogRecord& record) {
  std::string out = begun(record.event);
  field(out, "host", record.host);
  field(out, "address", record.address);
  field(out, "port", record.port);
  field(out, "protocol", record.protocol);
  field(out, "verdict", record.verdict);
  field(out, "rule", record.rule);
  field(out, "why", record.why);
  field(out, "seen", record.seen);
  field(out, "up", record.up);
  field(out, "down", record.down);
  field(out, "ms", record.ms);
  field(out, "count", record.count > 1 ? record.count : 0);
  return out + "}\n";
}

std::string key_of(const LogRecord& record) {
  // Where a connection went, and by which rule, is not to be lost among repeats.
  return record.event + '\n' + record.host + '\n' + record.address + '\n' +
         std::to_string(record.port) + '\n' + record.verdict + '\n' + record.why + '\n' +
         record.rule;
}

// Sums of what front says are to stay numbers that the reader takes.
void grow(std::uint64_t& sum, std::uint64_t more) {
  constexpr std::uint64_t kMost = std::numeric_limits<std::int64_t>::max();
  sum = more > kMost || sum > kMost - more ? kMost : sum + more;
}

HostTotals& of_host(TotalsByHost& totals, const std::string& host) {
  const auto found = totals.find(host);
  if (found != totals.end()) return found->second;
  return totals[totals.size() < kMaxLogHosts ? host : std::string(kOthers)];
}

void add_up(HostTotals& sum, const HostTotals& more) {
  grow(sum.allowed, more.allowed);
  grow(sum.refused, more.refused);
  grow(sum.up, more.up);
  grow(sum.down, more.down);
}

void add_up(TotalsByHost& sum, const TotalsByHost& more) {
  for (const auto& [host, totals] : more) add_up(of_host(sum, host), totals);
}

}  // namespace

Log::Log(std::array<UniqueFd, 2> segments, const Limits& limits)
    : segments_(std::move(segments)), limits_(limits), tokens_(limits.burst) {
  struct stat st[2]{};
  for (std::size_t i = 0; i < 2; ++i) (void)fstat(segments_[i].get(), &st[i]);
  // The older one is full. One that is empty has not had its turn.
  const off_t first = st[0].st_size;
  const off_t second = st[1].st_size;
  if (second != 0 && (first == 0 || second < first)) current_ = 1;
  size_ = static_cast<std::size_t>(st[current_].st_size);
}

void Log::add(const LogRecord& record, std::int64_t now) {
  if (record.event != "self_test" && record.verdict == "refused") refused_ += record.count;
  std::string key = key_of(record);
  if (const auto found = pending_.find(key); found != pending_.end()) {
    if (now < found->second.until) {
      Pending& pending = found->second;
      pending.more += record.count;
      grow(pending.record.up, record.up);
      grow(pending.record.down, record.down);
      grow(pending.record.ms, record.ms);
      if (!record.seen.empty()) pending.record.seen = record.seen;
      return;
    }
    settle(found->second, now);
    pending_.erase(found);
  }
  // The first one is written at once: who waits for a denial does not wait for its repeats.
  line(record, now);
  if (pending_.size() < kMaxPending) {
    Pending pending{.record = record, .until = now + limits_.together_ms};
    pending.record.up = pending.record.down = pending.record.ms = 0;
    pending_.emplace(std::move(key), std::move(pending));
  }
}

void Log::settle(Pending& pending, std::int64_t now) {
  if (pending.more == 0) return;
  pending.record.count = pending.more;
  pending.more = 0;
  line(pending.record, now);
}

std::int64_t Log::tick(std::int64_t now) {
  std::int64_t next = -1;
  for (auto it = pending_.begin(); it != pending_.end();) {
    if (it->second.until <= now) {
      settle(it->second, now);
      it = pending_.erase(it);
      continue;
    }
    if (next < 0 || it->second.until < next) next = it->second.until;
    ++it;
  }
  if (dropped_ != 0 && allowed_now(now)) say_dropped();
  if (dropped_ != 0 && (next < 0 || now + 1000 < next)) next = now + 1000;
  return next;
}

void Log::flush(std::int64_t now) {
  for (auto& [key, pending] : pending_) settle(pending, now);
  pending_.clear();
  if (dropped_ != 0) say_dropped();
}

bool Log::allowed_now(std::int64_t now) {
  const auto passed = static_cast<std::uint64_t>(std::max<std::int64_t>(now - filled_at_, 0));
  const std::uint64_t more =
      std::min(passed, std::uint64_t{1000} * 3600) * limits_.per_second / 1000;
  if (more != 0) {
    tokens_ = std::min(limits_.burst, tokens_ + more);
    filled_at_ = now;
  }
  if (tokens_ == 0) return false;
  --tokens_;
  return true;
}

void Log::line(const LogRecord& record, std::int64_t now) {
  if (!allowed_now(now)) {
    count(record);
    dropped_ += record.count;
    return;
  }
  if (dropped_ != 0) say_dropped();
  const std::string text = text_of(record);
  make_room(text.size());
  count(record);
  if (!write_line(text)) dropped_ += record.count;
}

void Log::say_dropped() {
  std::string text = begun("dropped");
  field(text, "count", dropped_);
  if (write_line(text + "}\n")) dropped_ = 0;
}

void Log::count(const LogRecord& record) {
  if (record.host.empty()) return;
  const HostTotals more{
      .allowed = record.event == "connect" && record.verdict == "allowed" ? record.count : 0,
      .refused = record.verdict == "refused" ? record.count : 0,
      .up = record.up,
      .down = record.down};
  add_up(of_host(in_segment_[static_cast<std::size_t>(current_)], record.host), more);
}

bool Log::write_line(const std::string& text) {
  make_room(text.size());
  const int fd = segments_[static_cast<std::size_t>(current_)].get();
  ssize_t written;
  do {
    written = ::write(fd, text.data(), text.size());
  } while (written < 0 && errno == EINTR);
  if (written == static_cast<ssize_t>(text.size())) {
    size_ += text.size();
    return true;
  }
  // A disk that is full costs lines; half a line is none.
  if (written > 0 && ftruncate(fd, static_cast<off_t>(size_)) != 0) {
    size_ += static_cast<std::size_t>(written);
  }
  return false;
}

void Log::make_room(std::size_t bytes) {
  if (rotating_) return;
  if (size_ + bytes > limits_.segment) rotate();
  if (size_ == 0) begin_segment();
}

void Log::rotate() {
  current_ ^= 1;
  const auto at = static_cast<std::size_t>(current_);
  add_up(emptied_, in_segment_[at]);
  in_segment_[at].clear();
  int failed = 0;
  do {
    failed = ftruncate(segments_[at].get(), 0);
  } while (failed != 0 && errno == EINTR);
  size_ = 0;
}

void Log::begin_segment() {
  rotating_ = true;
  (void)write_line(begun("segment") + "}\n");
  for (const auto& [host, totals] : emptied_) {
    std::string text = begun("totals");
    field(text, "host", host);
    field(text, "allowed", totals.allowed);
    field(text, "refused", totals.refused);
    field(text, "up", totals.up);
    field(text, "down", totals.down);
    (void)write_line(text + "}\n");
  }
  rotating_ = false;
}

TotalsByHost Log::totals() const {
  TotalsByHost out = emptied_;
  for (const auto& part : in_segment_) add_up(out, part);
  return out;
}

}  // namespace temenos::egress
