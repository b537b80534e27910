#include "jail/runsc_filter.h"

#include <cap-ng.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "base/scope_exit.h"
#include "jail/filter.h"

namespace temenos::jail {
namespace {

constexpr unsigned kSetIdBits = S_ISUID | S_ISGID;

// Newer than the headers of Debian 12.
constexpr int kFchmodat2 = 452;
constexpr int kSetxattrat = 463;
constexpr int kGetxattrat = 464;
constexpr int kRemovexattrat = 466;
constexpr int kOpenTreeAttr = 467;
constexpr int kFileSetattr = 469;
constexpr std::uint64_t kSignBit = 0x80000000;

constexpr std::uint32_t kDeny = SCMP_ACT_ERRNO(EPERM);
constexpr std::uint32_t kAsk = SCMP_ACT_NOTIFY;

// Files made with setuid or setgid bits, such bits set later, and devices.
void add_rules_of_modes(std::vector<Rule>& out) {
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
}

// The kernel reads an int.
void add_rules_of_sockets(const std::vector<int>& families, std::vector<Rule>& out) {
  constexpr std::uint64_t kInt = 0xffffffff;
  constexpr std::uint64_t kKnown = 63;  // a mask; Linux has fewer families
  constexpr std::uint32_t kNone = SCMP_ACT_ERRNO(EAFNOSUPPORT);
  for (std::uint64_t family = 0; family <= kKnown; ++family) {
    if (std::find(families.begin(), families.end(), static_cast<int>(family)) != families.end()) {
      continue;
    }
    out.push_back(rule(kNone, SCMP_SYS(socket), masked(0, kInt, family)));
  }
  for (std::uint64_t bit = kKnown + 1; bit <= kInt; bit <<= 1) {
    out.push_back(rule(kNone, SCMP_SYS(socket), masked(0, bit, bit)));
  }
}

// The rules as data; everything that no rule names is allowed (gVisor's own filter is the narrow
// one).
const std::vector<Rule>& rules() {
  constexpr std::uint32_t kMissing = SCMP_ACT_ERRNO(ENOSYS);
  constexpr std::uint32_t kUnsupported = SCMP_ACT_ERRNO(EOPNOTSUPP);
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
        // A file capability that is set through an idmapped mount is the host's (capabilities(7)),
        // and a
        // filter cannot read the attribute's name. runsc sets none; a guest is told what it is told
        // today.
        rule(kUnsupported, SCMP_SYS(setxattr)),
        rule(kUnsupported, SCMP_SYS(lsetxattr)),
        rule(kUnsupported, SCMP_SYS(fsetxattr)),
        rule(kUnsupported, SCMP_SYS(removexattr)),
        rule(kUnsupported, SCMP_SYS(lremovexattr)),
        rule(kUnsupported, SCMP_SYS(fremovexattr)),
        // The same for reading: gVisor holds symlinks by O_PATH descriptors and passes on the EBADF
        // of fgetxattr, which makes `ls -l` of any symlink fail. Who is told "not supported" stops
        // asking.
        rule(kUnsupported, SCMP_SYS(getxattr)),
        rule(kUnsupported, SCMP_SYS(lgetxattr)),
        rule(kUnsupported, SCMP_SYS(fgetxattr)),
        rule(kMissing, kSetxattrat),
        rule(kMissing, kGetxattrat),
        rule(kMissing, kRemovexattrat),
        rule(kMissing, kFileSetattr),
        rule(kMissing, kOpenTreeAttr),
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
        // With a descriptor (not AT_FDCWD, whose sign bit is set) they are a guest's.
        rule(kAsk, SCMP_SYS(renameat), masked(0, kSignBit, 0)),
        rule(kAsk, SCMP_SYS(renameat2), masked(0, kSignBit, 0)),
        rule(kAsk, SCMP_SYS(unlinkat), masked(0, kSignBit, 0)),
        // Who leaves by itself says so; who was killed does not.
        rule(kAsk, SCMP_SYS(exit_group)),
        rule(kAsk, SCMP_SYS(kill), masked(1, ~std::uint64_t{0} >> 32, SIGKILL)),
        // By path: gVisor never does; a path in memory cannot be judged without a race.
        rule(kDeny, SCMP_SYS(chown)),
        rule(kDeny, SCMP_SYS(lchown)),
    };
    add_rules_of_modes(out);
    return out;
  }();
  return table;
}

