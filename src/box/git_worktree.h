// A linked git worktree's real repository lies outside of it (git-worktree(1)): its index, objects
// and refs are in the main repository's git directory. Found here so that git works in a box on a
// worktree, without handing over more of the main repository than that.
//
// The worktree's ".git" file may have been written by a box: it is believed only when the place
// that it names, which no box on this worktree alone can write, names the worktree in return. A box
// on the main repository can write there, so nothing is looked up twice: what was checked is what
// the descriptors are.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "box/source_path.h"

namespace temenos::box {

struct GitWorktree {
  Opened common;  // the main repository's git directory: to be seen, read-only
  std::vector<Opened>
      written;  // what git writes of it: objects, refs, logs, and the worktree's own
};

// Nothing when `project` (absolute, no symlink) is no linked worktree, or its claim does not hold.
std::optional<GitWorktree> find_git_worktree(const std::string& project);

}  // namespace temenos::box
