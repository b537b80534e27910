#include "init/rights.h"

#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

namespace temenos::init {
namespace {

constexpr int kKept[] = {CAP_CHOWN,   CAP_DAC_OVERRIDE, CAP_FSETID,           CAP_FOWNER,
                         CAP_MKNOD,   CAP_NET_RAW,      CAP_SETGID,           CAP_SETUID,
                         CAP_SETFCAP, CAP_SETPCAP,      CAP_NET_BIND_SERVICE, CAP_SYS_CHROOT,
                         CAP_KILL,    CAP_AUDIT_WRITE};

constexpr std::uint64_t kept_mask() {
  std::uint64_t mask = 0;
  for (const int capability : kKept) mask |= std::uint64_t{1} << capability;
  return mask;
}

}  // namespace

bool drop_capabilities() {
  for (int capability = 0; capability < 64; ++capability) {
    if ((kept_mask() >> capability & 1) != 0) continue;
    if (prctl(PR_CAPBSET_READ, capability) != 1) continue;  // unknown to this kernel, or gone
    if (prctl(PR_CAPBSET_DROP, capability) != 0 && errno != EPERM) return false;
  }
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[2] = {};
  if (syscall(SYS_capget, &header, data) != 0) return false;
  for (int half = 0; half < 2; ++half) {
    const auto kept = static_cast<std::uint32_t>(kept_mask() >> (32 * half));
    data[half].permitted &= kept;
    data[half].effective &= kept;
    data[half].inheritable = 0;
  }
  return syscall(SYS_capset, &header, data) == 0;
}

}  // namespace temenos::init