// The file that a descriptor of thread `tid` names, pinned: later changes of that table do not
// matter.
UniqueFd pin(std::uint32_t tid, std::uint64_t fd) {
  const std::string path =
      "/proc/" + std::to_string(tid) + "/fd/" + std::to_string(static_cast<int>(fd));
  return UniqueFd(open(path.c_str(), O_PATH | O_CLOEXEC));
}

// A name in the memory of `tid`, copied. Empty: not a single path component, or not readable.
std::string copy_name(std::uint32_t tid, std::uint64_t address) {
  const UniqueFd memory(
      open(("/proc/" + std::to_string(tid) + "/mem").c_str(), O_RDONLY | O_CLOEXEC));
  char name[NAME_MAX + 1];
  const ssize_t n =
      memory ? pread(memory.get(), name, sizeof name, static_cast<off_t>(address)) : -1;
  const std::size_t length = n > 0 ? strnlen(name, static_cast<std::size_t>(n)) : 0;
  const std::string_view text(name, length);
  if (n <= 0 || length == static_cast<std::size_t>(n)) return "";  // no end in sight
  if (text == "." || text == ".." || text.find('/') != std::string_view::npos) return "";
  return std::string(text);
}

std::string read_small(const std::string& path) {
  char buffer[1024];
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  const ssize_t n = fd ? read(fd.get(), buffer, sizeof buffer) : -1;
  return std::string(buffer, n > 0 ? static_cast<std::size_t>(n) : 0);
}

Farewell farewell(const seccomp_notif& notification) {
  const std::string proc = "/proc/" + std::to_string(notification.pid);
  const std::string status = read_small(proc + "/status");
  auto number = [&status](const char* field) {
    const auto at = status.find(field);
    return at == std::string::npos ? -1 : atoi(status.c_str() + at + strlen(field));
  };
  Farewell out;
  out.process = number("\nTgid:");
  out.parent = number("\nPPid:");
  out.name = read_small(proc + "/cmdline").substr(0, 31);
  out.name.resize(strnlen(out.name.c_str(), out.name.size()));
  const auto argument = notification.data.args[0];
  if (notification.data.nr == SCMP_SYS(kill)) {
    out.kills = static_cast<pid_t>(argument);
  } else {
    out.status = static_cast<int>(argument & 0xff);
  }
  return out;
}

// What a call asks for, taken out of its process before anything is decided.
struct Request {
  int syscall = 0;
  std::array<std::uint64_t, 6> args{};
  UniqueFd file;     // of the first argument
  UniqueFd to;       // rename: the directory it goes to
  std::string name;  // rename, unlink
  std::string to_name;
};

Request take(const seccomp_notif& notification) {
  Request request;
  request.syscall = notification.data.nr;
  std::copy(std::begin(notification.data.args), std::end(notification.data.args),
            request.args.begin());
  const auto& args = request.args;
  request.file = pin(notification.pid, args[0]);
  if (request.syscall == SCMP_SYS(unlinkat)) request.name = copy_name(notification.pid, args[1]);
  if (request.syscall == SCMP_SYS(renameat) || request.syscall == SCMP_SYS(renameat2)) {
    request.name = copy_name(notification.pid, args[1]);
    request.to = pin(notification.pid, args[2]);
    request.to_name = copy_name(notification.pid, args[3]);
  }
  return request;
}

int change_mode(const Request& request, bool own) {
  const auto asked = static_cast<mode_t>(request.args[1]) & 07777;
  // Through /proc/self/fd: that works on O_PATH descriptors and reopens nothing.
  const std::string path = "/proc/self/fd/" + std::to_string(request.file.get());
  return chmod(path.c_str(), own ? asked : asked & ~kSetIdBits) == 0 ? 0 : errno;
}

int change_owner(const Request& request, bool own) {
  const bool at = request.syscall == SCMP_SYS(fchownat);
  if (at && (request.args[4] & AT_EMPTY_PATH) == 0) return EPERM;
  if (!own) return 0;
  const auto uid = static_cast<uid_t>(request.args[at ? 2 : 1]);
  const auto gid = static_cast<gid_t>(request.args[at ? 3 : 2]);
  return fchownat(request.file.get(), "", uid, gid, AT_EMPTY_PATH) == 0 ? 0 : errno;
}

int remove_name(const Request& request) {
  if (request.name.empty()) return EPERM;
  const int flags = static_cast<int>(request.args[2]);
  return unlinkat(request.file.get(), request.name.c_str(), flags) == 0 ? 0 : errno;
}

