// temenos-front: reads what a box sends to the network. Started by keeper with descriptor 3 to it
// and the router's listeners, or what a proxy has (egress/control.h), from 4 on; locks itself down
// before it takes anything from them.
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <optional>
#include <vector>

#include "egress/control.h"
#include "egress/plan.h"
#include "front/front.h"
#include "jail/front_jail.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
// The leak check at exit starts a thread and traces it: the jail forbids both.
extern "C" const char* __asan_default_options() { return "detect_leaks=0"; }
#endif
#endif

namespace {

std::optional<temenos::front::Login> read_login(temenos::UniqueFd file, bool of_box) {
  std::array<char, temenos::egress::kMaxProxyPassword> password;
  const ssize_t size = read(file.get(), password.data(), password.size());
  if (size <= 0) return std::nullopt;
  return temenos::front::Login({password.data(), static_cast<std::size_t>(size)}, of_box);
}

}  // namespace

int main(int argc, char** argv) {
  using namespace temenos;
  if (argc == 2 && std::strcmp(argv[1], "--version") == 0) {
    std::puts("temenos-front " TEMENOS_VERSION);
    return 0;
  }
  std::signal(SIGPIPE, SIG_IGN);
  const bool of_box = argc == 2 && std::strcmp(argv[1], egress::kBoxProxy) == 0;
  const bool is_proxy = of_box || (argc == 2 && std::strcmp(argv[1], egress::kProxyAlone) == 0);
  UniqueFd control(egress::kControlFd);
  egress::Listeners listeners;
  UniqueFd proxy;
  std::optional<front::Login> login;
  std::vector<UniqueFd*> datagrams;
  if (is_proxy) {
    proxy.reset(egress::kFirstListenerFd);
    login = read_login(UniqueFd(egress::kFirstListenerFd + 1), of_box);
    if (!login) return 125;
  } else {
    for (int i = 0; i < static_cast<int>(listeners.size()); ++i) {
      listeners[static_cast<std::size_t>(i)].reset(egress::kFirstListenerFd + i);
    }
    for (const auto which : {egress::Listener::kDnsUdp4, egress::Listener::kDnsUdp6}) {
      datagrams.push_back(&listeners[static_cast<std::size_t>(which)]);
    }
  }
  constexpr unsigned kMaxFds =
      front::kFdsBeside + front::kFdsOfConnection * static_cast<unsigned>(front::kMaxConnections);
  const auto fds = jail::enter_front_jail(kMaxFds, datagrams);
  if (!fds) {
    std::fprintf(stderr, "temenos-front: %s\n", fds.error().to_string().c_str());
    return 125;
  }
  const egress::Control ready{.type = egress::ControlType::kJailed};
  if (send(control.get(), &ready, sizeof ready, MSG_NOSIGNAL) != sizeof ready) return 125;
  const auto config = front::default_config(*fds);
  const auto served =
      is_proxy ? front::serve_proxy(std::move(control), std::move(proxy), std::move(*login), config)
               : front::serve(std::move(control), std::move(listeners), config);
  if (!served) std::fprintf(stderr, "temenos-front: %s\n", served.error().to_string().c_str());
  return served ? 0 : 125;
}
