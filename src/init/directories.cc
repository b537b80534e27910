#include "init/directories.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>

namespace temenos::init {

using namespace box_wire;

namespace {

constexpr std::size_t kOpenLevels = 32;
constexpr long kStepNs = 2'000'000;
constexpr int kMaxRounds = 3;        // entries can be made, and listings miss some, meanwhile
constexpr mode_t kAboveMode = 0755;  // of directories above the one that was asked for

// 0 or errno; EEXIST when something is there already.
int make_one(const std::string& path, mode_t mode) {
  if (mkdir(path.c_str(), mode & 0755) != 0) return errno;
  // What init's umask of 022 would take away, and what mkdir(2) does not take.
  if ((mode & ~mode_t{0755}) == 0) return 0;
  const UniqueFd made(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  return made && fchmod(made.get(), mode) == 0 ? 0 : errno;
}

int make_above(const std::string& path) {
  for (auto slash = path.find('/', 1); slash != std::string::npos;
       slash = path.find('/', slash + 1)) {
    const int error = make_one(path.substr(0, slash), kAboveMode);
    if (error != 0 && error != EEXIST) return error;
  }
  return 0;
}

std::string without_last_slashes(std::string_view path) {
  while (path.size() > 1 && path.back() == '/') path.remove_suffix(1);
  return std::string(path);
}

bool is_directory(const std::string& path) {
  struct stat info{};
  return stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

// The entry that `path` names, and the directory that it is in. 0 or errno.
int find_entry(std::string_view wanted, UniqueFd& parent, std::string& name, struct stat& info) {
  const std::string path = without_last_slashes(wanted);
  const auto slash = path.rfind('/');
  name = path.substr(slash + 1);
  if (name.empty()) return EBUSY;
  if (name == "." || name == "..") return EINVAL;
  parent.reset(
      open(slash == 0 ? "/" : path.substr(0, slash).c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!parent || fstatat(parent.get(), name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) return errno;
  return 0;
}

bool time_is_over(const timespec& begin) {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (now.tv_sec - begin.tv_sec) * 1'000'000'000 + now.tv_nsec - begin.tv_nsec > kStepNs;
}

}  // namespace

void make_directory(std::uint32_t id, const Mkdir& request, ByteQueue& out) {
  const std::string path = without_last_slashes(request.path);
  int error = request.parents ? make_above(path) : 0;
  if (error == 0) error = make_one(path, request.mode);
  const bool there = request.parents && error == EEXIST && is_directory(path);
  if (error == 0 || there) {
    put(out, id, FileDone{there ? 0u : 1u});
  } else {
    put(out, id, ErrorReply{Stage::kFile, static_cast<std::uint16_t>(error)});
  }
}

std::unique_ptr<TreeRemoval> TreeRemoval::start(const Remove& request, int& error,
                                                std::uint64_t& count) {
  std::unique_ptr<TreeRemoval> removal(new TreeRemoval);
  struct stat info{};
  std::string name;
  error = find_entry(request.path, removal->parent_, name, info);
  if (error != 0) return nullptr;
  const int parent = removal->parent_.get();
  if (!S_ISDIR(info.st_mode) || !request.recursive) {
    const int flags = S_ISDIR(info.st_mode) ? AT_REMOVEDIR : 0;
    error = unlinkat(parent, name.c_str(), flags) == 0 ? 0 : errno;
    count = error == 0 ? 1 : 0;
    return nullptr;
  }
  struct stat above{};
  error = fstat(parent, &above) == 0 ? 0 : errno;
  if (error == 0 && above.st_dev != info.st_dev) error = EBUSY;
  if (error == 0) error = removal->open_level(parent, name.c_str());
  if (error != 0) return nullptr;
  return removal;
}

TreeRemoval::~TreeRemoval() {
  for (const Level& level : levels_) {
    if (level.listing != nullptr) closedir(level.listing);
  }
}

// Goes down. 0 or errno.
int TreeRemoval::open_level(int parent, const char* name) {
  UniqueFd fd(openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat info{};
  if (!fd || fstat(fd.get(), &info) != 0) return errno;
  if (!levels_.empty() && info.st_dev != levels_.back().device) return EBUSY;
  Level level;
  level.device = info.st_dev;
  level.inode = info.st_ino;
  if (levels_.size() < kOpenLevels) level.name = name;
  level.listing = fdopendir(fd.get());
  if (level.listing == nullptr) return errno;
  (void)fd.release();  // the DIR owns it
  if (levels_.size() > kOpenLevels) {
    closedir(levels_.back().listing);
    levels_.back().listing = nullptr;
  }
  levels_.push_back(std::move(level));
  return 0;
}

// Goes up from a level that was found empty. 0 or errno.
int TreeRemoval::leave_level() {
  Level& last = levels_.back();
  if (!last.name.empty()) {
    const int parent =
        levels_.size() == 1 ? parent_.get() : dirfd(levels_[levels_.size() - 2].listing);
    if (unlinkat(parent, last.name.c_str(), AT_REMOVEDIR) != 0) {
      if (errno != ENOTEMPTY || ++last.rounds == kMaxRounds) return errno;
      rewinddir(last.listing);
      return 0;
    }
    ++count_;
    closedir(last.listing);
    levels_.pop_back();
    return 0;
  }
  // Without its name it is removed when it comes up once more in the level above.
  Level left = std::move(last);
  levels_.pop_back();
  const UniqueFd here(fcntl(dirfd(left.listing), F_DUPFD_CLOEXEC, 3));
  closedir(left.listing);
  if (!here) return errno;
  Level& above = levels_.back();
  if (above.listing != nullptr) {
    rewinddir(above.listing);
    return 0;
  }
  // It may have been moved meanwhile: only the directory that was come from is gone on with.
  UniqueFd fd(openat(here.get(), "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  struct stat info{};
  if (!fd || fstat(fd.get(), &info) != 0) return errno;
  if (info.st_dev != above.device || info.st_ino != above.inode) return ESTALE;
  above.listing = fdopendir(fd.get());
  if (above.listing == nullptr) return errno;
  (void)fd.release();  // the DIR owns it
  return 0;
}

// Each call of unlink(2) may be a round trip to the host, so a type that is known saves one.
int TreeRemoval::remove_entry(const dirent& entry) {
  const char* name = entry.d_name;
  const int directory = dirfd(levels_.back().listing);
  int refused = EISDIR;
  if (entry.d_type != DT_DIR) {
    if (unlinkat(directory, name, 0) == 0) {
      ++count_;
      return 0;
    }
    if (errno == ENOENT) return 0;
    if (errno != EISDIR && errno != EPERM) return errno;
    refused = errno;  // EPERM is what POSIX says of a directory, too
  } else if (levels_.size() < kOpenLevels) {
    const int error = open_level(directory, name);
    if (error != ENOTDIR) return error == ENOENT ? 0 : error;
  }
  if (unlinkat(directory, name, AT_REMOVEDIR) == 0) {
    ++count_;
    return 0;
  }
  if (errno == ENOTDIR) return refused;
  if (errno != ENOTEMPTY && errno != EEXIST) return errno;
  return open_level(directory, name);
}

TreeRemoval::Progress TreeRemoval::step() {
  timespec begin{};
  clock_gettime(CLOCK_MONOTONIC, &begin);
  do {
    errno = 0;
    const dirent* entry = readdir(levels_.back().listing);
    if (entry == nullptr) {
      error_ = errno != 0 ? errno : leave_level();
    } else if (std::string_view(entry->d_name) != "." && std::string_view(entry->d_name) != "..") {
      error_ = remove_entry(*entry);
    }
    if (error_ != 0) return Progress::kFailed;
    if (levels_.empty()) return Progress::kDone;
  } while (!time_is_over(begin));
  return Progress::kMore;
}

}  // namespace temenos::init
