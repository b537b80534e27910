// What an edit of a box's allowlist makes of it, and what is said of it: decisions only.
//
// Thread-safety: plain functions.
#pragma once

#include <string>
#include <vector>

#include "temenos/error.h"
#include "temenos/network.h"

namespace temenos::box {

using Rules = std::vector<HostRule>;

// kInvalidArgument: none, or one that is no entry.
Result<Rules> parse_entries(const std::vector<std::string>& entries);
Rules with_entries(const Rules& list, const Rules& more);
// kNotFound for the first that is not in the list: what is there instead, and which entries allow
// it.
Result<Rules> without_entries(const Rules& list, const Rules& less);
// What was denied and other entries of `list` still allow, a sentence each.
std::vector<std::string> still_allowed(const Rules& list, const Rules& denied);
// One a line, in canonical form: as keeper hands them to dialer.
std::string lines_of(const Rules& list);

}  // namespace temenos::box
