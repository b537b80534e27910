// Where the source of a mount really lies.
//
// People's own symlinks are followed, as every program does. One that a box may have made is not: a
// box that can write `./out` could put a link to ~/.ssh in its place, and the next run would mount
// that. So no link is followed that lies in a place a box of this policy may write, or in any git
// repository (boxes write in those).
#pragma once

#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "temenos/error.h"
#include "temenos/volume.h"

namespace temenos::box {

struct Opened {
  std::string path;  // real
  UniqueFd fd;       // O_PATH
};

class SourcePaths {
 public:
  // `home` is the user's; a repository there (dotfiles) makes not all of it suspect.
  explicit SourcePaths(std::string home) : home_(std::move(home)) {}

  // A place that a box may write: from now on links in it are not followed.
  void add_writable(std::string real_path) { writable_.push_back(std::move(real_path)); }

  // `path` is absolute. It must exist.
  Result<Opened> open(const std::string& path) const;
  // What `volume` names, made where it asks for that; below its allowed root no link at all is
  // followed.
  Result<Opened> open(const DiskVolume& volume) const;

 private:
  Result<std::string> resolve(const std::string& path) const;
  bool may_be_of_a_box(const std::string& directory) const;
  Result<Opened> open_below_root(const DiskVolume& volume) const;

  std::string home_;
  std::vector<std::string> writable_;
};

}  // namespace temenos::box
