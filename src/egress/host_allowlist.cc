#include "temenos/host_allowlist.h"

#include <algorithm>
#include <charconv>

#include "base/text.h"
#include "base/try.h"
#include "codec/address.h"
#include "egress/judge.h"
#include "egress/plan.h"
#include "egress/synthetic.h"
#include "egress/why_names.h"
#include "wire/host_name.h"

namespace temenos {
namespace {

using egress::Decision;
using egress::Need;
using egress::Why;

constexpr std::uint16_t kDefaultPort = 443;

tl::unexpected<Error> no_destination(std::string_view text) {
  return fail(Code::kInvalidArgument, "\"" + escape(text) + "\" is no destination",
              "write HOST, HOST:PORT, an IPv4 address or [IPV6]:PORT");
}

struct Parts {
  std::string_view host;
  std::uint16_t port = kDefaultPort;
};

Result<Parts> parts_of(std::string_view text) {
  Parts out{.host = text};
  std::string_view port;
  bool has_port = false;
  if (text.starts_with('[')) {
    const std::size_t close = text.find(']');
    if (close == text.npos) return no_destination(text);
    out.host = text.substr(1, close - 1);
    if (out.host.find(':') == out.host.npos) return no_destination(text);
    const std::string_view after = text.substr(close + 1);
    has_port = !after.empty();
    if (has_port && after[0] != ':') return no_destination(text);
    if (has_port) port = after.substr(1);
  } else if (std::count(text.begin(), text.end(), ':') == 1) {
    const std::size_t colon = text.find(':');
    out.host = text.substr(0, colon);
    port = text.substr(colon + 1);
    has_port = true;
  }
  if (!has_port) return out;
  const auto [end, ec] = std::from_chars(port.data(), port.data() + port.size(), out.port);
  if (ec != std::errc() || end != port.data() + port.size() || out.port == 0 || port[0] == '0') {
    return no_destination(text);
  }
  return out;
}

std::string named(const HostAllowlist::Answer& answer) {
  const bool v6 = answer.host.find(':') != answer.host.npos;
  return (v6 ? "[" + answer.host + "]" : answer.host) + ":" + std::to_string(answer.port);
}

// What would change a refusal.
std::string remedy(const HostAllowlist::Answer& answer) {
  if (answer.why == enum_name(Why::kSpecialAddress)) {
    return "no rule opens this address; 127.0.0.1:PORT opens one port of the host's loopback";
  }
  if (answer.why == enum_name(Why::kUnknownAddress)) {
    return "no rule opens this address: it is one that boxes see instead of a name's";
  }
  const std::string rule = named(answer);
  const bool local = answer.host == egress::kHostName;
  if (local) return "allow 127.0.0.1:" + std::to_string(answer.port);
  const auto address = parse_address(answer.host);
  if (address && classify(*address) == AddressClass::kPrivate) return "allow private:" + rule;
  return "allow " + rule;
}

}  // namespace

HostAllowlist::HostAllowlist() : judge_(std::make_shared<egress::Judge>()) {}

HostAllowlist::HostAllowlist(std::span<const HostRule> rules)
    : judge_(std::make_shared<egress::Judge>(egress::Judge::of(rules))) {}

Result<HostAllowlist> HostAllowlist::parse(std::span<const std::string> entries) {
  std::vector<HostRule> rules;
  for (const std::string& entry : entries) rules.push_back(TRY(HostRule::parse(entry)));
  return HostAllowlist(rules);
}

Result<HostAllowlist::Answer> HostAllowlist::check(std::string_view destination) const {
  const Parts parts = TRY(parts_of(destination));
  Answer out{.port = parts.port};
  Decision decision;
  if (const auto address = parse_address(parts.host)) {
    out.host = format_block(*address);
    if (egress::is_boxes_own(*address)) {
      decision.why = Why::kUnknownAddress;
    } else {
      decision = judge_->judge_address(*address, parts.port);
    }
  } else {
    auto name = wire::canonical_name(parts.host);
    if (!name) {
      // An international name, which programs in a box turn into A-labels before they ask.
      const auto rule = HostRule::parse(parts.host);
      if (!rule || rule->kind() != HostRule::Kind::kName) return no_destination(destination);
      name = rule->name();
    }
    decision = judge_->judge_name(*name, parts.port);
    out.host = std::move(*name);
  }
  out.allowed = decision.allowed;
  out.allows_private = decision.allows_private;
  out.rule = decision.rule;
  if (!decision.allowed) out.why = enum_name(decision.why);
  if (decision.need == Need::kTls) out.needs = Needs::kTls;
  if (decision.need == Need::kHttp) out.needs = Needs::kHttp;
  return out;
}

Result<std::string> HostAllowlist::explain(std::string_view destination) const {
  const Answer answer = TRY(check(destination));
  if (!answer.allowed) {
    std::string why = "no rule names it";
    if (answer.why == enum_name(Why::kPort)) why = "a rule names it, not this port";
    if (answer.why == enum_name(Why::kPrivateAddress)) why = "a private address needs private:";
    if (answer.why == enum_name(Why::kSpecialAddress)) {
      why = "loopback, link-local, metadata or reserved";
    }
    if (answer.why == enum_name(Why::kUnknownAddress)) why = "an address of boxes only";
    return named(answer) + " is refused (" + why + "); " + remedy(answer);
  }
  std::string how = "any protocol";
  if (answer.needs == Needs::kTls) how = "TLS whose server name is " + answer.host;
  if (answer.needs == Needs::kHttp) how = "HTTP whose host is " + answer.host;
  std::string out = named(answer) + " is allowed by " + answer.rule + " (" + how + ")";
  const bool name = !parse_address(answer.host) && answer.host != egress::kHostName;
  if (name) {
    out += answer.allows_private ? "; it may resolve to a private address"
                                 : "; only its public addresses are connected to";
  }
  return out;
}

}  // namespace temenos
