// How many boxes of a user start at the same time. A start is mostly work of the CPU, with a limit
// of time; fifty at once on two CPUs would come close to it, and the last one is not ready a moment
// earlier than when they go one after another.
//
// Thread-safety: plain functions; places hold between processes.
#pragma once

#include <chrono>
#include <string>

#include "base/unique_fd.h"
#include "temenos/error.h"

namespace temenos::store {

// A place among those that may start now; it is given back with the descriptor, also by death.
// Waits for at most `patience` (kExhausted), or until `cancel_fd` is readable (kBoxDied). The
// places are files in `directory`, which is made where missing; there are `places` of them.
Result<UniqueFd> wait_to_start(const std::string& directory, unsigned places,
                               std::chrono::milliseconds patience, int cancel_fd);

}  // namespace temenos::store
