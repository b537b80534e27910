#include "box/network_log.h"

#include <fcntl.h>

#include <algorithm>

#include "base/time.h"
#include "egress/log.h"
#include "egress/log_files.h"
#include "sys/file_sys.h"

namespace temenos::box {
namespace {

// The entry that would allow it; empty where none does.
std::string rule_for(const egress::LogRecord& record) {
  const bool six = record.host.find(':') != record.host.npos;
  const std::string host = six ? "[" + record.host + "]" : record.host;
  const std::string whole = host + ":" + std::to_string(record.port);
  const bool web = record.port == 443 || record.port == 80;
  if (record.why == "not_allowed" || record.why == "port") return web ? host : whole;
  if (record.why == "not_tls" || record.why == "not_http") return whole;
  if (record.why == "private_address") return "private:" + whole;
  return "";
}

Denial denial_of(const egress::LogRecord& record) {
  Denial denial;
  denial.kind = "egress";
  const bool six = record.host.find(':') != record.host.npos;
  denial.target = (six ? "[" + record.host + "]" : record.host) + ":" + std::to_string(record.port);
  denial.rule = record.rule.empty() ? "default" : record.rule;
  const std::string rule = rule_for(record);
  denial.hint = rule.empty() ? "no rule opens it: " + record.why : "--allow-host " + rule;
  denial.time = record.time;
  return denial;
}

}  // namespace

RefusalWatch RefusalWatch::begin(KeeperLink& keeper, int data_dir) {
  RefusalWatch watch(keeper, data_dir);
  const auto before = keeper.flush_network_log();
  if (before) watch.before_ = *before;
  watch.from_ = utc_now_ms();
  return watch;
}

std::vector<Denial> RefusalWatch::end() {
  std::vector<Denial> out;
  const auto now = keeper_->flush_network_log();
  // Equal where nothing was refused. Where keeper could not say, the log is looked at all the same.
  if (now && before_ && *now == *before_) return out;
  std::string segments[2];
  for (std::size_t i = 0; i < 2; ++i) {
    const auto fd = sys::open_beneath(data_dir_, egress::kLogFiles[i], O_RDONLY);
    if (fd) segments[i] = sys::read_all(fd->get(), 2 * egress::kLogSegment).value_or("");
  }
  for (const auto& record : egress::read_log(segments[0], segments[1]).records) {
    // Of that very millisecond is what the flush at the beginning wrote, of commands before.
    if (record.event != "connect" || record.verdict != "refused" || record.time <= from_) continue;
    Denial denial = denial_of(record);
    const bool known = std::any_of(out.begin(), out.end(), [&](const Denial& other) {
      return other.target == denial.target && other.hint == denial.hint;
    });
    if (!known && out.size() < kMax) out.push_back(std::move(denial));
  }
  return out;
}

}  // namespace temenos::box
