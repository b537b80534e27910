// A linked git worktree's real repository lies outside of it (git-worktree(1)): its index, objects
// and refs are in the main repository's git directory. Found here so that git works in a box on a
// worktree, without handing over more of the main repository than that.
//
// The worktree's ".git" file may have been written by a box: it is believed only when the place
// that it names, which no box on this worktree alone can write, names the worktree in return.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace temenos::box {

struct GitWorktree {
  std::string common;  // the main repository's git directory: to be seen, read-only
  std::vector<std::string>
      written;  // what git writes of it, each existing: objects, refs, logs, and its own
};

// Nothing when `project` (absolute, no symlink) is no linked worktree, or its claim does not hold.
std::optional<GitWorktree> find_git_worktree(const std::string& project);

}  // namespace temenos::box
