// What host programs run by themselves in a directory that a box may write: found before a box
// starts, so that it can be made read-only, and again afterwards, so that what is new is reported.
//
// It reads names and kinds only, below one directory, never through a symlink, and runs nothing.
// The names come from a hostile tree: the walk is bounded, and what it returns must be escaped to
// be printed.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "temenos/error.h"

namespace temenos::box {

struct AutoexecRule {
  bool in_git_directory = false;  // else in every directory
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
    bool operator==(const Found&) const = default;
  };
  std::map<std::string, Found> found;  // by path below the directory
  bool complete = true;                // false: the tree is larger than the walk's bound
};

// `directory` is a descriptor (O_PATH will do).
Result<AutoexecScan> scan_autoexec(int directory);

// What is in `after` and not in `before`, or a symlink that leads elsewhere now.
std::map<std::string, AutoexecScan::Found> new_autoexec(const AutoexecScan& before,
                                                        const AutoexecScan& after);

}  // namespace temenos::box
