// temenos-front: reads what a box sends to the network. Started by keeper with descriptor 3 to it
// and the router's listeners from 4 on; locks itself down before it takes anything from them.
#include <sys/socket.h>

#include <csignal>
#include <cstdio>
#include <cstring>

#include "egress/control.h"
#include "front/front.h"
#include "jail/front_jail.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
// The leak check at exit starts a thread and traces it: the jail forbids both.
extern "C" const char* __asan_default_options() { return "detect_leaks=0"; }
#endif
#endif

int main(int argc, char** argv) {
  using namespace temenos;
  if (argc == 2 && std::strcmp(argv[1], "--version") == 0) {
    std::puts("temenos-front " TEMENOS_VERSION);
    return 0;
  }
  std::signal(SIGPIPE, SIG_IGN);
  UniqueFd control(egress::kControlFd);
  egress::Listeners listeners;
  for (int i = 0; i < static_cast<int>(listeners.size()); ++i) {
    listeners[static_cast<std::size_t>(i)].reset(egress::kFirstListenerFd + i);
  }
  UniqueFd* const datagrams[] = {
      &listeners[static_cast<std::size_t>(egress::Listener::kDnsUdp4)],
      &listeners[static_cast<std::size_t>(egress::Listener::kDnsUdp6)],
  };
  constexpr unsigned kMaxFds =
      front::kFdsBeside + front::kFdsOfConnection * static_cast<unsigned>(front::kMaxConnections);
  const auto fds = jail::enter_front_jail(kMaxFds, datagrams);
  if (!fds) {
    std::fprintf(stderr, "temenos-front: %s\n", fds.error().to_string().c_str());
    return 125;
  }
  const egress::Control ready{.type = egress::ControlType::kJailed};
  if (send(control.get(), &ready, sizeof ready, MSG_NOSIGNAL) != sizeof ready) return 125;
  const auto served =
      front::serve(std::move(control), std::move(listeners), front::default_config(*fds));
  if (!served) std::fprintf(stderr, "temenos-front: %s\n", served.error().to_string().c_str());
  return served ? 0 : 125;
}
