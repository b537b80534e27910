#include "box/network_log.h"

#include <fcntl.h>

#include <algorithm>
#include <set>
#include <utility>

#include "base/time.h"
#include "egress/log_files.h"
#include "egress/plan.h"
#include "sys/file_sys.h"

namespace temenos::box {
namespace {

constexpr std::string_view kLoopback = "127.0.0.1";

// The entry that would allow it; empty where none does.
std::string rule_for(const egress::LogRecord& record) {
  const bool six = record.host.find(':') != record.host.npos;
  const std::string host = six ? "[" + record.host + "]" : record.host;
  const std::string whole = host + ":" + std::to_string(record.port);
  // The one special address that a rule opens, and its name in the box.
  if (record.host == kLoopback || record.host == egress::kHostName) {
    return std::string(kLoopback) + ":" + (record.port == 0 ? "PORT" : std::to_string(record.port));
  }
  if (record.event == "resolve") return record.why == "not_allowed" ? host : "";
  const bool web = record.port == 443 || record.port == 80;
  if (record.why == "not_allowed" || record.why == "port") return web ? host : whole;
  if (record.why == "not_tls" || record.why == "not_http") return whole;
  if (record.why == "private_address") return "private:" + whole;
  return "";
}

Denial denial_of(const egress::LogRecord& record) {
  Denial denial;
  const bool is_name = record.event == "resolve";
  denial.kind = is_name ? "dns" : "egress";
  const bool six = record.host.find(':') != record.host.npos;
  denial.target = six ? "[" + record.host + "]" : record.host;
  if (!is_name) denial.target += ":" + std::to_string(record.port);
  denial.rule = record.rule.empty() ? "default" : record.rule;
  const std::string rule = rule_for(record);
  denial.hint = rule.empty() ? "no rule opens it: " + record.why : "--allow-host " + rule;
  denial.time = record.time;
  return denial;
}

}  // namespace

RefusalWatch RefusalWatch::begin(KeeperLink& keeper, int data_dir) {
  RefusalWatch watch(keeper, data_dir);
  if (auto before = keeper.flush_network_log()) watch.last_ = std::move(*before);
  watch.from_ = utc_now_ms();
  return watch;
}

std::vector<Denial> RefusalWatch::end() {
  const auto now = keeper_->flush_network_log();
  const bool same = now && last_ && now->refused == last_->refused;
  if (now) last_ = *now;
  // Where keeper could not say, the log is looked at all the same.
  if (same) return {};
  std::string segments[2];
  for (std::size_t i = 0; i < 2; ++i) {
    const auto fd = sys::open_beneath(data_dir_, egress::kLogFiles[i], O_RDONLY);
    if (fd) segments[i] = sys::read_all(fd->get(), 2 * egress::kLogSegment).value_or("");
  }
  return denials_of(egress::read_log(segments[0], segments[1]).records, from_);
}

std::vector<Denial> denials_of(const std::vector<egress::LogRecord>& records,
                               std::string_view from) {
  std::vector<Denial> out;
  std::set<std::string> connected_to;
  const auto add = [&](const egress::LogRecord& record) {
    Denial denial = denial_of(record);
    const bool known = std::any_of(out.begin(), out.end(), [&](const Denial& other) {
      return other.target == denial.target && other.hint == denial.hint;
    });
    if (!known && out.size() < RefusalWatch::kMax) out.push_back(std::move(denial));
  };
  // Of that very millisecond is what the flush at the beginning wrote, of commands before.
  const auto is_new = [&](const egress::LogRecord& record) {
    return record.verdict == "refused" && record.time > from;
  };
  for (const auto& record : records) {
    if (!is_new(record) || (record.event != "connect" && record.event != "end")) continue;
    connected_to.insert(record.host);
    add(record);
  }
  // Most names are asked for to connect to them, which says more.
  for (const auto& record : records) {
    if (is_new(record) && record.event == "resolve" && !connected_to.contains(record.host)) {
      add(record);
    }
  }
  return out;
}

}  // namespace temenos::box
