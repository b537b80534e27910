#include "disk/use.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <set>

#include "base/text.h"
#include "base/try.h"
#include "sys/file_sys.h"

namespace temenos::disk {
namespace {

constexpr std::uint64_t kBlock = 512;  // of st_blocks, whatever the file system's
constexpr std::size_t kMaxProcFile = 4096;
constexpr std::size_t kMaxProcNames = 1u << 20;
constexpr std::size_t kMaxTasks = 1u << 16;
// Beyond that many a file counts for each of its descriptors.
constexpr std::size_t kMaxNameless = 1u << 16;
constexpr std::chrono::milliseconds kStandStill{5};
constexpr unsigned kExiting = 4;  // PF_EXITING, see proc_pid_stat(5)

bool dot_or_dotdot(const char* name) { return strcmp(name, ".") == 0 || strcmp(name, "..") == 0; }

// One directory at a time is open. The way back is "..", to the place in the parent at which it was
// left; who finds another directory there has been moved.
class Walk {
 public:
  Walk(UniqueFd top, std::uint64_t max_files, int cancel_fd)
      : here_(std::move(top)), max_files_(max_files), cancel_fd_(cancel_fd) {}

  Result<Use> run() {
    const struct stat st = TRY(sys::stat_fd(here_.get()));
    device_ = st.st_dev;
    inode_ = st.st_ino;
    count(st);
    for (;;) {
      const bool down = TRY(read_on());
      if (use_.files > max_files_) return use_;
      if (!down && above_.empty()) return use_;
      if (!down) TRY(go_up());
    }
  }

 private:
  struct Level {
    ino_t inode;
    off_t next;
  };

  void count(const struct stat& st) {
    const auto bytes = static_cast<std::uint64_t>(st.st_blocks) * kBlock;
    const std::uint64_t names = S_ISDIR(st.st_mode) || st.st_nlink == 0 ? 1 : st.st_nlink;
    use_.bytes += (bytes + names - 1) / names;
    ++use_.files;
  }

