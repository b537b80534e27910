#include "jail/filter.h"

#include <algorithm>
#include <memory>

namespace temenos::jail {
namespace {

struct ContextFree {
  void operator()(void* context) const { seccomp_release(context); }
};

}  // namespace

Result<UniqueFd> load_filter(std::uint32_t default_action, std::uint32_t foreign_arch_action,
                             std::span<const Rule> rules) {
  const std::unique_ptr<void, ContextFree> context(seccomp_init(default_action));
  if (!context) return fail(Code::kExhausted, "seccomp_init");
  // Another architecture's numbers would slip past the rules.
  int rc = seccomp_attr_set(context.get(), SCMP_FLTATR_ACT_BADARCH, foreign_arch_action);
  for (const auto& r : rules) {
    if (rc != 0) break;
    rc = seccomp_rule_add_array(context.get(), r.action, r.syscall, r.argument_count,
                                r.arguments.data());
  }
  if (rc == 0) rc = seccomp_load(context.get());
  if (rc != 0) {
    return fail_errno(-rc, "loading a seccomp filter",
                      "the kernel needs seccomp with user notification (Linux 5.5 or newer)");
  }
  const bool asks = std::any_of(rules.begin(), rules.end(),
                                [](const Rule& r) { return r.action == SCMP_ACT_NOTIFY; });
  if (!asks) return UniqueFd();
  const int listener = seccomp_notify_fd(context.get());
  if (listener < 0) return fail_errno(-listener, "seccomp_notify_fd");
  return UniqueFd(listener);
}

}  // namespace temenos::jail