int change_name(const Request& request) {
  if (request.name.empty() || request.to_name.empty()) return EPERM;
  if (!request.to) return EBADF;
  const auto flags =
      request.syscall == SCMP_SYS(renameat2) ? static_cast<unsigned>(request.args[4]) : 0u;
  return renameat2(request.file.get(), request.name.c_str(), request.to.get(),
                   request.to_name.c_str(), flags) == 0
             ? 0
             : errno;
}

// Makes the call; what it would have failed with, as an errno.
int perform(const Request& request, dev_t overlay_dev) {
  struct stat st{};
  if (fstat(request.file.get(), &st) != 0) return errno;
  const bool own = st.st_dev == overlay_dev;
  switch (request.syscall) {
    case SCMP_SYS(fchmod):
      return change_mode(request, own);
    case SCMP_SYS(fchown):
    case SCMP_SYS(fchownat):
      return change_owner(request, own);
    case SCMP_SYS(unlinkat):
      return remove_name(request);
    case SCMP_SYS(renameat):
    case SCMP_SYS(renameat2):
      return change_name(request);
    default:
      return EPERM;
  }
}

}  // namespace

// CAP_SETFCAP is not among them: the kernel wants it from who maps id 0 in a namespace of its own,
// as runsc does.
Result<void> drop_what_runsc_never_needs() {
  if (capng_get_caps_process() != 0) return fail(Code::kInternal, "reading capabilities");
  for (const unsigned capability :
       {CAP_SYS_MODULE, CAP_SYS_RAWIO, CAP_SYS_TIME, CAP_SYSLOG, CAP_BPF, CAP_PERFMON,
        CAP_MAC_ADMIN, CAP_MAC_OVERRIDE, CAP_AUDIT_CONTROL, CAP_AUDIT_READ, CAP_WAKE_ALARM,
        CAP_SYS_BOOT, CAP_LINUX_IMMUTABLE, CAP_SYS_PACCT, CAP_SYS_TTY_CONFIG}) {
    // From the bounding set: exec by root of the namespace would give it back otherwise.
    if (capng_update(
            CAPNG_DROP,
            static_cast<capng_type_t>(CAPNG_EFFECTIVE | CAPNG_PERMITTED | CAPNG_BOUNDING_SET),
            capability) != 0) {
      return fail(Code::kInternal, "choosing capabilities");
    }
  }
  if (capng_apply(CAPNG_SELECT_BOTH) != 0) return fail(Code::kInternal, "dropping capabilities");
  return {};
}

Result<UniqueFd> load_runsc_filter(const FilterOptions& options) {
  std::vector<Rule> all = rules();
  // Giving memory back is the same call, with another mode.
  if (!options.preallocates) {
    all.push_back(
        rule(SCMP_ACT_ERRNO(EOPNOTSUPP), SCMP_SYS(fallocate), masked(1, FALLOC_FL_PUNCH_HOLE, 0)));
  }
  if (!options.socket_families.empty()) add_rules_of_sockets(options.socket_families, all);
  return load_filter(SCMP_ACT_ALLOW, SCMP_ACT_ERRNO(ENOSYS), all);
}

Result<std::optional<Farewell>> answer_runsc(int listener, dev_t overlay_dev) {
  seccomp_notif* request = nullptr;
  seccomp_notif_resp* response = nullptr;
  if (seccomp_notify_alloc(&request, &response) != 0) {
    return fail(Code::kExhausted, "seccomp_notify_alloc");
  }
  const ScopeExit release([&] { seccomp_notify_free(request, response); });
  // ENOENT and EINTR: the caller was killed meanwhile.
  if (seccomp_notify_receive(listener, request) != 0) return std::nullopt;
  const bool passes =
      request->data.nr == SCMP_SYS(exit_group) || request->data.nr == SCMP_SYS(kill);
  std::optional<Farewell> out;
  if (passes) out = farewell(*request);
  const Request call = passes ? Request{} : take(*request);
  // Only after this check is it certain that the thread was still the caller when it was read.
  if (seccomp_notify_id_valid(listener, request->id) != 0) return std::nullopt;
  response->id = request->id;
  response->error = passes ? 0 : -(call.file ? perform(call, overlay_dev) : EBADF);
  response->val = 0;
  response->flags = passes ? SECCOMP_USER_NOTIF_FLAG_CONTINUE : 0;
  (void)seccomp_notify_respond(listener, response);
  return out;
}

}  // namespace temenos::jail
