// What the drivers of this host are worth: each is tried.
//
// Thread-safety: none; from a process with one thread.
#pragma once

#include <string>
#include <vector>

#include "cgroup/driver.h"

namespace temenos::cgroup {

// What a driver keeps here, seen to bite: a process in a group that is made for it reaches each
// limit.
struct Trial {
  Driver driver = Driver::kNone;
  Controls controls;
  std::string why;         // what is missing
  std::string fix;         // a command
  bool no_answer = false;  // it was given up, and may do better another time
};
// In the order of preference, those that can matter to this user. Takes up to half a second, with a
// bus that hangs five. Given up, with nothing left of it, once `stop_fd` is readable.
std::vector<Trial> try_drivers(const std::string& scope_program, int stop_fd = -1);
// The one to use: the first that keeps everything, else the first that keeps most. kNone when none
// does anything.
Trial best_of(const std::vector<Trial>& trials);

}  // namespace temenos::cgroup
