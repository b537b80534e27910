#include "jail/session_jail.h"

#include <sched.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/try.h"
#include "jail/filter.h"

namespace temenos::jail {
namespace {

constexpr std::uint64_t kLastStartFd = 4;  // 0 to 2, init and keeper

std::vector<Rule> rules(std::uint64_t max_file) {
  std::vector<Rule> out = everyday_rules();
  // write(2) is there anyway, and spools are open for appending, so this is all that they need. Who
  // has taken session over can empty or overwrite, with it, the spools of this box's live jobs, up
  // to max_file each, and nothing else: no other file of the host is open here, descriptors cannot
  // be copied to other numbers, and those that session was started with are left out.
  if (max_file != 0) {
    out.push_back(rule(SCMP_ACT_ALLOW, SCMP_SYS(ftruncate), above(0, kLastStartFd)));
  }
  return out;
}

}  // namespace

Result<void> enter_session_jail(std::uint64_t max_file) {
  TRY(become_nobody_special());
  TRY(leave_the_host(CLONE_NEWNET));
  TRY(drop_rights({.file = max_file}));
  TRY(load_filter(SCMP_ACT_ERRNO(EPERM), SCMP_ACT_KILL_PROCESS, rules(max_file)));
  return {};
}

std::vector<JailProbe> probe_session_jail() {
  std::vector<JailProbe> probes = probe_every_jail();
  probes.push_back(probe("socket", syscall(SYS_socket, AF_INET, SOCK_STREAM, 0)));
  probes.push_back(probe("sendmsg", syscall(SYS_sendmsg, 0, nullptr, 0)));
  return probes;
}

}  // namespace temenos::jail
