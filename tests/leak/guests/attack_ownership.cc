#include <fcntl.h>
#include <linux/capability.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cstdlib>

#include "guests/attack.h"
#include "guests/report.h"

namespace temenos::leak {
namespace {

constexpr mode_t kModes[] = {04755, 02755, 06777, 01755, 07777};
constexpr uid_t kIds[] = {0, 1, 33, 1000, 65534};
constexpr int kFchmodat2 = 452;

// A fresh file DIR/NAME.
int fresh(const std::string& path, mode_t mode = 0755) {
  return open(path.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, mode);
}

std::string octal(mode_t mode) {
  char text[16];
  snprintf(text, sizeof text, "%05o", mode);
  return text;
}

void by_mode(const std::string& dir) {
  for (const mode_t mode : kModes) {
    const std::string p = dir + "/" + octal(mode) + "-";
    int fd = fresh(p + "chmod");
    report_call("chmod", p, chmod((p + "chmod").c_str(), mode));
    report_call("fchmod", p, fchmod(fd, mode));
    report_call("fchmodat", p, fchmodat(AT_FDCWD, (p + "chmod").c_str(), mode, 0));
    report_call("fchmodat2", p, syscall(kFchmodat2, AT_FDCWD, (p + "chmod").c_str(), mode, 0));
    // As a new user namespace's root would: write after the bits, then set them again.
    (void)!write(fd, "#!/bin/sh\n", 10);
    (void)fchmod(fd, mode);
    close(fd);
    const std::string by_fd = "/proc/self/fd/" + std::to_string(fd = fresh(p + "by-fd"));
    report_call("chmod by fd", p, chmod(by_fd.c_str(), mode));
    close(fd);
    report_call("open", p,
                fd = open((p + "open").c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, mode));
    if (fd >= 0) close(fd);
    report_call("creat", p, fd = static_cast<int>(syscall(SYS_creat, (p + "creat").c_str(), mode)));
    if (fd >= 0) close(fd);
    fd = open(dir.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, mode);
    if (fd >= 0) {
      (void)fchmod(fd, mode);
      report_call("link of a temporary file", p,
                  linkat(AT_FDCWD, ("/proc/self/fd/" + std::to_string(fd)).c_str(), AT_FDCWD,
                         (p + "tmpfile").c_str(), AT_SYMLINK_FOLLOW));
      close(fd);
    }
    report_call("mkdir", p, mkdir((p + "mkdir").c_str(), mode));
    mkdir((p + "dir").c_str(), 0777);
    report_call("chmod of a directory", p, chmod((p + "dir").c_str(), mode));
    close(fresh(p + "dir/inside"));
    mkdir((p + "dir/subdir").c_str(), 0777);
    report_call("mknod", p, mknod((p + "mknod").c_str(), S_IFREG | mode, 0));
  }
}

void by_device(const std::string& dir) {
  const struct {
    const char* name;
    mode_t type;
    dev_t device;
  } nodes[] = {{"char", S_IFCHR, makedev(1, 3)},
               {"memory", S_IFCHR, makedev(1, 1)},
               {"block", S_IFBLK, makedev(8, 0)},
               {"whiteout", S_IFCHR, makedev(0, 0)},
               {"block 0:0", S_IFBLK, makedev(0, 0)},
               {"fifo", S_IFIFO, 0},
               {"socket", S_IFSOCK, 0}};
  for (const auto& node : nodes) {
    const std::string path = dir + "/node-" + node.name;
    report_call("device", path, mknod(path.c_str(), node.type | 0666, node.device));
  }
}

void by_owner(const std::string& dir) {
  for (const uid_t id : kIds) {
    const std::string p = dir + "/owner-" + std::to_string(id);
    const int fd = fresh(p);
    report_call("chown", p, chown(p.c_str(), id, id));
    report_call("fchown", p, fchown(fd, id, id));
    report_call("lchown", p, lchown(p.c_str(), id, id));
    report_call("chgrp", p, fchownat(AT_FDCWD, p.c_str(), static_cast<uid_t>(-1), id, 0));
    close(fd);
    (void)!symlink("/", (p + "-link").c_str());
    (void)lchown((p + "-link").c_str(), id, id);
    // Made by a process of that id, in a directory of the box's root.
    const pid_t pid = fork();
    if (pid == 0) {
      if (setresgid(id, id, id) != 0 || setresuid(id, id, id) != 0) _exit(0);
      const int made = fresh(p + "-made", 0666);
      if (made >= 0) (void)fchmod(made, 06755);
      mkdir((p + "-made-dir").c_str(), 0777);
      _exit(0);
    }
    waitpid(pid, nullptr, 0);
  }
  // A directory that gives its group on.
  const std::string giving = dir + "/giving";
  mkdir(giving.c_str(), 0777);
  (void)chown(giving.c_str(), static_cast<uid_t>(-1), 33);
  (void)chmod(giving.c_str(), 02777);
  close(fresh(giving + "/file"));
  mkdir((giving + "/dir").c_str(), 0777);
}

void by_attribute(const std::string& dir) {
  const std::string path = dir + "/attribute";
  close(fresh(path));
  vfs_cap_data capability{};
  capability.magic_etc = VFS_CAP_REVISION_2 | VFS_CAP_FLAGS_EFFECTIVE;
  capability.data[0].permitted = ~0u;
  report_call("capability", path,
              setxattr(path.c_str(), "security.capability", &capability, sizeof capability, 0));
  vfs_ns_cap_data rooted{};
  rooted.magic_etc = VFS_CAP_REVISION_3 | VFS_CAP_FLAGS_EFFECTIVE;
  rooted.data[0].permitted = ~0u;
  report_call("rooted capability", path,
              setxattr(path.c_str(), "security.capability", &rooted, sizeof rooted, 0));
  for (const char* name :
       {"trusted.overlay.opaque", "system.posix_acl_access", "security.selinux"}) {
    report_call(name, path, setxattr(path.c_str(), name, "y", 1, 0));
  }
}

// Made in the box's own root, where set-id bits may be, and brought over.
void by_moving(const std::string& dir) {
  for (const char* from : {"/root", "/var/tmp", "/tmp"}) {
    const std::string source = std::string(from) + "/leak-moved-" + std::to_string(getpid());
    const int fd = fresh(source);
    if (fd < 0) continue;
    (void)fchown(fd, 33, 33);
    (void)fchmod(fd, 06755);
    close(fd);
    report_call("rename", from, rename(source.c_str(), (dir + "/renamed").c_str()));
    report_call("link", from, link(source.c_str(), (dir + "/linked").c_str()));
    unlink(source.c_str());
  }
}

}  // namespace

int attack_ownership(const Words& words) {
  if (words.size() != 1) return 2;
  umask(0);
  const std::string dir = words[0] + "/by-" + std::to_string(getpid());
  if (mkdir(dir.c_str(), 0777) != 0) {
    report_call("mkdir", dir, -1);
    return 1;
  }
  by_mode(dir);
  by_device(dir);
  by_owner(dir);
  by_attribute(dir);
  by_moving(dir);
  return 0;
}

}  // namespace temenos::leak
