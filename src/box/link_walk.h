// Where a path leads, symlink by symlink, seen from a directory that a box may write in. The kernel
// follows nothing for us there: each component is opened by itself, so every link on the way is
// known. Links, names and depth are hostile; steps are bounded. Thread-safe.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace temenos::box {

struct LinkWalk {
  enum class End {
    kFile,       // regular
    kDirectory,  // `path` "." is the root itself
    kOther,      // fifo, socket, device
    kMissing,    // would have to be made at `path`
    kOutside,    // not below the root; `path` is absolute and real, empty when nothing is there
    kUnknown,    // a loop, too many steps, or not to be looked at
  };
  End end = End::kUnknown;
  std::string path;                                        // below the root but for kOutside
  std::vector<std::pair<std::string, std::string>> links;  // path below the root, its text
};

// `root` is a descriptor of the directory `source` (absolute, no symlink in it); `path` is relative
// to it or absolute. `steps` is what may still be opened, and is counted down.
LinkWalk walk_links(int root, const std::string& source, const std::string& path,
                    std::size_t& steps);

// "a/b" from "a" and "b"; "." is no prefix.
std::string join_path(const std::string& directory, const std::string& name);
// The directory that `path` lies in; "." for one without a slash.
std::string directory_of(const std::string& path);

}  // namespace temenos::box
