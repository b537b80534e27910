#include "sys/quota_sys.h"

#include <linux/dqblk_xfs.h>
#include <linux/fs.h>
#include <linux/quota.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "base/try.h"

namespace temenos::sys {
namespace {

constexpr std::uint64_t kQuotaBlock = 1024;  // of dqb_bhardlimit, whatever the file system's

// By descriptor (Linux 5.14): no device's path to look for, which a container may not have.
Result<void> quota_call(int fd, unsigned command, std::uint32_t id, if_dqblk* block) {
  if (syscall(SYS_quotactl_fd, fd, QCMD(command, PRJQUOTA), id, block) != 0) {
    return fail_errno(errno, "quotactl");
  }
  return {};
}

}  // namespace

Result<Project> project_of(int directory) {
  fsxattr attributes{};
  if (ioctl(directory, FS_IOC_FSGETXATTR, &attributes) != 0) {
    return fail_errno(errno, "reading the project of a directory");
  }
  return Project{attributes.fsx_projid, (attributes.fsx_xflags & FS_XFLAG_PROJINHERIT) != 0};
}

Result<void> join_project(int directory, std::uint32_t id) {
  fsxattr attributes{};
  if (ioctl(directory, FS_IOC_FSGETXATTR, &attributes) != 0) {
    return fail_errno(errno, "reading the project of a directory");
  }
  attributes.fsx_projid = id;
  attributes.fsx_xflags |= FS_XFLAG_PROJINHERIT;
  if (ioctl(directory, FS_IOC_FSSETXATTR, &attributes) != 0) {
    return fail_errno(errno, "giving a directory a project");
  }
  return {};
}

Result<ProjectQuota> project_quota(int fd, std::uint32_t id) {
  if_dqblk block{};
  TRY(quota_call(fd, Q_GETQUOTA, id, &block));
  return ProjectQuota{block.dqb_bhardlimit * kQuotaBlock, block.dqb_ihardlimit, block.dqb_curspace,
                      block.dqb_curinodes};
}

bool keeps_project_quotas(int fd) {
  fs_quota_statv state{};
  state.qs_version = FS_QSTATV_VERSION1;
  return syscall(SYS_quotactl_fd, fd, QCMD(Q_XGETQSTATV, PRJQUOTA), 0, &state) == 0 &&
         (state.qs_flags & FS_QUOTA_PDQ_ENFD) != 0;
}

Result<void> limit_project(int fd, std::uint32_t id, std::uint64_t bytes, std::uint64_t files) {
  if_dqblk block{};
  block.dqb_bhardlimit = (bytes + kQuotaBlock - 1) / kQuotaBlock;
  block.dqb_ihardlimit = files;
  block.dqb_valid = QIF_LIMITS;
  return quota_call(fd, Q_SETQUOTA, id, &block);
}

}  // namespace temenos::sys
