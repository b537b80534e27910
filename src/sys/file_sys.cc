#include "sys/file_sys.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "base/scope_exit.h"
#include "base/text.h"
#include "base/try.h"

namespace temenos::sys {
namespace {

constexpr std::uint64_t kNoLinks = RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS;

Result<UniqueFd> open2(int dir_fd, const std::string& path, int flags, mode_t mode,
                       std::uint64_t resolve) {
  open_how how{};
  how.flags = static_cast<std::uint64_t>(flags | O_CLOEXEC);
  how.mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? mode : 0;
  how.resolve = resolve;
  for (;;) {
    const long fd = syscall(SYS_openat2, dir_fd, path.c_str(), &how, sizeof how);
    if (fd >= 0) return UniqueFd(static_cast<int>(fd));
    // EAGAIN: a rename elsewhere made the kernel unsure; it asks for another try (openat2(2)).
    if (errno != EAGAIN && errno != EINTR) return fail_errno(errno, "opening " + path);
  }
}

struct DirCloser {
  void operator()(DIR* dir) const { closedir(dir); }
};
using Dir = std::unique_ptr<DIR, DirCloser>;

Result<Dir> open_dir(int parent, const std::string& name) {
  // O_NOFOLLOW on one component: nothing to escape through.
  const int fd = openat(parent, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) return fail_errno(errno, "opening directory " + escape(name));
  DIR* dir = fdopendir(fd);
  if (dir == nullptr) {
    close(fd);
    return fail_errno(errno, "reading directory " + escape(name));
  }
  return Dir(dir);
}

bool dot_or_dotdot(const char* name) { return strcmp(name, ".") == 0 || strcmp(name, "..") == 0; }

// unlinkat(2) of a file or an empty directory; gone already counts as removed, because another
// remover (a sweep, a keeper that was given up) may be at work on the same tree.
bool remove_one(int parent, const char* name) {
  return unlinkat(parent, name, 0) == 0 || errno == ENOENT ||
         unlinkat(parent, name, AT_REMOVEDIR) == 0 || errno == ENOENT;
}

bool no_room(int err) { return err == ENOSPC || err == EDQUOT || err == EMLINK; }

// Removes what is below `child` where it lies, with two descriptors however deep: the way back is
// "..", and never above `child`. Nobody but other removers is at work in the tree.
Result<void> empty_in_place(int child) {
  Dir at = TRY(open_dir(child, "."));
  for (std::size_t depth = 0;;) {
    std::string into;
    rewinddir(at.get());
    while (const dirent* entry = readdir(at.get())) {
      if (dot_or_dotdot(entry->d_name) || remove_one(dirfd(at.get()), entry->d_name)) continue;
      if (errno != ENOTEMPTY) return fail_errno(errno, "removing " + escape(entry->d_name));
      into = entry->d_name;  // the files of this directory go first: they give room
    }
    if (into.empty() && depth == 0) return {};
    const std::string next = into.empty() ? ".." : into;
    depth = into.empty() ? depth - 1 : depth + 1;
    at = TRY(open_dir(dirfd(at.get()), next));
  }
}

// Removes what is in the directory `name` of `top`. A directory that is not empty is moved up into
// `top` under a name that the content cannot know, and comes round again: depth costs neither stack
// nor descriptors.
Result<void> empty_child(int top, const char* name) {
  const auto child = open_dir(top, name);
  if (!child) {
    if (child.error().sys_errno == ENOENT) return {};
    return tl::make_unexpected(child.error());
  }
  const int child_fd = dirfd(child->get());
  while (const dirent* inner = readdir(child->get())) {
    if (dot_or_dotdot(inner->d_name) || remove_one(child_fd, inner->d_name)) continue;
    const std::string fresh = ".removing-" + random_hex(16);
    if (renameat2(child_fd, inner->d_name, top, fresh.c_str(), RENAME_NOREPLACE) == 0) continue;
    // A full disk has no room for another name in `top`.
    if (no_room(errno)) return empty_in_place(child_fd);
    if (errno != ENOENT) return fail_errno(errno, "removing " + escape(inner->d_name));
  }
  return {};
}

Result<void> empty_directory(const Dir& top) {
  const int top_fd = dirfd(top.get());
  for (;;) {
    bool found = false;
    rewinddir(top.get());
    while (const dirent* entry = readdir(top.get())) {
      if (dot_or_dotdot(entry->d_name)) continue;
      found = true;
      if (remove_one(top_fd, entry->d_name)) continue;
      TRY(empty_child(top_fd, entry->d_name));
      // Not empty: readdir may have missed what was there; the next round sees it.
      if (!remove_one(top_fd, entry->d_name) && errno != ENOTEMPTY) {
        return fail_errno(errno, "removing " + escape(entry->d_name));
      }
    }
    if (!found) return {};
  }
}

}  // namespace

Result<UniqueFd> open_beneath(int dir_fd, const std::string& path, int flags, mode_t mode) {
  return open2(dir_fd, path, flags, mode, RESOLVE_BENEATH | kNoLinks);
}

Result<UniqueFd> open_canonical(const std::string& path) {
  return open2(AT_FDCWD, path, O_PATH, 0, kNoLinks);
}

Result<std::string> resolve(const std::string& path) {
  char* real = realpath(path.c_str(), nullptr);
  if (real == nullptr) return fail_errno(errno, escape(path));
  std::string out(real);
  free(real);
  return out;
}

Result<struct stat> stat_fd(int fd) {
  struct stat st{};
  if (fstat(fd, &st) != 0) return fail_errno(errno, "fstat");
  return st;
}

Result<bool> same_file(int a, int b) {
  const struct stat sa = TRY(stat_fd(a));
  const struct stat sb = TRY(stat_fd(b));
  return sa.st_dev == sb.st_dev && sa.st_ino == sb.st_ino;
}

Result<UniqueFd> make_directories(int dir_fd, const std::string& path, mode_t mode) {
  UniqueFd current = TRY(open_beneath(dir_fd, ".", O_PATH | O_DIRECTORY));
  for (const auto& name : split(path, '/')) {
    if (name.empty()) continue;
    if (mkdirat(current.get(), name.c_str(), mode) != 0 && errno != EEXIST) {
      return fail_errno(errno, "making directory " + escape(path));
    }
    current = TRY(open_beneath(current.get(), name, O_PATH | O_DIRECTORY));
  }
  return current;
}

Result<UniqueFd> make_directories(const std::string& absolute, mode_t mode) {
  const UniqueFd root(open("/", O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!root) return fail_errno(errno, "opening /");
  return make_directories(root.get(), absolute, mode);
}

Result<void> write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = write(fd, bytes.data(), bytes.size());
    if (n < 0) {
      if (errno == EINTR) continue;
      return fail_errno(errno, "writing");
    }
    bytes.remove_prefix(static_cast<std::size_t>(n));
  }
  return {};
}

