#include "box/git_worktree.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string_view>

#include "base/unique_fd.h"
#include "policy/paths.h"
#include "sys/file_sys.h"

namespace temenos::box {
namespace {

constexpr std::size_t kMaxPathFile = 8192;

// The real path that a file of git's names on its one line; relative ones start at the file's
// directory. Empty: no such file, not of that form, or it leads nowhere.
std::string named_path(const std::string& file, std::string_view prefix) {
  // A box may have made it a fifo or a link; neither is opened.
  const UniqueFd fd(open(file.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  struct stat st{};
  if (!fd || fstat(fd.get(), &st) != 0 || !S_ISREG(st.st_mode)) return "";
  std::string text = sys::read_all(fd.get(), kMaxPathFile).value_or("");
  if (text.compare(0, prefix.size(), prefix) != 0) return "";
  text.erase(0, prefix.size());
  if (!text.empty() && text.back() == '\n') text.pop_back();
  if (text.empty() || text.find('\n') != std::string::npos ||
      text.find('\0') != std::string::npos) {
    return "";
  }
  if (text[0] != '/') text = file.substr(0, file.rfind('/') + 1) + text;
  return sys::resolve(text).value_or("");
}

}  // namespace

std::optional<GitWorktree> find_git_worktree(const std::string& project) {
  const std::string own = named_path(project + "/.git", "gitdir: ");
  if (own.empty() || is_at_or_below(own, project)) return std::nullopt;
  // It must be COMMON/worktrees/NAME, say so itself, and name this worktree in return.
  const auto name_at = own.rfind('/');
  const std::string worktrees = own.substr(0, name_at);
  if (!worktrees.ends_with("/worktrees")) return std::nullopt;
  const std::string common = worktrees.substr(0, worktrees.rfind('/'));
  if (common.empty() || is_at_or_below(project, common)) return std::nullopt;
  if (named_path(own + "/commondir", "") != common) return std::nullopt;
  if (named_path(own + "/gitdir", "") != project + "/.git") return std::nullopt;
  GitWorktree found{common, {own}};
  for (const char* part : {"objects", "refs", "logs"}) {
    const std::string path = common + "/" + part;
    struct stat st{};
    if (lstat(path.c_str(), &st) == 0 && S_ISDIR(st.st_mode)) found.written.push_back(path);
  }
  return found;
}

}  // namespace temenos::box
