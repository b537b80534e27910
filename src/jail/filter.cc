#include "jail/filter.h"

#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <vector>

namespace temenos::jail {
namespace {

struct ContextFree {
  void operator()(void* context) const { seccomp_release(context); }
};

constexpr std::size_t kMaxProgram = 4096;  // BPF_MAXINSNS

// libseccomp 2.5 cannot ask for SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV, so it makes the program and
// we load it. Without the flag a signal (the Go runtime sends many) interrupts a call that the
// supervisor has already carried out; the call is made again, and a second rename fails.
Result<UniqueFd> load_program(scmp_filter_ctx context, bool asks) {
  // Through a pipe: the session has no right to write files any more, and a program is smaller than
  // a pipe.
  int ends[2];
  if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) return fail_errno(errno, "pipe");
  const UniqueFd reader(ends[0]);
  const UniqueFd writer(ends[1]);
  const int exported = seccomp_export_bpf(context, writer.get());
  if (exported != 0) return fail_errno(-exported, "making a seccomp filter");
  std::vector<sock_filter> program(kMaxProgram);
  const ssize_t size = read(reader.get(), program.data(), program.size() * sizeof(sock_filter));
  if (size <= 0 || static_cast<std::size_t>(size) % sizeof(sock_filter) != 0) {
    return fail_errno(errno, "reading a seccomp filter");
  }
  program.resize(static_cast<std::size_t>(size) / sizeof(sock_filter));
  const sock_fprog loadable{static_cast<unsigned short>(program.size()), program.data()};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return fail_errno(errno, "PR_SET_NO_NEW_PRIVS");
  const unsigned long flags =
      asks ? SECCOMP_FILTER_FLAG_NEW_LISTENER | SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV : 0;
  const long rc = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &loadable);
  if (rc < 0)
    return fail_errno(errno, "loading a seccomp filter", "temenos needs Linux 5.19 or newer");
  return asks ? UniqueFd(static_cast<int>(rc)) : UniqueFd();
}

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
  if (rc != 0) return fail_errno(-rc, "making a seccomp filter");
  const bool asks = std::any_of(rules.begin(), rules.end(),
                                [](const Rule& r) { return r.action == SCMP_ACT_NOTIFY; });
  return load_program(context.get(), asks);
}

}  // namespace temenos::jail
