// Whatever parses as an allowlist entry is in canonical form, and that form is a fixed point.
#include <cstdint>
#include <cstdlib>

#include "base/text.h"
#include "temenos/network.h"

namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

void check_name(const temenos::HostRule& rule) {
  const std::string& name = rule.name();
  require(!name.empty() && name.size() <= 253);
  for (const std::string& label : temenos::split(name, '.')) {
    require(!label.empty() && label.size() <= 63 && label.front() != '-' && label.back() != '-');
    require(label.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-_") == label.npos);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using temenos::HostRule;
  const auto rule = HostRule::parse(std::string_view(reinterpret_cast<const char*>(data), size));
  if (!rule) {
    require(!rule.error().hint.empty());
    return 0;
  }
  const std::string text = rule->to_string();
  const auto again = HostRule::parse(text);
  require(again && *again == *rule && again->to_string() == text);
  require(rule->covers(*again));
  require((rule->ports() == HostRule::Ports::kOne) == (rule->port() != 0));
  const HostRule::Kind kind = rule->kind();
  if (kind == HostRule::Kind::kName || kind == HostRule::Kind::kSubdomains) check_name(*rule);
  return 0;
}
