// The reader of egress/log.h, which the library and the CLI use: a dialer that was taken over may
// have written the lines.
#include <algorithm>
#include <limits>
#include <optional>
#include <set>

#include "base/try.h"
#include "codec/object_reader.h"
#include "egress/log.h"

namespace temenos::egress {
namespace {

constexpr std::size_t kMaxText = 1024;

struct Line {
  LogRecord record;
  HostTotals totals;
};

std::uint64_t sum(std::uint64_t a, std::uint64_t b) {
  const std::uint64_t max = std::numeric_limits<std::uint64_t>::max();
  return a > max - b ? max : a + b;
}

Result<void> text(ObjectReader& reader, std::string_view name, std::string& out) {
  const auto value = TRY(reader.optional_string(name));
  if (!value) return {};
  if (value->size() > kMaxText) return fail(Code::kInvalidArgument, "too long");
  out = *value;
  return {};
}

Result<void> number(ObjectReader& reader, std::string_view name, std::uint64_t& out,
                    std::int64_t max = std::numeric_limits<std::int64_t>::max()) {
  const auto value = TRY(reader.optional_int(name));
  if (!value) return {};
  if (*value < 0 || *value > max) return fail(Code::kInvalidArgument, "out of range");
  out = static_cast<std::uint64_t>(*value);
  return {};
}

Result<Line> parse_line(std::string_view bytes) {
  static const std::set<std::string_view> kEvents = {"segment",   "resolve", "connect", "end",
                                                     "self_test", "totals",  "dropped"};
  const auto value = TRY(parse_json(bytes, {.max_bytes = kMaxLogLine, .max_depth = 2}));
  auto reader = TRY(ObjectReader::of(value, ""));
  Line out;
  LogRecord& r = out.record;
  std::uint64_t port = 0;
  for (auto [name, into] :
       {std::pair("time", &r.time), std::pair("event", &r.event), std::pair("host", &r.host),
        std::pair("address", &r.address), std::pair("protocol", &r.protocol),
        std::pair("verdict", &r.verdict), std::pair("rule", &r.rule), std::pair("why", &r.why),
        std::pair("seen", &r.seen)}) {
    TRY(text(reader, name, *into));
  }
  TRY(number(reader, "port", port, 65535));
  r.port = static_cast<std::uint16_t>(port);
  for (auto [name, into] :
       {std::pair("up", &r.up), std::pair("down", &r.down), std::pair("ms", &r.ms),
        std::pair("count", &r.count), std::pair("allowed", &out.totals.allowed),
        std::pair("refused", &out.totals.refused)}) {
    TRY(number(reader, name, *into));
  }
  TRY(reader.finish());
  if (r.time.empty() || !kEvents.contains(r.event) || r.count == 0) {
    return fail(Code::kInvalidArgument, "no line of the log");
  }
  return out;
}

class Reader {
 public:
  Reader(LogText& out, std::size_t max_records) : out_(out), max_(max_records) {}

  void segment(std::string_view text) {
    while (!text.empty()) {
      const std::size_t end = text.find('\n');
      // The last one may be being written.
      if (end == text.npos) return;
      take(text.substr(0, end));
      text.remove_prefix(end + 1);
    }
  }

  void add_before() {
    for (const auto& [name, more] : before_) {
      HostTotals& totals = host(name);
      totals.allowed = sum(totals.allowed, more.allowed);
      totals.refused = sum(totals.refused, more.refused);
      totals.up = sum(totals.up, more.up);
      totals.down = sum(totals.down, more.down);
    }
  }

  void finish() {
#ifdef TEMENOS_PLANT_LOG_READER
    const std::size_t most = max_ + 1;  // the defect: one record too many
#else
    const std::size_t most = max_;
#endif
    if (out_.records.size() <= most) return;
    out_.records.erase(out_.records.begin(),
                       out_.records.end() - static_cast<std::ptrdiff_t>(most));
  }

 private:
  void take(std::string_view bytes) {
    auto line =
        bytes.size() < kMaxLogLine ? parse_line(bytes) : fail(Code::kInvalidArgument, "too long");
    if (!line) {
      ++out_.malformed;
      return;
    }
    LogRecord& record = line->record;
    if (record.event == "segment") return;
    if (record.event == "dropped") {
      out_.dropped = sum(out_.dropped, record.count);
    } else if (record.event == "totals") {
      // Totals stand for all that was before the older segment: the newest line counts.
      before_[record.host] = {line->totals.allowed, line->totals.refused, record.up, record.down};
    } else {
      keep(std::move(record));
    }
  }

  void keep(LogRecord record) {
    if (!record.host.empty()) {
      HostTotals& totals = host(record.host);
      if (record.event == "connect" && record.verdict == "allowed") {
        totals.allowed = sum(totals.allowed, record.count);
      }
      if (record.verdict == "refused") totals.refused = sum(totals.refused, record.count);
      totals.up = sum(totals.up, record.up);
      totals.down = sum(totals.down, record.down);
    }
    out_.records.push_back(std::move(record));
    if (out_.records.size() > 2 * max_) finish();
  }

  HostTotals& host(const std::string& name) {
    const auto found = out_.totals.find(name);
    if (found != out_.totals.end()) return found->second;
    return out_.totals[out_.totals.size() < kMaxLogHosts ? name : "(others)"];
  }

  LogText& out_;
  std::size_t max_;
  TotalsByHost before_;
};

std::string first_time(std::string_view text) {
  const auto line = parse_line(text.substr(0, std::min(text.find('\n'), kMaxLogLine)));
  return line ? line->record.time : "";
}

}  // namespace

LogText read_log(std::string_view first, std::string_view second, std::size_t max_records) {
  if (first_time(second) < first_time(first)) std::swap(first, second);
  LogText out;
  Reader reader(out, max_records);
  reader.segment(first);
  reader.segment(second);
  reader.finish();
  reader.add_before();
  return out;
}

}  // namespace temenos::egress
