#include "egress/judge.h"

#include "base/text.h"
#include "base/try.h"
#include "codec/address.h"
#include "egress/plan.h"
#include "policy/presets.h"

namespace temenos::egress {
namespace {

constexpr std::uint16_t kTlsPort = 443;
constexpr std::uint16_t kHttpPort = 80;

}  // namespace

// The best of the rules that match so far.
class Judge::Choice {
 public:
  explicit Choice(std::uint16_t port) : port_(port) {}

  void consider(const Entry& entry) {
    named_ = true;
    const auto need = need_of(entry);
    if (!need) return;
    const int rank = (*need == Need::kAny ? 2 : 0) + (entry.allows_private ? 1 : 0);
    if (best_ != nullptr && rank <= rank_) return;
    best_ = &entry;
    rank_ = rank;
    need_ = *need;
  }

  Decision decision() const {
    Decision out;
    if (best_ == nullptr) {
      out.why = named_ ? Why::kPort : Why::kNotAllowed;
      return out;
    }
    out.allowed = true;
    out.why = Why::kNone;
    out.need = need_;
    out.allows_private = best_->allows_private;
    out.rule = best_->text;
    return out;
  }

 private:
  std::optional<Need> need_of(const Entry& entry) const {
    switch (entry.ports) {
      case HostRule::Ports::kAny:
        return Need::kAny;
      case HostRule::Ports::kOne:
        if (entry.port == port_) return Need::kAny;
        return std::nullopt;
      case HostRule::Ports::kWeb:
        if (port_ == kTlsPort) return Need::kTls;
        if (port_ == kHttpPort) return Need::kHttp;
        return std::nullopt;
    }
    return std::nullopt;
  }

  std::uint16_t port_;
  const Entry* best_ = nullptr;
  int rank_ = 0;
  Need need_ = Need::kAny;
  bool named_ = false;
};

Judge Judge::of(std::span<const HostRule> rules) {
  Judge out;
  for (const HostRule& rule : rules) {
    if (rule.kind() != HostRule::Kind::kPreset) {
      out.add(rule, rule.to_string());
      continue;
    }
    for (const auto& entry : preset_entries(rule.name())) {
      out.add(entry.rule, rule.to_string() + " (" + entry.rule.to_string() + ")");
    }
  }
  out.rules_ = rules.size();
  return out;
}

Result<Judge> Judge::parse(std::string_view lines) {
  if (lines.size() > kMaxRulesText) {
    return fail(Code::kInvalidArgument, "the allowlist is longer than 4096 rules can be",
                "shorten it");
  }
  std::vector<HostRule> rules;
  for (const std::string& line : split(lines, '\n')) {
    if (line.empty()) continue;
    HostRule rule = TRY(HostRule::parse(line));
    if (rule.to_string() != line) {
      return fail(Code::kInvalidArgument, "not in canonical form: " + escape(line),
                  "write " + rule.to_string());
    }
    if (rules.size() == kMaxRules) {
      return fail(Code::kInvalidArgument, "more than 4096 rules", "shorten the list");
    }
    rules.push_back(std::move(rule));
  }
  return of(rules);
}

void Judge::add(const HostRule& rule, std::string text) {
  Entry entry{rule.ports(), rule.port(), rule.allows_private(), std::move(text)};
  if (rule.is_host_loopback()) {
    loopback_.push_back(std::move(entry));
    return;
  }
  switch (rule.kind()) {
    case HostRule::Kind::kName:
      names_[rule.name()].push_back(std::move(entry));
      break;
    case HostRule::Kind::kSubdomains:
      below_[rule.name()].push_back(std::move(entry));
      break;
    case HostRule::Kind::kAddress:
      blocks_.emplace_back(rule.block(), std::move(entry));
      break;
    case HostRule::Kind::kPreset:
      break;  // became its rules in of()
  }
}

template <typename F>
void Judge::each_of_name(std::string_view name, F use) const {
  // No other rule means it, as *.internal.
  if (name == kHostName) {
    if (!loopback_.empty()) use(loopback_);
    return;
  }
  if (const auto found = names_.find(name); found != names_.end()) use(found->second);
#ifdef TEMENOS_PLANT_JUDGE
  // The defect: a suffix of bytes and not of labels, so that evilallowed.com is below allowed.com.
  for (std::size_t at = 1; at < name.size(); ++at) {
#else
  for (std::size_t at = name.find('.'); at != name.npos; at = name.find('.', at)) {
    ++at;
#endif
    if (const auto found = below_.find(name.substr(at)); found != below_.end()) use(found->second);
  }
}

Decision Judge::judge_name(std::string_view name, std::uint16_t port) const {
  Choice choice(port);
  each_of_name(name, [&choice](const std::vector<Entry>& entries) {
    for (const Entry& entry : entries) choice.consider(entry);
  });
  Decision out = choice.decision();
  out.host_loopback = out.allowed && name == kHostName;
  return out;
}

Decision Judge::judge_address(const AddressBlock& address, std::uint16_t port) const {
  Choice choice(port);
  static const AddressBlock localhost = *parse_address("127.0.0.1");
  if (address == localhost) {
    for (const Entry& entry : loopback_) choice.consider(entry);
    Decision out = choice.decision();
    out.host_loopback = out.allowed;
    if (!out.allowed) out.why = Why::kSpecialAddress;
    return out;
  }
  Decision out;
  const AddressClass of = classify(address);
  if (of == AddressClass::kLoopback || of == AddressClass::kSpecial) {
    out.why = Why::kSpecialAddress;
    return out;
  }
  bool closed_to_private = false;
  for (const auto& [block, entry] : blocks_) {
    if (!block.contains(address)) continue;
    if (of == AddressClass::kPrivate && !entry.allows_private) {
      closed_to_private = true;
    } else {
      choice.consider(entry);
    }
  }
  out = choice.decision();
  if (!out.allowed && closed_to_private) out.why = Why::kPrivateAddress;
  return out;
}

bool Judge::names(std::string_view name) const {
  bool named = false;
  each_of_name(name, [&named](const std::vector<Entry>&) { named = true; });
  return named;
}

std::vector<std::string> Judge::exact_names() const {
  std::vector<std::string> out;
  out.reserve(names_.size() + 1);
  for (const auto& [name, entries] : names_) out.push_back(name);
  if (!loopback_.empty()) out.emplace_back(kHostName);
  return out;
}

}  // namespace temenos::egress
