#include <fcntl.h>
#include <linux/fs.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cstdlib>

#include "guests/attack.h"
#include "guests/report.h"

namespace temenos::leak {
namespace {

struct Attempt {
  const char* name;
  long (*run)(const std::string& path);
};

// 0, or -1 with errno, of a descriptor that is closed at once.
long opened(int fd) {
  if (fd < 0) return -1;
  close(fd);
  return 0;
}

long through_fd(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return -1;
  const long result =
      opened(open(("/proc/self/fd/" + std::to_string(fd)).c_str(), O_RDWR | O_CLOEXEC));
  const int err = errno;
  close(fd);
  errno = err;
  return result;
}

long by_map(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return -1;
  void* memory = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  const int err = errno;
  close(fd);
  errno = err;
  return memory == MAP_FAILED ? -1 : 0;
}

long change_mode_by_fd(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return -1;
  const long result = fchmod(fd, 0777);
  const int err = errno;
  close(fd);
  errno = err;
  return result;
}

long set_times(const std::string& path) {
  const timespec times[2] = {{1, 0}, {1, 0}};
  return utimensat(AT_FDCWD, path.c_str(), times, AT_SYMLINK_NOFOLLOW);
}

long move_over(const std::string& path) {
  const std::string mine = "/tmp/leak-over-" + std::to_string(getpid());
  const int fd = open(mine.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0644);
  if (fd < 0) return -1;
  close(fd);
  const long result = rename(mine.c_str(), path.c_str());
  const int err = errno;
  unlink(mine.c_str());
  errno = err;
  return result;
}

const Attempt kFile[] = {
    {"open for writing", [](auto& p) { return opened(open(p.c_str(), O_WRONLY | O_CLOEXEC)); }},
    {"append", [](auto& p) { return opened(open(p.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC)); }},
    {"empty", [](auto& p) { return opened(open(p.c_str(), O_RDWR | O_TRUNC | O_CLOEXEC)); }},
    {"truncate", [](auto& p) { return long{truncate(p.c_str(), 0)}; }},
    {"reopen", through_fd},
    {"by /proc/self/root",
     [](auto& p) { return opened(open(("/proc/self/root" + p).c_str(), O_RDWR | O_CLOEXEC)); }},
    {"map shared", by_map},
    {"fchmod", change_mode_by_fd},
    {"move over", move_over},
    {"link away", [](auto& p) { return long{link(p.c_str(), (p + ".leak").c_str())}; }},
};

const Attempt kDirectory[] = {
    {"create",
     [](auto& p) {
       return opened(open((p + "/leak-new").c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0666));
     }},
    {"mkdir", [](auto& p) { return long{mkdir((p + "/leak-dir").c_str(), 0777)}; }},
    {"symlink", [](auto& p) { return long{symlink("/", (p + "/leak-symlink").c_str())}; }},
    {"mknod", [](auto& p) { return long{mknod((p + "/leak-node").c_str(), S_IFREG | 0666, 0)}; }},
    {"fifo", [](auto& p) { return long{mknod((p + "/leak-fifo").c_str(), S_IFIFO | 0666, 0)}; }},
    {"temporary file",
     [](auto& p) { return opened(open(p.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0666)); }},
    {"rmdir", [](auto& p) { return long{rmdir(p.c_str())}; }},
};

const Attempt kBoth[] = {
    {"chmod", [](auto& p) { return long{chmod(p.c_str(), 0777)}; }},
    // To itself: in a user namespace no other id need exist.
    {"chown", [](auto& p) { return long{chown(p.c_str(), geteuid(), getegid())}; }},
    {"utimes", set_times},
    {"setxattr", [](auto& p) { return long{setxattr(p.c_str(), "user.leak", "x", 1, 0)}; }},
    {"removexattr", [](auto& p) { return long{removexattr(p.c_str(), "user.kept")}; }},
    {"rename", [](auto& p) { return long{rename(p.c_str(), (p + ".leak").c_str())}; }},
    {"rename away",
     [](auto& p) {
       return long{syscall(SYS_renameat2, AT_FDCWD, p.c_str(), AT_FDCWD, "/tmp/leak-away",
                           RENAME_NOREPLACE)};
     }},
    {"unlink", [](auto& p) { return long{unlink(p.c_str())}; }},
};

void try_writes(const std::string& path) {
  struct stat st{};
  if (stat(path.c_str(), &st) != 0) {
    report_call("stat", path, -1);
    return;
  }
  auto all = [&path](const auto& attempts) {
    for (const auto& attempt : attempts) report_call(attempt.name, path, attempt.run(path));
  };
  // What would take the path away if it worked comes last.
  if (S_ISDIR(st.st_mode)) {
    all(kDirectory);
  } else {
    all(kFile);
  }
  all(kBoth);
}

// Every way to make the mount that `path` lies on writable. That some succeed inside is expected:
// what counts is whether a write follows.
void loosen(const std::string& path) {
  const char* p = path.c_str();
  (void)mount(nullptr, p, nullptr, MS_REMOUNT, nullptr);
  (void)mount(nullptr, p, nullptr, MS_REMOUNT | MS_BIND, nullptr);
  (void)mount(p, p, nullptr, MS_BIND | MS_REC, nullptr);
  (void)mount(nullptr, p, nullptr, MS_REMOUNT | MS_BIND, nullptr);
  (void)mount(nullptr, p, nullptr, MS_PRIVATE | MS_REC, nullptr);
  const struct {
    unsigned long long set, clear, propagation, userns;
  } attributes{0, 1 /* MOUNT_ATTR_RDONLY */, 0, 0};
  constexpr int kMountSetattr = 442;
  for (const unsigned flags : {0u, 0x8000u /* AT_RECURSIVE */}) {
    (void)syscall(kMountSetattr, AT_FDCWD, p, flags, &attributes, sizeof attributes);
  }
}

// The same file by a bind of its directory somewhere else.
void try_alias(const std::string& path) {
  const std::string alias =
      "/tmp/leak-alias-" + std::to_string(getuid()) + "-" + std::to_string(getpid());
  mkdir(alias.c_str(), 0777);
  const std::string above = path.substr(0, path.rfind('/'));
  if (mount(above.empty() ? "/" : above.c_str(), alias.c_str(), nullptr, MS_BIND | MS_REC,
            nullptr) == 0) {
    (void)mount(nullptr, alias.c_str(), nullptr, MS_REMOUNT | MS_BIND, nullptr);
    try_writes(alias + path.substr(path.rfind('/')));
    umount2(alias.c_str(), MNT_DETACH);
  }
  rmdir(alias.c_str());
}

}  // namespace

int attack_read_only(const Words& paths) {
  for (const auto& path : paths) {
    try_writes(path);
    loosen(path);
    try_writes(path);
    try_alias(path);
  }
  return 0;
}

int attack_pins(const Words& paths) {
  for (const auto& path : paths) {
    const std::string away = path + ".moved";
    const std::string other = path + ".other";
    report_call("rename", path, rename(path.c_str(), away.c_str()));
    report_call("rename to /tmp", path, rename(path.c_str(), "/tmp/leak-moved"));
    mkdir(other.c_str(), 0777);
    report_call(
        "exchange", path,
        syscall(SYS_renameat2, AT_FDCWD, path.c_str(), AT_FDCWD, other.c_str(), RENAME_EXCHANGE));
    report_call("move over", path, rename(other.c_str(), path.c_str()));
    rmdir(other.c_str());
    report_call("rmdir", path, rmdir(path.c_str()));
    report_call("unlink", path, unlink(path.c_str()));
    // In a mount namespace of its own the sandbox may let the mount go. What lies beneath must be
    // no other than before.
    (void)umount2(path.c_str(), MNT_DETACH);
    (void)mount(path.c_str(), path.c_str(), nullptr, MS_BIND | MS_REC, nullptr);
    (void)umount2(path.c_str(), MNT_DETACH);
    report_call("rename after umount", path, rename(path.c_str(), away.c_str()));
  }
  return 0;
}

}  // namespace temenos::leak
