#include "init/files.h"

#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>

namespace temenos::init {

using namespace box_wire;

namespace {

constexpr int kHarmless = O_NOCTTY | O_NONBLOCK;  // whatever a path turns out to be
constexpr mode_t kDefaultMode = 0644;
constexpr std::uint32_t kCreditStep = kWindow / 4;
constexpr std::size_t kSmallFile = 4096;
constexpr std::size_t kListFrame = 16 * 1024;

void say_error(ByteQueue& out, std::uint32_t id, int error) {
  put(out, id, ErrorReply{Stage::kFile, static_cast<std::uint16_t>(error)});
}

FileType type_of(mode_t mode) {
  switch (mode & S_IFMT) {
    case S_IFREG:
      return FileType::kRegular;
    case S_IFDIR:
      return FileType::kDirectory;
    case S_IFLNK:
      return FileType::kSymlink;
    case S_IFIFO:
      return FileType::kFifo;
    case S_IFSOCK:
      return FileType::kSocket;
    case S_IFCHR:
    case S_IFBLK:
      return FileType::kDevice;
    default:
      return FileType::kOther;
  }
}

std::int64_t mtime_ns(const struct stat& info) {
  return static_cast<std::int64_t>(info.st_mtim.tv_sec) * 1'000'000'000 + info.st_mtim.tv_nsec;
}

// 0 or errno: a regular file, and nothing else.
int require_regular(int fd, struct stat& info) {
  if (fstat(fd, &info) != 0) return errno;
  if (S_ISDIR(info.st_mode)) return EISDIR;
  return S_ISREG(info.st_mode) ? 0 : EINVAL;
}

std::string random_name() {
  unsigned char bytes[8] = {};
  (void)!getrandom(bytes, sizeof bytes, 0);  // O_EXCL decides, not the luck of these
  std::string name = ".temenos-";
  for (const unsigned char byte : bytes) {
    name += "0123456789abcdef"[byte >> 4];
    name += "0123456789abcdef"[byte & 15];
  }
  return name;
}

}  // namespace

void stat_file(std::uint32_t id, const Stat& request, ByteQueue& out) {
  const std::string path(request.path);
  struct stat info{};
  if (fstatat(AT_FDCWD, path.c_str(), &info, request.follow ? 0 : AT_SYMLINK_NOFOLLOW) != 0) {
    say_error(out, id, errno);
    return;
  }
  StatReply reply;
  reply.type = type_of(info.st_mode);
  reply.mode = info.st_mode & 07777;
  reply.uid = info.st_uid;
  reply.gid = info.st_gid;
  reply.size = static_cast<std::uint64_t>(info.st_size);
  reply.mtime_ns = mtime_ns(info);
  char target[kMaxPath];
  if (reply.type == FileType::kSymlink) {
    const ssize_t size = readlink(path.c_str(), target, sizeof target);
    if (size > 0) reply.target = {target, static_cast<std::size_t>(size)};
  }
  put(out, id, reply);
}

std::unique_ptr<FileJob> FileJob::read(std::uint32_t id, const Read& request, ByteQueue& out) {
  std::unique_ptr<FileJob> job(new FileJob(id, out));
  job->fd_.reset(open(std::string(request.path).c_str(), O_RDONLY | O_CLOEXEC | kHarmless));
  struct stat info{};
  int error = job->fd_ ? require_regular(job->fd_.get(), info) : errno;
  if (error == 0 && request.offset != 0 &&
      lseek(job->fd_.get(), static_cast<off_t>(request.offset), SEEK_SET) < 0) {
    error = errno;
  }
  if (error != 0) {
    say_error(out, id, error);
    return nullptr;
  }
  job->credit_ = request.window;
  job->left_ = request.length;
  // Small files, the usual case, are answered in the same batch that asked.
  while (job->runnable() && job->count_ < kMaxPayload) {
    if (job->step()) return nullptr;
  }
  return job;
}

std::unique_ptr<FileJob> FileJob::list(std::uint32_t id, const List& request, ByteQueue& out) {
  std::unique_ptr<FileJob> job(new FileJob(id, out));
  UniqueFd fd(
      open(std::string(request.path).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | kHarmless));
  if (fd) job->listing_ = fdopendir(fd.get());
  if (job->listing_ == nullptr) {
    say_error(out, id, errno);
    return nullptr;
  }
  (void)fd.release();  // the DIR owns it
  job->credit_ = request.window;
  return job;
}

std::unique_ptr<FileJob> FileJob::write(std::uint32_t id, const Write& request, ByteQueue& out) {
  std::unique_ptr<FileJob> job(new FileJob(id, out));
  job->writes_ = true;
  job->how_ = request.how;
  if (const int error = job->open_target(request); error != 0) {
    say_error(out, id, error);
    return nullptr;
  }
  return job;
}

std::unique_ptr<FileJob> FileJob::remove(std::uint32_t id, const Remove& request, ByteQueue& out) {
  int error = 0;
  std::uint64_t count = 0;
  std::unique_ptr<FileJob> job(new FileJob(id, out));
  job->removal_ = TreeRemoval::start(request, error, count);
  if (job->removal_) return job;
  if (error != 0) {
    say_error(out, id, error);
  } else {
    put(out, id, FileDone{count});
  }
  return nullptr;
}

FileJob::~FileJob() {
  if (listing_ != nullptr) closedir(listing_);
  if (!temporary_.empty()) unlinkat(directory_.get(), temporary_.c_str(), 0);
}

int FileJob::open_target(const Write& request) {
  std::string path(request.path);
  const mode_t mode = request.mode == kKeepMode ? kDefaultMode : request.mode;
  struct stat info{};
  if (how_ == Write::How::kAppend) {
    fd_.reset(open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | kHarmless, mode));
    return fd_ ? require_regular(fd_.get(), info) : errno;
  }
  bool there = false;
  for (int hop = 0;; ++hop) {
    const auto slash = path.rfind('/');
    name_ = path.substr(slash + 1);
    if (name_.empty() || name_ == "." || name_ == "..") return EISDIR;
    const std::string parent = slash == 0 ? "/" : path.substr(0, slash);
    directory_.reset(open(parent.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    if (!directory_) return errno;
    there = fstatat(directory_.get(), name_.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0;
    if (!there || !S_ISLNK(info.st_mode) || how_ == Write::How::kCreate) break;
    // The file behind the link is what is to be replaced, as an editor would.
    char* real = hop == 0 ? realpath(path.c_str(), nullptr) : nullptr;
    if (real == nullptr) return hop == 0 ? errno : ELOOP;
    path = real;
    std::free(real);
  }
  if (there && how_ == Write::How::kCreate) return EEXIST;
  if (there && S_ISDIR(info.st_mode)) return EISDIR;
  if (there && !S_ISREG(info.st_mode)) return EINVAL;
  const mode_t wanted = there && request.mode == kKeepMode ? info.st_mode & 07777 : mode;
  return open_temporary(wanted, there ? &info : nullptr);
}

// Each system call here may be a round trip to the gofer: none is made that would change nothing.
int FileJob::open_temporary(mode_t mode, const struct stat* owner) {
  temporary_ = random_name();
  fd_.reset(openat(directory_.get(), temporary_.c_str(),
                   O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode & 0755));
  if (!fd_) {
    temporary_.clear();
    return errno;
  }
  const bool foreign =
      owner != nullptr && (owner->st_uid != geteuid() || owner->st_gid != getegid());
  if (foreign && fchown(fd_.get(), owner->st_uid, owner->st_gid) != 0 && errno != EPERM)
    return errno;
  // What chown may have cleared and what init's umask of 022 takes away.
  if (!foreign && (mode & ~0755u) == 0) return 0;
  return fchmod(fd_.get(), mode) == 0 ? 0 : errno;
}

int FileJob::commit_target() {
  if (close(fd_.release()) != 0) return errno;  // a quota may speak only now
  if (how_ == Write::How::kAppend) return 0;
  const unsigned flags = how_ == Write::How::kCreate ? RENAME_NOREPLACE : 0;
  if (renameat2(directory_.get(), temporary_.c_str(), directory_.get(), name_.c_str(), flags) !=
      0) {
    return errno;
  }
  temporary_.clear();
  return 0;
}

void FileJob::fail(int error) { say_error(out_, id_, error); }

bool FileJob::runnable() const {
  if (removal_) return true;
  if (listing_ != nullptr) return credit_ >= kHeaderSize + kMaxEntry;
  return !writes_ && credit_ > kHeaderSize;
}

bool FileJob::step() {
  if (removal_) return step_removal();
  return listing_ != nullptr ? step_list() : step_read();
}

bool FileJob::step_removal() {
  const auto progress = removal_->step();
  if (progress == TreeRemoval::Progress::kFailed) fail(removal_->error());
  if (progress == TreeRemoval::Progress::kDone) put(out_, id_, FileDone{removal_->count()});
  return progress != TreeRemoval::Progress::kMore;
}

bool FileJob::step_read() {
  const auto want = static_cast<std::size_t>(
      std::min<std::uint64_t>({credit_ - kHeaderSize, kMaxPayload, left_}));
  // A small file fits what is left of the usual chunk; a large one goes in whole frames.
  const std::size_t least = count_ == 0 ? std::min(want, kSmallFile) : want;
  const auto room = out_.prepare(kHeaderSize + least, kHeaderSize + want);
  const ssize_t got =
      want == 0 ? 0 : ::read(fd_.get(), room.data() + kHeaderSize, room.size() - kHeaderSize);
  if (got < 0 && errno == EINTR) return false;
  if (got < 0) {
    fail(errno);
    return true;
  }
  if (got == 0) {
    put(out_, id_, FileDone{count_});
    return true;
  }
  const auto size = static_cast<std::size_t>(got);
  put_header({static_cast<std::uint32_t>(size), static_cast<std::uint16_t>(Type::kStdout), 0, id_},
             room.data());
  out_.commit(kHeaderSize + size);
  credit_ -= static_cast<std::uint32_t>(kHeaderSize + size);
  left_ -= size;
  count_ += size;
  return false;
}

bool FileJob::step_list() {
  const std::size_t limit = std::min<std::size_t>(credit_ - kHeaderSize, kListFrame);
  std::vector<std::uint8_t> frame;
  bool over = false;
  while (limit - frame.size() >= kMaxEntry) {
    errno = 0;
    const dirent* found = readdir(listing_);
    if (found == nullptr) {
      if (errno != 0) {
        fail(errno);
        return true;
      }
      over = true;
      break;
    }
    Entry entry;
    entry.name = found->d_name;
    if (entry.name == "." || entry.name == "..") continue;
    struct stat info{};
    if (fstatat(dirfd(listing_), found->d_name, &info, AT_SYMLINK_NOFOLLOW) == 0) {
      entry.type = type_of(info.st_mode);
      entry.mode = info.st_mode & 07777;
      entry.size = static_cast<std::uint64_t>(info.st_size);
      entry.mtime_ns = mtime_ns(info);
    }
    std::uint8_t room[kMaxEntry];
    const std::size_t size = put_entry(room, entry);
    frame.insert(frame.end(), room, room + size);
    ++count_;
  }
  if (!frame.empty()) {
    put(out_, id_, Type::kStdout, frame);
    credit_ -= static_cast<std::uint32_t>(kHeaderSize + frame.size());
  }
  if (over) put(out_, id_, FileDone{count_});
  return over;
}

bool FileJob::credit(const Credit& credit) {
  if (writes_ || removal_ || credit.stream != Stream::kStdout) return false;
  credit_ += credit.bytes;
  return credit_ <= kWindow;
}

bool FileJob::body(Bytes payload, bool& over) {
  if (!writes_) return false;
  body_done_ += static_cast<std::uint32_t>(kHeaderSize + payload.size());
  while (!payload.empty()) {
    const ssize_t written = ::write(fd_.get(), payload.data(), payload.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      fail(errno);
      over = true;
      return true;
    }
    count_ += static_cast<std::uint64_t>(written);
    payload = payload.subspan(static_cast<std::size_t>(written));
  }
  if (body_done_ >= kCreditStep) {
    put(out_, id_, Credit{Stream::kStdin, body_done_});
    body_done_ = 0;
  }
  return true;
}

bool FileJob::body_end() {
  if (!writes_) return false;
  if (const int error = commit_target(); error != 0) {
    fail(error);
  } else {
    put(out_, id_, FileDone{count_});
  }
  return true;
}

void FileJob::cancel() { put(out_, id_, ErrorReply{Stage::kCancelled, ECANCELED}); }

}  // namespace temenos::init
