#include "box/project.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "base/text.h"

namespace temenos::box {
namespace {

// Who called sudo; root's own id when nobody did.
uid_t sudo_user() {
  const char* text = getenv("SUDO_UID");
  char* end = nullptr;
  const unsigned long uid = text != nullptr ? strtoul(text, &end, 10) : 0;
  return end != nullptr && end != text && *end == '\0' ? static_cast<uid_t>(uid) : 0;
}

}  // namespace

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

Result<std::string> own_project(const std::string& start, const std::string& home) {
  const std::string project = find_project(start, home);
  if (project.empty()) return project;
  for (const std::string& path : {project, project + "/.git"}) {
    struct stat st{};
    if (lstat(path.c_str(), &st) != 0)
      return fail_errno(errno, "cannot use the project " + escape(project));
    if (st.st_uid == geteuid() || (geteuid() == 0 && st.st_uid == sudo_user())) continue;
    return fail(Code::kPermissionDenied,
                escape(path) + " belongs to another user (uid " + std::to_string(st.st_uid) +
                    "), so it is not taken for your project",
                "leave it out with --no-project, or mount what you need with --write DIR");
  }
  return project;
}

}  // namespace temenos::box
