// Which directory is "the project" for a command that is started somewhere.
#pragma once

#include <string>

#include "temenos/error.h"

namespace temenos::box {

// The nearest directory at or above `start` (absolute, no symlink) that is the root of a git
// repository, whoever made it; empty when there is none. Never `/` and never the home directory: a
// repository there (dotfiles) is no reason to hand all of it to a box.
std::string find_project(const std::string& start, const std::string& home);

// The same for mounting it: a repository that another user made (in /tmp, say) is an error, as it
// is for git (safe.directory). Root may use its own and those of the user who called sudo.
Result<std::string> own_project(const std::string& start, const std::string& home);

}  // namespace temenos::box
