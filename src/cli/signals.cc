#include "cli/signals.h"

#include <signal.h>
#include <sys/signalfd.h>

#include <cerrno>

namespace temenos::cli {

Result<void> take_signals(UniqueFd& fd, bool with_resizes) {
  sigset_t set;
  sigemptyset(&set);
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2})
    sigaddset(&set, number);
  if (with_resizes) sigaddset(&set, SIGWINCH);
  if (sigprocmask(SIG_BLOCK, &set, nullptr) != 0) return fail_errno(errno, "blocking signals");
  const int taken = signalfd(fd.get(), &set, SFD_CLOEXEC | SFD_NONBLOCK);
  if (taken < 0) return fail_errno(errno, "signalfd");
  if (!fd) fd.reset(taken);
  return {};
}

int waiting_signal(int fd) {
  signalfd_siginfo info;
  return read(fd, &info, sizeof info) == sizeof info ? static_cast<int>(info.ssi_signo) : 0;
}

}  // namespace temenos::cli
