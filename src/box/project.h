// Which directory is "the project" for a command that is started somewhere.
#pragma once

#include <string>

#include "temenos/error.h"

namespace temenos::box {

// The nearest directory at or above `start` (absolute, no symlink) that is the root of a git
// repository; empty when there is none. Never `/` and never the home directory: a repository there
// (dotfiles) is no reason to hand all of it to a box.
std::string find_project(const std::string& start, const std::string& home);

}  // namespace temenos::box
