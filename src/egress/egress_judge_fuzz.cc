// A list of rules and destinations, both of the input: what is allowed is allowed by a rule that,
// read simply, names it; and check() of HostAllowlist says the same.
#include <cstdint>
#include <cstdlib>
#include <initializer_list>

#include "base/text.h"
#include "codec/address.h"
#include "egress/judge.h"
#include "temenos/host_allowlist.h"
#include "wire/host_name.h"

namespace {

using namespace temenos;
using namespace temenos::egress;

void require(bool holds) {
  if (!holds) std::abort();
}

// The simple reading of one rule.
bool names(const HostRule& rule, const std::string& name) {
  if (rule.kind() == HostRule::Kind::kName) return rule.name() == name;
  if (rule.kind() == HostRule::Kind::kSubdomains) {
    return name.size() > rule.name().size() + 1 && name.ends_with("." + rule.name());
  }
  return rule.is_host_loopback() && name == "host.temenos.internal";
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto lines = split(std::string_view(reinterpret_cast<const char*>(data), size), '\n');
  std::vector<HostRule> rules;
  std::vector<std::string> destinations;
  for (const auto& line : lines) {
    if (line.starts_with("?")) {
      destinations.push_back(line.substr(1));
    } else if (auto rule = HostRule::parse(line)) {
      if (rule->kind() != HostRule::Kind::kPreset) rules.push_back(std::move(*rule));
    }
  }
  const Judge judge = Judge::of(rules);
  std::string text;
  for (const auto& rule : rules) text += rule.to_string() + "\n";
  if (rules.size() <= kMaxRules) require(static_cast<bool>(Judge::parse(text)));
  const HostAllowlist allowlist(rules);
  for (const auto& destination : destinations) {
    for (const std::uint16_t port : std::initializer_list<std::uint16_t>{443, 80, 22}) {
      if (const auto name = wire::canonical_name(destination)) {
        bool named = false;
        for (const auto& rule : rules) named |= names(rule, *name);
        const Decision decision = judge.judge_name(*name, port);
        require(named || !decision.allowed);
        require(judge.names(*name) || !decision.allowed);
        const auto answer = allowlist.check(*name + ":" + std::to_string(port));
        require(answer && answer->allowed == decision.allowed && answer->rule == decision.rule);
      } else if (const auto address = parse_address(destination)) {
        const Decision decision = judge.judge_address(*address, port);
        const AddressClass of = classify(*address);
        require(!decision.allowed || of == AddressClass::kPublic ||
                (of == AddressClass::kPrivate && decision.allows_private) ||
                (decision.host_loopback && format_block(*address) == "127.0.0.1"));
      }
    }
    if (auto explained = allowlist.explain(destination); !explained) {
      require(!explained.error().hint.empty());
    }
  }
  return 0;
}
