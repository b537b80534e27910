// temenos-dialer: the only process of a box with the host's network. Started by keeper with
// descriptor 3 to keeper, 4 and 5 the log's segments, 6 the table of names; locks itself down
// before it reads anything.
#include <sys/resource.h>

#include <csignal>
#include <cstdio>
#include <cstring>

#include "egress/control.h"
#include "egress/dialer.h"
#include "jail/dialer_jail.h"
#include "sys/process_sys.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
// The leak check at exit starts a thread and traces it: the jail forbids both.
extern "C" const char* __asan_default_options() { return "detect_leaks=0"; }
#endif
#endif

namespace {

int complain(const temenos::Error& error) {
  std::fprintf(stderr, "temenos-dialer: %s\n", error.to_string().c_str());
  return 125;
}

// Each connection that is being made is a descriptor or two.
void raise_descriptor_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  (void)setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace

int main(int argc, char** argv) {
  using namespace temenos;
  if (argc == 2 && std::strcmp(argv[1], "--version") == 0) {
    std::puts("temenos-dialer " TEMENOS_VERSION);
    return 0;
  }
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
  UniqueFd control(egress::kControlFd);
  const int control_fd = control.get();
  egress::Log log({UniqueFd(egress::kFirstLogFd), UniqueFd(egress::kSecondLogFd)});
  raise_descriptor_limit();
  auto names = egress::NameTable::open(egress::kNamesFd);
  if (!names) return complain(names.error());
  close(egress::kNamesFd);  // the mapping stays
  auto dialer = egress::Dialer::make(std::move(control), std::move(log), std::move(*names));
  if (!dialer) return complain(dialer.error());
  if (auto jailed = jail::enter_dialer_jail(egress::kLogSegment); !jailed) {
    return complain(jailed.error());
  }
  const egress::Control record{egress::ControlType::kJailed};
  const std::string_view bytes(reinterpret_cast<const char*>(&record), sizeof record);
  if (!sys::send_with_fds(control_fd, bytes, {})) return 125;
  if (auto served = dialer->serve(); !served) return complain(served.error());
  return 0;
}
