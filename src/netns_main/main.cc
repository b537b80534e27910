// temenos-netsetup: started in a box's network namespace, as root of the user namespace that owns
// it, with a SOCK_SEQPACKET socket as descriptor 3. It makes the box's network (netns/setup.h),
// answers once and ends.
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>

#include "egress/control.h"
#include "egress/netns_answer.h"
#include "egress/plan.h"
#include "netns/setup.h"

namespace temenos {
namespace {

using egress::Listener;
static_assert(netns::kListeners == egress::kListenerCount);
static_assert(static_cast<int>(Listener::kTcp4) == 0 && static_cast<int>(Listener::kTcp6) == 1 &&
              static_cast<int>(Listener::kDnsUdp4) == 2 &&
              static_cast<int>(Listener::kDnsUdp6) == 3 &&
              static_cast<int>(Listener::kDnsTcp4) == 4 &&
              static_cast<int>(Listener::kDnsTcp6) == 5);

int run() {
  int type = 0;
  socklen_t size = sizeof type;
  if (getsockopt(egress::kAnswerFd, SOL_SOCKET, SO_TYPE, &type, &size) != 0 ||
      type != SOCK_SEQPACKET) {
    fputs("temenos-netsetup: this program is started by temenos; run 'temenos --help'\n", stderr);
    return 125;
  }
  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  const netns::Plan plan{std::string(egress::kRouter4),
                         std::string(egress::kBox4),
                         egress::kBoxPrefix4,
                         std::string(egress::kRouter6),
                         std::string(egress::kBox6),
                         egress::kBoxPrefix6,
                         egress::kMtu};
  const auto made = netns::set_up(plan);
  const auto spent = std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - begin);
  const auto sent = made.ok ? egress::send_listeners(egress::kAnswerFd, made.listeners,
                                                     static_cast<std::uint32_t>(spent.count()))
                            : egress::send_failure(egress::kAnswerFd, made.failure);
  return made.ok && sent ? 0 : 1;
}

}  // namespace
}  // namespace temenos

int main() { return temenos::run(); }