  // Counts what is here from where it was left; true when it has gone down into a directory.
  Result<bool> read_on() {
    // Small: what lies in it after a directory is read again on the way back.
    alignas(dirent64) char buffer[4096];
    for (;;) {
      const ssize_t n = getdents64(here_.get(), buffer, sizeof buffer);
      if (n < 0 && errno == ENOENT) return false;  // it has been removed
      if (n < 0) return fail_errno(errno, "reading a directory of the box");
      if (n == 0) return false;
      pollfd cancel{cancel_fd_, POLLIN, 0};
      if (cancel_fd_ >= 0 && poll(&cancel, 1, 0) != 0) return disturbed();
      for (ssize_t at = 0; at < n;) {
        const auto* entry = reinterpret_cast<const dirent64*>(buffer + at);
        at += entry->d_reclen;
        if (dot_or_dotdot(entry->d_name)) continue;
        struct stat st{};
        if (fstatat(here_.get(), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0) {
          if (errno == ENOENT) continue;
          return fail_errno(errno, "looking at a file of the box");
        }
        if (st.st_dev != device_) continue;
        count(st);
        if (use_.files > max_files_) return false;
        if (S_ISDIR(st.st_mode) && TRY(go_down(*entry, st.st_ino))) return true;
      }
    }
  }

  Result<bool> go_down(const dirent64& entry, ino_t inode) {
    // One component, no symlink: nothing to escape through.
    UniqueFd child(openat(here_.get(), entry.d_name,
                          O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
    if (!child) {
      if (errno == ENOENT || errno == ENOTDIR || errno == ELOOP) return false;
      return fail_errno(errno, "opening a directory of the box");
    }
    const struct stat st = TRY(sys::stat_fd(child.get()));
    if (st.st_ino != inode || st.st_dev != device_) return disturbed();
    above_.push_back({inode_, entry.d_off});
    here_ = std::move(child);
    inode_ = inode;
    return true;
  }

  Result<void> go_up() {
    const Level level = above_.back();
    above_.pop_back();
    UniqueFd parent(openat(here_.get(), "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!parent) return disturbed();
    const struct stat st = TRY(sys::stat_fd(parent.get()));
    if (st.st_ino != level.inode || st.st_dev != device_) return disturbed();
    if (lseek(parent.get(), level.next, SEEK_SET) < 0) return fail_errno(errno, "lseek");
    here_ = std::move(parent);
    inode_ = level.inode;
    return {};
  }

  static tl::unexpected<Error> disturbed() {
    return fail(Code::kConflict, "directories of the box were moved while they were counted",
                "try again");
  }

  UniqueFd here_;
  ino_t inode_ = 0;
  dev_t device_ = 0;
  std::uint64_t max_files_;
  int cancel_fd_;
  std::vector<Level> above_;
  Use use_;
};

// It has ended between a look and the next.
bool is_gone(const Error& error) { return error.sys_errno == ENOENT || error.sys_errno == ESRCH; }

struct Stat {
  char state = 'X';
  int parent = 0;
  unsigned flags = 0;
};
// Of the text of /proc/PID/stat: what comes after the name, which may hold anything. Nothing: it
// has ended.
Result<std::optional<Stat>> read_stat(int process, const std::string& path) {
  const auto fd = sys::open_beneath(process, path, O_RDONLY);
  const auto text = fd ? sys::read_all(fd->get(), kMaxProcFile) : tl::make_unexpected(fd.error());
  if (!text && !is_gone(text.error())) return tl::make_unexpected(text.error());
  const auto end = text ? text->rfind(')') : std::string::npos;
  Stat stat;
  if (end == std::string::npos || sscanf(text->c_str() + end, ") %c %d %*d %*d %*d %*d %u",
                                         &stat.state, &stat.parent, &stat.flags) != 3) {
    return std::nullopt;
  }
  return stat;
}

// Of all its threads; also of one that has ended.
template <typename Predicate>
bool holds_of_tasks(int process, Predicate predicate) {
  const auto tasks = sys::open_beneath(process, "task", O_RDONLY | O_DIRECTORY);
  if (!tasks) return is_gone(tasks.error());
  const auto names = sys::list_names(tasks->get(), kMaxTasks);
  if (!names) return is_gone(names.error());
  for (const auto& name : *names) {
    const auto stat = read_stat(tasks->get(), name + "/stat");
    if (!stat || (*stat && !predicate(**stat))) return false;
  }
  return true;
}

bool stands_still(int process) {
  return holds_of_tasks(process,
                        [](const Stat& stat) { return strchr("TtZX", stat.state) != nullptr; });
}

// That nobody is shown what it has open, because it is about to close that.
bool is_exiting(int process, int error) {
  return error == EACCES &&
         holds_of_tasks(process, [](const Stat& stat) { return (stat.flags & kExiting) != 0; });
}

void signal_all(const std::vector<UniqueFd>& processes, int number) {
  // A directory of /proc is as good as a pidfd: never another process of the same number.
  for (const auto& process : processes) {
    (void)syscall(SYS_pidfd_send_signal, process.get(), number, nullptr, 0);
  }
}

std::string megabytes(std::uint64_t bytes) {
  return std::to_string((bytes + (1u << 20) - 1) >> 20) + " MiB";
}

}  // namespace

std::string describe(const Use& use) {
  return megabytes(use.bytes) + " (" + std::to_string(use.files) + " files)";
}

std::string describe(const Limit& limit) {
  return megabytes(limit.bytes) + " (" + std::to_string(limit.files) + " files)";
}

Result<Use> use_of_tree(int directory, std::uint64_t max_files, int cancel_fd) {
  UniqueFd top = TRY(sys::open_beneath(directory, ".", O_RDONLY | O_DIRECTORY));
  return Walk(std::move(top), max_files, cancel_fd).run();
}

Result<std::vector<UniqueFd>> sandbox_processes() {
  const UniqueFd proc(open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!proc) return fail_errno(errno, "opening /proc");
  std::map<int, int> parents;
  for (const auto& name : TRY(sys::list_names(proc.get(), kMaxProcNames))) {
    const int pid = name[0] >= '1' && name[0] <= '9' ? atoi(name.c_str()) : 0;
    if (pid <= 1 || pid == getpid()) continue;
    const auto stat = TRY(read_stat(proc.get(), name + "/stat"));
    if (stat) parents.emplace(pid, stat->parent);
  }
  std::vector<UniqueFd> out;
  for (const auto& [pid, parent] : parents) {
    const auto above = parents.find(parent);
    if (parent != 1 && (above == parents.end() || above->second != 1)) continue;
    auto directory = sys::open_beneath(proc.get(), std::to_string(pid), O_RDONLY | O_DIRECTORY);
    if (!directory && is_gone(directory.error())) continue;
    if (!directory) return tl::make_unexpected(directory.error());
    // Its number may be another one's by now.
    const auto stat = TRY(read_stat(directory->get(), "stat"));
    if (stat && stat->parent == parent) out.push_back(std::move(*directory));
  }
  return out;
}

Result<Use> use_of_nameless(const std::vector<UniqueFd>& processes,
                            const std::array<dev_t, 2>& devices) {
  std::set<std::pair<dev_t, ino_t>> counted;
  Use use;
  for (const auto& process : processes) {
    auto fds = sys::open_beneath(process.get(), "fd", O_RDONLY | O_DIRECTORY);
    if (!fds && (is_gone(fds.error()) || is_exiting(process.get(), fds.error().sys_errno)))
      continue;
    if (!fds) return tl::make_unexpected(fds.error());
    const std::unique_ptr<DIR, int (*)(DIR*)> directory(fdopendir(fds->get()), closedir);
    if (!directory) return fail_errno(errno, "reading the descriptors of the sandbox");
    fds->release();
    for (errno = 0; const dirent* entry = readdir(directory.get()); errno = 0) {
      if (dot_or_dotdot(entry->d_name)) continue;
      struct statx st{};
      // Through the link, which is no path. What the kernel knows will do: a file of a network that
      // does not answer is none of those meant.
      if (statx(dirfd(directory.get()), entry->d_name, AT_STATX_DONT_SYNC, STATX_BASIC_STATS,
                &st) != 0) {
        const int error = errno;
        if (error == ENOENT) continue;  // closed meanwhile
        if (!is_exiting(process.get(), error)) {
          return fail_errno(error, "looking at what the sandbox has open");
        }
        errno = 0;
        break;
      }
      const dev_t device = makedev(st.stx_dev_major, st.stx_dev_minor);
      if (st.stx_nlink != 0 || (device != devices[0] && device != devices[1])) continue;
      if (counted.size() < kMaxNameless && !counted.emplace(device, st.stx_ino).second) continue;
      use.bytes += st.stx_blocks * kBlock;
      ++use.files;
    }
    const int error = errno;
    if (error != 0 && error != ENOENT && !is_exiting(process.get(), error)) {
      return fail_errno(error, "reading the descriptors of the sandbox");
    }
  }
  return use;
}

StandStill::StandStill(const std::vector<UniqueFd>& processes) : processes_(processes) {
  signal_all(processes, SIGSTOP);
  const auto end = std::chrono::steady_clock::now() + kStandStill;
  for (const auto& process : processes) {
    // Nothing tells but to look.
    while (!stands_still(process.get()) && std::chrono::steady_clock::now() < end) {
      poll(nullptr, 0, 1);
    }
  }
}

StandStill::~StandStill() { signal_all(processes_, SIGCONT); }

void kill_all(const std::vector<UniqueFd>& processes) { signal_all(processes, SIGKILL); }

}  // namespace temenos::disk
