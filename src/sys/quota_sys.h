// Project quotas of the host's file systems (ext4 with the feature `project`, xfs; mounted with
// prjquota): what lies below a directory counts against one number, and the kernel refuses what is
// more (EDQUOT), whoever writes it and through whichever mount.
//
// Thread-safety: as the system calls.
#pragma once

#include <cstdint>

#include "temenos/error.h"

namespace temenos::sys {

struct Project {
  std::uint32_t id = 0;
  bool inherited = false;  // what is made in this directory belongs to it, too
};
// Of an open directory (not O_PATH). An error where the file system has no projects.
Result<Project> project_of(int directory);
// What is made in it from now on belongs to project `id`; what is there already does not.
Result<void> join_project(int directory, std::uint32_t id);

struct ProjectQuota {
  std::uint64_t limit_bytes = 0;  // 0: none
  std::uint64_t limit_files = 0;
  std::uint64_t used_bytes = 0;
  std::uint64_t used_files = 0;
};
// On the file system of `fd`. Caller: CAP_SYS_ADMIN of the host. An error (ESRCH, ENOSYS, ...)
// where no project quota is kept.
Result<ProjectQuota> project_quota(int fd, std::uint32_t id);
// True when the kernel refuses what is more than a limit; it may only count. No rights are needed.
bool keeps_project_quotas(int fd);
// Hard limits, rounded up to KiB; 0: none.
Result<void> limit_project(int fd, std::uint32_t id, std::uint64_t bytes, std::uint64_t files);

}  // namespace temenos::sys
