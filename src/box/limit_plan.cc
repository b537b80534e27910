#include "box/limit_plan.h"

#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "cgroup/hierarchy.h"
#include "sys/file_sys.h"

namespace temenos::box {
namespace {

// A box that nobody has limited takes no more of the memory: the rest is for who ends it.
constexpr std::uint64_t kMemoryShare = 4;  // less one of so many parts
// Of all tasks that a user can have, for one box that nobody has limited.
constexpr std::uint64_t kTasksShare = 8;
constexpr std::int64_t kMinTasks = 256;
constexpr std::int64_t kMaxTasks = 4096;
constexpr auto kMostTasks = static_cast<std::int64_t>(cgroup::kMostTasks);
constexpr std::int64_t kMinMemoryMb = 64;
constexpr std::int64_t kInitTasks = 1;  // the box's init, which has the same user id

struct PlatformNeed {
  std::string_view platform;
  std::int64_t always;
  std::int64_t each;
};
constexpr PlatformNeed kNeeds[] = {{"systrap", 128, 8}, {"ptrace", 256, 16}, {"kvm", 256, 16}};

const PlatformNeed& need_of(std::string_view platform) {
  for (const auto& need : kNeeds) {
    if (need.platform == platform) return need;
  }
  return kNeeds[1];
}

std::uint64_t setting(const char* path) {
  return std::strtoull(sys::read_path(path, 64).value_or("0").c_str(), nullptr, 10);
}

// Since Linux 5.14 RLIMIT_NPROC counts for each user namespace by itself.
bool tasks_count_for_each_box() {
  utsname name{};
  int major = 0;
  int minor = 0;
  uname(&name);
  if (sscanf(name.release, "%d.%d", &major, &minor) != 2) return false;
  return major > 5 || (major == 5 && minor >= 14);
}

}  // namespace

HostSize host_size() {
  HostSize size;
  const auto pages = static_cast<std::uint64_t>(std::max(0l, sysconf(_SC_PHYS_PAGES)));
  size.memory_mb = (pages * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE))) >> 20;
  rlimit limit{};
  size.tasks =
      std::min(setting("/proc/sys/kernel/threads-max"), setting("/proc/sys/kernel/pid_max"));
  if (getrlimit(RLIMIT_NPROC, &limit) == 0 && geteuid() != 0) {
    size.tasks = std::min<std::uint64_t>(size.tasks, limit.rlim_cur);
  }
  // A container or a slice has less than the machine.
  const auto now = cgroup::read_hierarchies();
  const cgroup::Ceiling ceiling = now ? cgroup::read_ceiling(*now) : cgroup::Ceiling();
  size.memory_mb = std::min(size.memory_mb, ceiling.memory_bytes.value_or(~0ull) >> 20);
  size.tasks = std::min(size.tasks, ceiling.tasks.value_or(size.tasks));
  return size;
}

std::int64_t host_tasks_for(std::int64_t guest_tasks, std::string_view platform) {
  const auto& need = need_of(platform);
  return need.always + need.each * guest_tasks;
}

cgroup::Controls held_here(const cgroup::Trial& trial) {
  cgroup::Controls held = trial.controls;
  held.tasks = held.tasks || tasks_count_for_each_box();
  return held;
}

Result<keeper::LimitSpec> plan_limits(const Limits& limits, LimitsMode mode,
                                      const cgroup::Trial& trial, std::string_view platform,
                                      const HostSize& host) {
  keeper::LimitSpec spec;
  const auto& need = need_of(platform);
  const auto fair = (static_cast<std::int64_t>(host.tasks / kTasksShare) - need.always) / need.each;
  spec.driver = cgroup::driver_name(trial.driver);
  spec.required = mode == LimitsMode::kRequired;
  spec.memory_mb = limits.memory_mb.value_or(std::max(
      kMinMemoryMb, static_cast<std::int64_t>(host.memory_mb - host.memory_mb / kMemoryShare)));
  spec.guest_tasks = limits.pids.value_or(std::clamp(fair, kMinTasks, kMaxTasks)) + kInitTasks;
  spec.guest_tasks = std::min(spec.guest_tasks, kMostTasks);
  spec.host_tasks = std::min(host_tasks_for(spec.guest_tasks, platform), kMostTasks);
  spec.cpu_thousandths = std::llround(limits.cpus.value_or(0) * 1000);
  spec.cpu_seconds = limits.cpu_seconds.value_or(0);
  spec.disk_mb = limits.disk_mb.value_or(0);
  cgroup::Controls held = held_here(trial);
  if (!held.tasks) spec.host_tasks = 0;
  const bool cpu_asked = limits.cpus || limits.cpu_seconds;
  if (spec.required) {
    held.cpu = held.cpu || !cpu_asked;
    if (held.all()) return spec;
    return fail(Code::kUnsupported,
                "limits are required, and this host keeps no limit of " + held.missing() + " (" +
                    trial.why + ")",
                trial.fix);
  }
  if (held.all()) return spec;
  // What nobody has asked for and what cannot be had is said, too: the host is without it.
  spec.note =
      "no limit of " + held.missing() + " holds for this box (" + trial.why + "): " + trial.fix;
  return spec;
}

}  // namespace temenos::box
