// temenos-init: PID 1 of a box. Descriptor 0 is the socket to session, and only that: a sandbox
// that is given one socket as two descriptors now and then makes it fail with EAGAIN.
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "init/knock.h"
#include "init/rights.h"
#include "init/server.h"

namespace {

constexpr rlim_t kWantedDescriptors = 8192;  // three pipes for each of 1024 execs, and files

// True when it was raised; `before` is what children get back.
bool raise_descriptors(rlimit& before) {
  if (getrlimit(RLIMIT_NOFILE, &before) != 0 || before.rlim_cur >= kWantedDescriptors) return false;
  const rlimit raised{std::min(kWantedDescriptors, before.rlim_max), before.rlim_max};
  return raised.rlim_cur > before.rlim_cur && setrlimit(RLIMIT_NOFILE, &raised) == 0;
}

int fail(const char* what) {
  std::fprintf(stderr, "temenos-init: %s: %s\n", what, std::strerror(errno));
  return 125;
}

}  // namespace

int main(int argc, char** argv) {
  using namespace temenos;
  if (argc == 2 && std::strcmp(argv[1], "--version") == 0) {
    std::puts("temenos-init " TEMENOS_VERSION);
    return 0;
  }
  // Whatever else the box was started with is nobody's.
  close_range(3, ~0u, 0);
  UniqueFd socket(fcntl(0, F_DUPFD_CLOEXEC, 3));
  const UniqueFd null(open("/dev/null", O_RDWR | O_CLOEXEC));
  if (!socket || !null)
    return fail("descriptor 0 must be the socket to session, and /dev/null be there");
  if (dup2(null.get(), 0) < 0) return fail("dup2");
  umask(022);
  init::prepare_signals();
  init::ProcessTrees trees(init::ProcessTrees::take_pids_cgroup());
  if (!init::drop_capabilities()) return fail("cannot give capabilities up");
  if (argc == 4 && std::strcmp(argv[1], "--knock") == 0) init::knock(argv[2], argv[3]);
  rlimit before{};
  const bool raised = raise_descriptors(before);
  return init::Server(std::move(socket), std::move(trees), raised ? &before : nullptr).run();
}
