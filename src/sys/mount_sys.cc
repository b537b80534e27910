#include "sys/mount_sys.h"

#include <fcntl.h>
#include <linux/mount.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "base/try.h"

namespace temenos::sys {
namespace {

long raw_mount_setattr(int fd, unsigned flags, mount_attr* attr) {
  return syscall(SYS_mount_setattr, fd, "", flags | AT_EMPTY_PATH, attr, sizeof *attr);
}

}  // namespace

Result<UniqueFd> clone_mount(int fd, const CloneOptions& options) {
  const unsigned recursive = options.recursive ? AT_RECURSIVE : 0;
  UniqueFd tree(static_cast<int>(syscall(
      SYS_open_tree, fd, "", AT_EMPTY_PATH | OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | recursive)));
  if (!tree) return fail_errno(errno, "open_tree");
  mount_attr attr{};
  if (options.read_only) attr.attr_set |= MOUNT_ATTR_RDONLY;
  if (options.nosuid) attr.attr_set |= MOUNT_ATTR_NOSUID;
  if (options.nodev) attr.attr_set |= MOUNT_ATTR_NODEV;
  attr.propagation = MS_PRIVATE;
  if (options.idmap_userns >= 0) {
    attr.attr_set |= MOUNT_ATTR_IDMAP;
    attr.userns_fd = static_cast<__u64>(options.idmap_userns);
  }
  if (raw_mount_setattr(tree.get(), recursive, &attr) != 0)
    return fail_errno(errno, "mount_setattr");
  return tree;
}

Result<UniqueFd> new_filesystem(const char* type,
                                const std::vector<std::pair<std::string, std::string>>& options,
                                unsigned mount_attributes) {
  UniqueFd context(static_cast<int>(syscall(SYS_fsopen, type, FSOPEN_CLOEXEC)));
  if (!context) return fail_errno(errno, std::string("fsopen ") + type);
  auto configure = [&](unsigned command, const char* key, const char* value) -> Result<void> {
    if (syscall(SYS_fsconfig, context.get(), command, key, value, 0) == 0) return {};
    const int err = errno;
    // The context's log says what the kernel disliked.
    char log[512];
    const ssize_t n = read(context.get(), log, sizeof log);
    std::string what =
        std::string(type) + (key != nullptr ? std::string(" option ") + key : " mount");
    // A line of it is "e " and a text, or "w " or "i " (fsopen(2)).
    if (n > 3) what += " (" + std::string(log + 2, static_cast<std::size_t>(n) - 3) + ")";
    return fail_errno(err, std::move(what));
  };
  for (const auto& [key, value] : options) {
    if (value.empty()) {
      TRY(configure(FSCONFIG_SET_FLAG, key.c_str(), nullptr));
    } else {
      TRY(configure(FSCONFIG_SET_STRING, key.c_str(), value.c_str()));
    }
  }
  TRY(configure(FSCONFIG_CMD_CREATE, nullptr, nullptr));
  UniqueFd mount(
      static_cast<int>(syscall(SYS_fsmount, context.get(), FSMOUNT_CLOEXEC, mount_attributes)));
  if (!mount) return fail_errno(errno, std::string("fsmount ") + type);
  return mount;
}

Result<void> attach_mount(int mount_fd, int target_fd) {
  if (syscall(SYS_move_mount, mount_fd, "", target_fd, "",
              MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) != 0) {
    return fail_errno(errno, "move_mount");
  }
  return {};
}

Result<void> make_read_only(int fd, bool recursive) {
  mount_attr attr{};
  attr.attr_set = MOUNT_ATTR_RDONLY;
  if (raw_mount_setattr(fd, recursive ? AT_RECURSIVE : 0, &attr) != 0) {
    return fail_errno(errno, "mount_setattr");
  }
  return {};
}

Result<void> detach_mount(const char* path) {
  if (umount2(path, MNT_DETACH) != 0) return fail_errno(errno, std::string("unmounting ") + path);
  return {};
}

Result<void> make_all_private() {
  if (mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) {
    return fail_errno(errno, "making all mounts private");
  }
  return {};
}

Result<void> pivot_into(int root_fd) {
  // pivot_root(2) wants a mount point below the present root; mounting over "/" is one that always
  // exists and that no unreadable parent directory keeps us from.
  const UniqueFd old_root(open("/", O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!old_root) return fail_errno(errno, "opening /");
  TRY(attach_mount(root_fd, old_root.get()));
  if (fchdir(root_fd) != 0) return fail_errno(errno, "fchdir to the new root");
  if (syscall(SYS_pivot_root, ".", ".") != 0) return fail_errno(errno, "pivot_root");
  // The old root now lies on top of the new one, at ".".
  if (umount2(".", MNT_DETACH) != 0) return fail_errno(errno, "leaving the old root");
  if (chdir("/") != 0) return fail_errno(errno, "chdir /");
  return {};
}

}  // namespace temenos::sys
