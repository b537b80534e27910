// What host programs run by themselves in a directory that a box may write: found before a box
// starts, so that it can be made read-only, and again afterwards, so that what is new is reported.
//
// It reads names and kinds only, below one directory, never through a symlink, and runs nothing;
// what the files found name and lead to is autoexec_follow.h.
// The names come from a hostile tree: the walk is bounded, and what it returns must be escaped to
// be printed.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "temenos/error.h"

namespace temenos::box {

struct AutoexecRule {
  bool in_git_directory = false;  // else in every directory
  bool only_reported = false;     // git itself writes it in a box, so it cannot be read-only
  std::string name;
  std::string reason;
};
// autoexec.list, as compiled in.
const std::vector<AutoexecRule>& autoexec_rules();

struct AutoexecScan {
  struct Found {
    std::string reason;
    bool symlink = false;
    std::string link_target;  // text of the symlink
    bool only_reported = false;
    // Of what is only reported: differs when it was changed. Of what is protected: when the name
    // was given to another file (set by look_for_autoexec()).
    std::string state;
    std::string named_by;  // path of what names it or leads to it; empty: it has a rule
    bool is_protected() const { return !symlink && !only_reported; }
    bool operator==(const Found&) const = default;
  };
  std::map<std::string, Found> found;  // by path below the directory
  bool complete = true;                // false: the tree is larger than the walk's bound

  // Paths below the directory; "." is itself.
  std::set<std::string> git_directories;
  std::set<std::string> worktrees;  // what has a ".git"
  std::set<std::string> closed;     // directories that could not be read

  // Of follow_autoexec():
  std::set<std::string> sha256;      // git directories whose hashes are SHA-256
  std::vector<std::string> trouble;  // for the user: what could not be looked at, one line each
};

// `directory` is a descriptor (O_PATH will do).
Result<AutoexecScan> scan_autoexec(int directory);

// What is in `after` and not in `before`, or is a symlink that leads elsewhere now, or was changed.
std::map<std::string, AutoexecScan::Found> new_autoexec(const AutoexecScan& before,
                                                        const AutoexecScan& after);

}  // namespace temenos::box
