// What read_log() makes of any two files: bounded records, and sums that no line can turn back.
#include <cstdint>
#include <cstdlib>

#include "egress/log.h"

namespace {

constexpr std::size_t kMaxText = 1024;
constexpr std::size_t kMaxRecords = 8;

void require(bool holds) {
  if (!holds) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace temenos::egress;
  // The first byte says how much of the rest is in the first file.
  const std::string_view text(reinterpret_cast<const char*>(data) + (size != 0),
                              size - (size != 0));
  const std::size_t half = size == 0 ? 0 : data[0] * text.size() / 255;
  const LogText out = read_log(text.substr(0, half), text.substr(half), kMaxRecords);
  require(out.records.size() <= kMaxRecords);
  require(out.totals.size() <= kMaxLogHosts + 1);
  for (const LogRecord& record : out.records) {
    for (const std::string* part :
         {&record.time, &record.event, &record.host, &record.address, &record.protocol,
          &record.verdict, &record.rule, &record.why, &record.seen}) {
      require(part->size() <= kMaxText);
    }
    require(!record.time.empty() && record.count >= 1);
    if (record.host.empty()) continue;
    const auto totals =
        out.totals.contains(record.host) ? out.totals.at(record.host) : out.totals.at("(others)");
    if (record.verdict == "refused") require(totals.refused >= record.count);
    require(totals.up >= record.up && totals.down >= record.down);
  }
  return 0;
}
