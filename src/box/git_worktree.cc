#include "box/git_worktree.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string_view>

#include "policy/paths.h"
#include "sys/file_sys.h"

namespace temenos::box {
namespace {

constexpr std::size_t kMaxPathFile = 8192;

// The one line of a file of git's, after `prefix`. Empty: no such file, or not of that form.
std::string line_of(int directory, const std::string& file, std::string_view prefix) {
  // A box may have made it a fifo or a link: neither is waited for or followed.
  const auto fd = sys::open_beneath(directory, file, O_RDONLY | O_NONBLOCK);
  struct stat st{};
  if (!fd || fstat(fd->get(), &st) != 0 || !S_ISREG(st.st_mode)) return "";
  std::string text = sys::read_all(fd->get(), kMaxPathFile).value_or("");
  if (!text.starts_with(prefix)) return "";
  text.erase(0, prefix.size());
  if (!text.empty() && text.back() == '\n') text.pop_back();
  if (text.find('\n') != std::string::npos || text.find('\0') != std::string::npos) return "";
  return text;
}

// A path of git's as an absolute, real one; relative ones start at `directory`.
std::string real_path(const std::string& path, const std::string& directory) {
  if (path.empty()) return "";
  return sys::resolve(path[0] == '/' ? path : directory + "/" + path).value_or("");
}

}  // namespace

std::optional<GitWorktree> find_git_worktree(const std::string& project) {
  const auto tree = sys::open_canonical(project);
  if (!tree) return std::nullopt;
  const std::string own = real_path(line_of(tree->get(), ".git", "gitdir: "), project);
  if (own.empty() || is_at_or_below(own, project)) return std::nullopt;
  // It must be COMMON/worktrees/NAME, say so itself, and name this worktree in return.
  const auto name_at = own.rfind('/');
  const std::string worktrees = own.substr(0, name_at);
  if (!worktrees.ends_with("/worktrees")) return std::nullopt;
  const std::string common = worktrees.substr(0, worktrees.rfind('/'));
  if (common.empty() || is_at_or_below(project, common)) return std::nullopt;

  auto common_fd = sys::open_canonical(common);
  struct stat st{};
  // Another user's repository may say what it likes.
  if (!common_fd || fstat(common_fd->get(), &st) != 0 || st.st_uid != geteuid())
    return std::nullopt;
  const std::string inside = own.substr(common.size() + 1);
  auto own_fd = sys::open_beneath(common_fd->get(), inside, O_PATH | O_DIRECTORY);
  if (!own_fd) return std::nullopt;
  if (real_path(line_of(own_fd->get(), "commondir", ""), own) != common) return std::nullopt;
  if (real_path(line_of(own_fd->get(), "gitdir", ""), own) != project + "/.git")
    return std::nullopt;

  GitWorktree found{{common, std::move(*common_fd)}, {}};
  found.written.push_back({own, std::move(*own_fd)});
  for (const char* part : {"objects", "refs", "logs"}) {
    auto fd = sys::open_beneath(found.common.fd.get(), part, O_PATH | O_DIRECTORY);
    if (fd) found.written.push_back({common + "/" + part, std::move(*fd)});
  }
  return found;
}

}  // namespace temenos::box