Result<void> write_new_file(int dir_fd, const std::string& path, std::string_view bytes,
                            mode_t mode) {
  const UniqueFd fd = TRY(open_beneath(dir_fd, path, O_WRONLY | O_CREAT | O_EXCL, mode));
  return write_all(fd.get(), bytes);
}

Result<std::string> read_all(int fd, std::size_t limit) {
  std::string out;
  char buffer[16384];
  for (;;) {
    const ssize_t n = read(fd, buffer, sizeof buffer);
    if (n < 0) {
      if (errno == EINTR) continue;
      return fail_errno(errno, "reading");
    }
    if (n == 0) return out;
    if (out.size() + static_cast<std::size_t>(n) > limit) {
      return fail(Code::kExhausted, "file larger than " + std::to_string(limit) + " bytes");
    }
    out.append(buffer, static_cast<std::size_t>(n));
  }
}

Result<std::string> read_path(const std::string& path, std::size_t limit) {
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return fail_errno(errno, "opening " + escape(path));
  return read_all(fd.get(), limit);
}

Result<std::vector<std::string>> list_names(int dir_fd, std::size_t limit) {
  UniqueFd again = TRY(open_beneath(dir_fd, ".", O_RDONLY | O_DIRECTORY));
  DIR* raw = fdopendir(again.get());
  if (raw == nullptr) return fail_errno(errno, "reading directory");
  again.release();
  const Dir dir(raw);
  std::vector<std::string> names;
  while (const dirent* entry = readdir(dir.get())) {
    if (dot_or_dotdot(entry->d_name)) continue;
    if (names.size() == limit) {
      return fail(Code::kExhausted, "directory with more than " + std::to_string(limit) + " names");
    }
    names.emplace_back(entry->d_name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

Result<void> remove_tree(int dir_fd, const std::string& name) {
  if (remove_one(dir_fd, name.c_str())) return {};
  if (errno != ENOTEMPTY) return fail_errno(errno, "removing " + escape(name));
  const auto dir = open_dir(dir_fd, name);
  if (!dir) {
    if (dir.error().sys_errno == ENOENT) return {};
    return tl::make_unexpected(dir.error());
  }
  TRY(empty_directory(*dir));
  if (!remove_one(dir_fd, name.c_str())) return fail_errno(errno, "removing " + escape(name));
  return {};
}

Result<UniqueFd> sealed_memory(const char* name, std::string_view bytes) {
  UniqueFd fd(memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd) return fail_errno(errno, "memfd_create");
  TRY(write_all(fd.get(), bytes));
  if (lseek(fd.get(), 0, SEEK_SET) != 0 ||
      fcntl(fd.get(), F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL) != 0) {
    return fail_errno(errno, "sealing a memory file");
  }
  return fd;
}

}  // namespace temenos::sys
