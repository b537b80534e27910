#include "policy/presets.h"

#include <algorithm>
#include <cstdlib>
#include <map>

#include "base/text.h"

asm(".section .rodata\n"
    ".global temenos_presets_list\n"
    "temenos_presets_list:\n"
    ".incbin \"" TEMENOS_PRESETS_LIST
    "\"\n"
    ".byte 0\n"
    ".previous\n");
extern "C" const char temenos_presets_list[];

namespace temenos {
namespace {

struct Line {
  std::string preset;
  std::string rule;
  std::string reason;
};

// As text: a rule is parsed only when its preset is asked for, because the parser of rules asks
// here which names there are.
const std::vector<Line>& lines() {
  static const std::vector<Line> parsed = [] {
    std::vector<Line> out;
    for (const std::string& line : split(temenos_presets_list, '\n')) {
      if (line.empty() || line[0] == '#') continue;
      const auto end = line.find(' ');
      const auto rule = line.find_first_not_of(' ', end);
      const auto rule_end = line.find(' ', rule);
      const auto reason = line.find_first_not_of(' ', rule_end);
      if (end == line.npos || rule_end == line.npos || reason == line.npos) std::abort();
      out.push_back({line.substr(0, end), line.substr(rule, rule_end - rule), line.substr(reason)});
    }
    return out;
  }();
  return parsed;
}

}  // namespace

const std::vector<std::string>& preset_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> out;
    for (const Line& line : lines()) out.push_back(line.preset);
    std::sort(out.begin(), out.end());
    out.erase(std::unique(out.begin(), out.end()), out.end());
    return out;
  }();
  return names;
}

bool is_preset(std::string_view name) {
  return std::binary_search(preset_names().begin(), preset_names().end(), name);
}

const std::vector<PresetEntry>& preset_entries(std::string_view name) {
  static const auto presets = [] {
    std::map<std::string, std::vector<PresetEntry>, std::less<>> out;
    for (const Line& line : lines()) {
      auto rule = HostRule::parse(line.rule);
      // A preset in a preset could go round in circles; private hosts are nobody's preset.
      if (!rule || rule->kind() == HostRule::Kind::kPreset || rule->allows_private()) std::abort();
      out[line.preset].push_back({std::move(*rule), line.reason});
    }
    return out;
  }();
  static const std::vector<PresetEntry> none;
  const auto found = presets.find(name);
  return found == presets.end() ? none : found->second;
}

}  // namespace temenos
