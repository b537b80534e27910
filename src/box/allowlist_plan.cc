#include "box/allowlist_plan.h"

#include <algorithm>

#include "base/try.h"
#include "policy/presets.h"

namespace temenos::box {
namespace {

constexpr std::size_t kShown = 10;

enum class Overlap { kNone, kPart, kWhole };

Overlap overlap_of(const HostRule& entry, const HostRule& rule) {
  if (entry.covers(rule)) return Overlap::kWhole;
  if (rule.covers(entry)) return Overlap::kPart;
  // github.com:22 and github.com allow different things of the same host.
  const bool same = entry.kind() == rule.kind() && !entry.name().empty();
  return same && entry.name() == rule.name() ? Overlap::kPart : Overlap::kNone;
}

// What `entry` allows of what `rule` does. A preset is what it stands for.
Overlap allows(const HostRule& entry, const HostRule& rule) {
  if (entry.kind() != HostRule::Kind::kPreset) return overlap_of(entry, rule);
  Overlap most = overlap_of(entry, rule);
  for (const auto& one : preset_entries(entry.name())) {
    most = std::max(most, overlap_of(one.rule, rule));
  }
  return most;
}

bool has(const Rules& list, const HostRule& rule) {
  return std::find(list.begin(), list.end(), rule) != list.end();
}

std::string named(const Rules& rules) {
  std::string out;
  for (std::size_t i = 0; i < std::min(rules.size(), kShown); ++i) {
    out += (i == 0 ? "" : ", ") + rules[i].to_string();
  }
  if (rules.size() > kShown) out += " and " + std::to_string(rules.size() - kShown) + " others";
  return out;
}

tl::unexpected<Error> not_there(const Rules& list, const HostRule& rule) {
  const std::string what = rule.to_string() + " is not in the allowlist, which ";
  if (list.empty()) return fail(Code::kNotFound, what + "is empty", "nothing is to be denied");
  Rules related;
  for (const auto& entry : list) {
    if (allows(entry, rule) != Overlap::kNone) related.push_back(entry);
  }
  return fail(Code::kNotFound, what + "has " + named(list),
              related.empty() ? "no entry allows any of it"
                              : "what allows it, or some of it, is " + named(related) +
                                    ": deny that, and allow again what is to stay");
}

}  // namespace

Result<Rules> parse_entries(const std::vector<std::string>& entries) {
  if (entries.empty()) {
    return fail(Code::kInvalidArgument, "no entry of the allowlist is named", "name at least one");
  }
  Rules out;
  for (const auto& entry : entries) out.push_back(TRY(HostRule::parse(entry)));
  return out;
}

Rules with_entries(const Rules& list, const Rules& more) {
  Rules out = list;
  for (const auto& rule : more) {
    if (!has(out, rule)) out.push_back(rule);
  }
  return out;
}

Result<Rules> without_entries(const Rules& list, const Rules& less) {
  for (const auto& rule : less) {
    if (!has(list, rule)) return not_there(list, rule);
  }
  Rules out = list;
  std::erase_if(out, [&](const HostRule& rule) { return has(less, rule); });
  return out;
}

std::vector<std::string> still_allowed(const Rules& list, const Rules& denied) {
  std::vector<std::string> out;
  for (const auto& rule : denied) {
    for (const auto& entry : list) {
      const Overlap still = allows(entry, rule);
      if (still == Overlap::kNone) continue;
      out.push_back((still == Overlap::kPart ? "some of " : "") + rule.to_string() +
                    " is still allowed, by " + entry.to_string());
    }
  }
  return out;
}

std::string lines_of(const Rules& list) {
  std::string out;
  for (const auto& rule : list) out += rule.to_string() + "\n";
  return out;
}

}  // namespace temenos::box
