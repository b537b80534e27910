#include "box/source_path.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <deque>

#include "base/text.h"
#include "base/try.h"
#include "box/project.h"
#include "policy/paths.h"
#include "sys/file_sys.h"

namespace temenos::box {
namespace {

constexpr int kMaxLinks = 40;  // as the kernel (path_resolution(7))

void put_in_front(const std::string& path, std::deque<std::string>& todo) {
  auto parts = split(path, '/');
  todo.insert(todo.begin(), parts.begin(), parts.end());
}

Result<std::string> read_link(const std::string& path) {
  char target[PATH_MAX];
  const ssize_t n = readlink(path.c_str(), target, sizeof target);
  if (n <= 0) return fail_errno(errno, "cannot mount " + escape(path), "give a path that exists");
  return std::string(target, static_cast<std::size_t>(n));
}

Result<Opened> open_real(std::string path) {
  UniqueFd fd = TRY(sys::open_canonical(path));
  return Opened{std::move(path), std::move(fd)};
}

}  // namespace

bool SourcePaths::may_be_of_a_box(const std::string& directory) const {
  return std::any_of(writable_.begin(), writable_.end(),
                     [&](const std::string& root) { return is_at_or_below(directory, root); }) ||
         !find_project(directory, home_).empty();
}

Result<std::string> SourcePaths::resolve(const std::string& path) const {
  std::deque<std::string> todo;
  put_in_front(path, todo);
  std::string at;  // real; empty is the root
  for (int links = 0; !todo.empty();) {
    const std::string name = std::move(todo.front());
    todo.pop_front();
    if (name.empty() || name == ".") continue;
    if (name == "..") {
      at.erase(at.empty() ? 0 : at.rfind('/'));
      continue;
    }
    const std::string next = at + "/" + name;
    struct stat st{};
    if (lstat(next.c_str(), &st) != 0) {
      return fail_errno(errno, "cannot mount " + escape(path), "give a path that exists");
    }
    if (!S_ISLNK(st.st_mode)) {
      at = next;
      continue;
    }
    if (may_be_of_a_box(at.empty() ? "/" : at)) {
      return fail(Code::kPolicyViolation,
                  "cannot mount " + escape(path) + ": " + escape(next) +
                      " is a symlink in a place where boxes write",
                  "look where it leads, and mount that by its own path");
    }
    if (++links > kMaxLinks)
      return fail_errno(ELOOP, "cannot mount " + escape(path), "name its end");
    const std::string target = TRY(read_link(next));
    if (target[0] == '/') at.clear();
    put_in_front(target, todo);
  }
  return at.empty() ? std::string("/") : at;
}

Result<Opened> SourcePaths::open(const std::string& path) const {
  // Opened without symlinks: what was put in its place meanwhile is an error, not followed.
  return open_real(TRY(resolve(path)));
}

Result<Opened> SourcePaths::open_below_root(const DiskVolume& volume) const {
  const Opened root = TRY(open(volume.allowed_root));
  const std::string& wanted = volume.host_dir;
  // What the user wrote may pass through links above the root; below it the kernel's own walk finds
  // none.
  std::string inside;
  for (const std::string& prefix : {volume.allowed_root, root.path}) {
    if (is_at_or_below(wanted, prefix)) {
      inside = wanted.size() == prefix.size() ? "." : wanted.substr(prefix.size() + 1);
      break;
    }
  }
  if (inside.empty()) {
    return fail(Code::kPolicyViolation,
                "the volume " + escape(wanted) + " is not below its allowed root " +
                    escape(volume.allowed_root),
                "choose a directory below it");
  }
  auto fd = volume.create ? sys::make_directories(root.fd.get(), inside, 0755)
                          : sys::open_beneath(root.fd.get(), inside, O_PATH | O_DIRECTORY);
  if (!fd) {
    const bool link = fd.error().sys_errno == ELOOP || fd.error().sys_errno == EXDEV;
    return tl::make_unexpected(
        std::move(fd)
            .error()
            .with_context("the volume " + escape(wanted))
            .with_hint(link ? "below its allowed root a volume's path may have no symlink in it"
                            : "make the directory, or let the volume be created"));
  }
  return Opened{inside == "." ? root.path : root.path + "/" + inside, std::move(*fd)};
}

Result<Opened> SourcePaths::open(const DiskVolume& volume) const {
  if (!volume.allowed_root.empty()) return open_below_root(volume);
  if (!volume.create) return open(volume.host_dir);
  // The levels that are there, by the rule for links; the rest is made below them.
  std::string there = volume.host_dir;
  std::string missing;
  for (struct stat st{}; there.size() > 1 && lstat(there.c_str(), &st) != 0 && errno == ENOENT;) {
    const auto slash = there.rfind('/');
    missing = there.substr(slash + 1) + (missing.empty() ? "" : "/") + missing;
    there = slash == 0 ? "/" : there.substr(0, slash);
  }
  Opened base = TRY(open(there));
  if (missing.empty()) return base;
  auto fd = sys::make_directories(base.fd.get(), missing, 0755);
  if (!fd)
    return tl::make_unexpected(std::move(fd).error().with_hint("make the directory yourself"));
  return Opened{(base.path == "/" ? "" : base.path) + "/" + missing, std::move(*fd)};
}

}  // namespace temenos::box
