#include "jail/keeper_rights.h"

#include <cap-ng.h>
#include <sys/prctl.h>

#include <cerrno>
#include <initializer_list>

namespace temenos::jail {

namespace {

Result<void> keep_only(std::initializer_list<unsigned> capabilities) {
  capng_clear(CAPNG_SELECT_ALL);
  for (const unsigned capability : capabilities) {
    if (capng_update(
            CAPNG_ADD,
            static_cast<capng_type_t>(CAPNG_EFFECTIVE | CAPNG_PERMITTED | CAPNG_BOUNDING_SET),
            capability) != 0) {
      return fail(Code::kInternal, "choosing capabilities");
    }
  }
  if (capng_apply(CAPNG_SELECT_BOTH) != 0) return fail(Code::kInternal, "dropping capabilities");
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return fail_errno(errno, "PR_SET_NO_NEW_PRIVS");
  return {};
}

}  // namespace

// CAP_SETPCAP: what removes the box's files later drops more.
Result<void> keep_cleanup_rights() {
  return keep_only({CAP_KILL, CAP_SETUID, CAP_SETGID, CAP_DAC_OVERRIDE, CAP_FOWNER, CAP_SETPCAP});
}

Result<void> keep_counting_rights() {
  return keep_only({CAP_DAC_READ_SEARCH, CAP_SYS_PTRACE, CAP_KILL});
}

}  // namespace temenos::jail
