// temenos-session: the only process that parses what a box's init says. Started by keeper with
// descriptor 3 to init and 4 to keeper; locks itself down before it reads a byte of init.
#include <csignal>
#include <cstdio>
#include <cstring>

#include "jail/session_jail.h"
#include "session/loop.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
// The leak check at exit starts a thread and traces it: the jail forbids both.
extern "C" const char* __asan_default_options() { return "detect_leaks=0"; }
#endif
#endif

int main(int argc, char** argv) {
  using namespace temenos;
  if (argc == 2 && std::strcmp(argv[1], "--version") == 0) {
    std::puts("temenos-session " TEMENOS_VERSION);
    return 0;
  }
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
  UniqueFd init(session::kInitFd);
  UniqueFd control(session::kControlFd);
  if (auto jailed = jail::enter_session_jail(session::kMaxSegment); !jailed) {
    std::fprintf(stderr, "temenos-session: %s\n", jailed.error().to_string().c_str());
    return 125;
  }
  if (!session::send_control(control.get(), {session::ControlType::kJailed})) return 125;
  return session::serve(std::move(init), std::move(control)) ? 0 : 125;
}
