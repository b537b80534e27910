// The presets of an allowlist, @npm and others: the hosts that a well-known tool needs, from
// presets.list, which is compiled in. A preset is written in a policy by its name and becomes its
// rules when the list is loaded (egress/judge.h), so an update of temenos updates it.
//
// Thread-safety: pure functions of constant data.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "temenos/network.h"

namespace temenos {

struct PresetEntry {
  HostRule rule;
  std::string reason;
};

// Sorted, without "@".
const std::vector<std::string>& preset_names();
bool is_preset(std::string_view name);
// Empty for a name that is none.
const std::vector<PresetEntry>& preset_entries(std::string_view name);

}  // namespace temenos
