#include "disk/quota.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <optional>

#include "base/text.h"
#include "base/try.h"
#include "sys/file_sys.h"
#include "sys/quota_sys.h"

namespace temenos::disk {
namespace {

// Other programs that number projects begin with small numbers.
constexpr std::uint32_t kProjects = 0x80000000;

std::optional<std::uint32_t> project_for(int data_dir) {
  const auto st = sys::stat_fd(data_dir);
  // The last one would be "no project".
  if (!st || st->st_ino >= kProjects - 1) return std::nullopt;
  return kProjects | static_cast<std::uint32_t>(st->st_ino);
}

Result<void> join(int directory, std::uint32_t id) {
  const auto project = TRY(sys::project_of(directory));
  if (project.id == id && project.inherited) return {};
  const auto names = sys::list_names(directory, 1);
  if (!names || !names->empty()) {
    return fail(Code::kUnsupported, "the box's files were made without a project quota");
  }
  const auto quota = TRY(sys::project_quota(directory, id));
  if (quota.used_bytes > 0 || quota.used_files > 0) {
    return fail(Code::kUnsupported, "its project " + std::to_string(id) + " has other files");
  }
  return sys::join_project(directory, id);
}

}  // namespace

Result<void> can_hold_by_quota(int directory) {
  if (geteuid() != 0) return fail(Code::kUnsupported, "only root may set a project quota");
  if (!sys::project_of(directory)) {
    return fail(Code::kUnsupported, "the file system has no projects");
  }
  const auto quota = sys::project_quota(directory, kProjects);
  if (!quota && quota.error().sys_errno == ENOSYS) {
    return fail(Code::kUnsupported, "this kernel has no quotas");
  }
  if (!quota) return fail(Code::kUnsupported, "the file system has no project quotas");
  if (sys::keeps_project_quotas(directory)) return {};
  return fail(Code::kUnsupported, "project quotas are counted here, but not kept");
}

Result<void> hold_by_quota(int data_dir, int directory, const Limit& limit) {
  const auto id = project_for(data_dir);
  if (!id) return fail(Code::kUnsupported, "inode numbers are too large for projects");
  TRY(can_hold_by_quota(directory));
  TRY(join(directory, *id));
  TRY(sys::limit_project(directory, *id, limit.bytes, limit.files));
  const auto quota = TRY(sys::project_quota(directory, *id));
  if (limit.is_over({quota.used_bytes, quota.used_files})) {
    return fail(Code::kExhausted, describe(Use{quota.used_bytes, quota.used_files}));
  }
  return {};
}

Result<Use> use_by_quota(int directory) {
  struct statvfs st{};
  if (fstatvfs(directory, &st) != 0) return fail_errno(errno, "fstatvfs");
  return Use{(st.f_blocks - st.f_bfree) * st.f_frsize, st.f_files - st.f_ffree};
}

void release_quota(int data_dir) {
  const auto id = project_for(data_dir);
  const auto directory = sys::open_beneath(data_dir, ".", O_RDONLY | O_DIRECTORY);
  if (!id || !directory) return;
  const auto quota = sys::project_quota(directory->get(), *id);
  if (!quota || (quota->limit_bytes == 0 && quota->limit_files == 0)) return;
  (void)sys::limit_project(directory->get(), *id, 0, 0);
}

}  // namespace temenos::disk
