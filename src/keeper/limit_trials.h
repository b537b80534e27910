// What `temenos-keeper --try-limits SCOPE-PROGRAM` prints: the drivers of this host, tried by a
// process that is like a keeper (one thread, the caller's rights), for the library to choose one.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cgroup/trial.h"
#include "temenos/error.h"

namespace temenos::keeper {

inline constexpr char kTryLimits[] = "--try-limits";

std::string trials_to_json(const std::vector<cgroup::Trial>& trials);
Result<std::vector<cgroup::Trial>> trials_from_json(std::string_view text);

// The whole of it. SIGTERM gives it up, with nothing left of what it had begun.
int try_limits_main(const std::string& scope_program);

}  // namespace temenos::keeper
