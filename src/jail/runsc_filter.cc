#include "jail/runsc_filter.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <vector>

#include "base/scope_exit.h"
#include "jail/filter.h"

namespace temenos::jail {
namespace {

constexpr unsigned kSetIdBits = S_ISUID | S_ISGID;

// Newer than the headers of Debian 12.
constexpr int kFchmodat2 = 452;

// The rules as data; everything that no rule names is allowed (gVisor's own filter is the narrow
// one).
const std::vector<Rule>& rules() {
  constexpr std::uint32_t kDeny = SCMP_ACT_ERRNO(EPERM);
  constexpr std::uint32_t kMissing = SCMP_ACT_ERRNO(ENOSYS);
  constexpr std::uint32_t kAsk = SCMP_ACT_NOTIFY;
  static const std::vector<Rule> table = [&] {
    std::vector<Rule> out = {
        // Registering for membarrier makes each start of the runsc binary wait for an RCU grace
        // period;
        // Go and gVisor do without it.
        rule(kMissing, SCMP_SYS(membarrier)),
        // Ways round the rules below that neither runsc nor Go needs.
        rule(kMissing, SCMP_SYS(openat2)),
        rule(kMissing, SCMP_SYS(io_uring_setup)),
        rule(kMissing, SCMP_SYS(io_uring_enter)),
        rule(kMissing, SCMP_SYS(io_uring_register)),
        rule(kMissing, kFchmodat2),
        // Kernel attack surface that runsc has no use for.
        rule(kDeny, SCMP_SYS(bpf)),
        rule(kDeny, SCMP_SYS(perf_event_open)),
        rule(kDeny, SCMP_SYS(userfaultfd)),
        rule(kDeny, SCMP_SYS(add_key)),
        rule(kDeny, SCMP_SYS(request_key)),
        rule(kDeny, SCMP_SYS(keyctl)),
        rule(kDeny, SCMP_SYS(open_by_handle_at)),
        rule(kDeny, SCMP_SYS(kexec_load)),
        rule(kDeny, SCMP_SYS(init_module)),
        rule(kDeny, SCMP_SYS(finit_module)),
        // What gVisor uses for a guest's chown: the supervisor decides by the file.
        rule(kAsk, SCMP_SYS(fchown), above(1, 0)),
        rule(kAsk, SCMP_SYS(fchown), above(2, 0)),
        rule(kAsk, SCMP_SYS(fchownat), above(2, 0)),
        rule(kAsk, SCMP_SYS(fchownat), above(3, 0)),
        // By path: gVisor never does; a path in memory cannot be judged without a race.
        rule(kDeny, SCMP_SYS(chown)),
        rule(kDeny, SCMP_SYS(lchown)),
    };
    for (const std::uint64_t bit : {S_ISUID, S_ISGID}) {
      out.push_back(rule(kAsk, SCMP_SYS(fchmod), masked(1, bit, bit)));
      out.push_back(rule(kDeny, SCMP_SYS(chmod), masked(1, bit, bit)));
      out.push_back(rule(kDeny, SCMP_SYS(fchmodat), masked(2, bit, bit)));
      out.push_back(rule(kDeny, SCMP_SYS(creat), masked(1, bit, bit)));
      for (const std::uint64_t flag : {O_CREAT, __O_TMPFILE}) {
        out.push_back(rule(kDeny, SCMP_SYS(open), masked(1, flag, flag), masked(2, bit, bit)));
        out.push_back(rule(kDeny, SCMP_SYS(openat), masked(2, flag, flag), masked(3, bit, bit)));
      }
      out.push_back(rule(kDeny, SCMP_SYS(mknod), masked(1, bit, bit)));
      out.push_back(rule(kDeny, SCMP_SYS(mknodat), masked(2, bit, bit)));
    }
    for (const std::uint64_t type : {S_IFCHR, S_IFBLK}) {
      out.push_back(rule(kDeny, SCMP_SYS(mknod), masked(1, S_IFMT, type)));
      out.push_back(rule(kDeny, SCMP_SYS(mknodat), masked(2, S_IFMT, type)));
    }
    return out;
  }();
  return table;
}

// The file that descriptor `fd` of thread `tid` names, pinned: later changes of that table do not
// matter.
int pin(std::uint32_t tid, std::uint64_t fd) {
  const std::string path =
      "/proc/" + std::to_string(tid) + "/fd/" + std::to_string(static_cast<int>(fd));
  return open(path.c_str(), O_PATH | O_CLOEXEC);
}

// What the call would have done, as an errno. The pinned file is changed through /proc/self/fd,
// which works on O_PATH descriptors and needs no reopening.
int perform(const seccomp_notif& request, int file, dev_t overlay_dev) {
  struct stat st{};
  if (fstat(file, &st) != 0) return errno;
  const bool own = st.st_dev == overlay_dev;
  const std::string path = "/proc/self/fd/" + std::to_string(file);
  const auto& args = request.data.args;
  if (request.data.nr == SCMP_SYS(fchmod)) {
    const auto asked = static_cast<mode_t>(args[1]) & 07777;
    return chmod(path.c_str(), own ? asked : asked & ~kSetIdBits) == 0 ? 0 : errno;
  }
  const bool at = request.data.nr == SCMP_SYS(fchownat);
  if (at && (args[4] & AT_EMPTY_PATH) == 0) return EPERM;
  if (!own) return 0;
  const auto uid = static_cast<uid_t>(args[at ? 2 : 1]);
  const auto gid = static_cast<gid_t>(args[at ? 3 : 2]);
  if (S_ISLNK(st.st_mode)) {
    return fchownat(file, "", uid, gid, AT_EMPTY_PATH) == 0 ? 0 : errno;
  }
  return chown(path.c_str(), uid, gid) == 0 ? 0 : errno;
}

}  // namespace

Result<UniqueFd> load_runsc_filter() {
  return load_filter(SCMP_ACT_ALLOW, SCMP_ACT_ERRNO(ENOSYS), rules());
}

Result<void> answer_runsc(int listener, dev_t overlay_dev) {
  seccomp_notif* request = nullptr;
  seccomp_notif_resp* response = nullptr;
  if (seccomp_notify_alloc(&request, &response) != 0) {
    return fail(Code::kExhausted, "seccomp_notify_alloc");
  }
  const ScopeExit release([&] { seccomp_notify_free(request, response); });
  // ENOENT and EINTR: the caller was killed meanwhile.
  if (seccomp_notify_receive(listener, request) != 0) return {};
  const UniqueFd file(pin(request->pid, request->data.args[0]));
  const int err = file ? 0 : EBADF;
  // Only after this check is it certain that `tid` was still the caller when its table was read.
  if (seccomp_notify_id_valid(listener, request->id) != 0) return {};
  response->id = request->id;
  response->error = -(err != 0 ? err : perform(*request, file.get(), overlay_dev));
  response->val = 0;
  response->flags = 0;
  (void)seccomp_notify_respond(listener, response);
  return {};
}

}  // namespace temenos::jail
