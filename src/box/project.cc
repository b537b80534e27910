#include "box/project.h"

#include <sys/stat.h>

namespace temenos::box {

std::string find_project(const std::string& start, const std::string& home) {
  for (std::string directory = start; directory.size() > 1;
       directory = directory.substr(0, directory.rfind('/'))) {
    if (directory == home) return "";
    struct stat st{};
    // A directory, or a file in a worktree or submodule. lstat: a symlink is not followed anywhere.
    if (lstat((directory + "/.git").c_str(), &st) == 0 &&
        (S_ISDIR(st.st_mode) || S_ISREG(st.st_mode))) {
      return directory;
    }
  }
  return "";
}

}  // namespace temenos::box
