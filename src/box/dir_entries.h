// Names and kinds in a directory of a tree that a box may write in.
#pragma once

#include <string>
#include <vector>

#include "temenos/error.h"

namespace temenos::box {

struct DirEntry {
  std::string name;
  unsigned char type;  // DT_*, never DT_UNKNOWN for what is still there
};

// Of `path` below `root`, never through a symlink; "." and ".." left out. At most `limit` and one
// more, by which the caller knows that there are more.
Result<std::vector<DirEntry>> read_entries(int root, const std::string& path, std::size_t limit);

}  // namespace temenos::box
