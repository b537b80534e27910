#include "box/network_probe.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/try.h"
#include "egress/netns_answer.h"
#include "keeper/id_plan.h"
#include "keeper/keeper.h"
#include "keeper/network_start.h"
#include "sys/file_sys.h"
#include "sys/process_sys.h"
#include "temenos/egress_proxy.h"

namespace temenos::box {
namespace {

using netns::Step;

constexpr int kTimeoutMs = 20'000;
constexpr int kNamespaces = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWNET;

// In the child: as helper does it for a box.
[[noreturn]] void make_one(int program, int socket) {
  netns::Failure failure;
  char byte;
  if (read(socket, &byte, 1) != 1) _exit(1);  // the ids are mapped
  auto root = sys::become_namespace_root();
  if (root) root = sys::die_with_parent();
  failure.error =
      root ? keeper::no_netsetup(keeper::become_netsetup(program, socket)) : root.error();
  (void)egress::send_failure(socket, failure);
  _exit(1);
}

Result<egress::Answer> ask(const HostDirs& dirs) {
  const UniqueFd program = TRY(sys::open_canonical(TRY(box::program(dirs, "temenos-netsetup"))));
  auto [here, there] = TRY(sys::socket_pair(SOCK_SEQPACKET));
  UniqueFd pidfd;
  const auto pid = sys::raw_fork(kNamespaces, &pidfd);
  if (!pid) return tl::make_unexpected(keeper::no_user_namespaces(pid.error().sys_errno));
  if (*pid == 0) {
    here.reset();
    make_one(program.get(), there.get());
  }
  there.reset();
  sys::Process child(*pid, std::move(pidfd));
  auto answer = [&]() -> Result<egress::Answer> {
    TRY(keeper::apply_ids(keeper::plan_ids(), child.pid()));
    TRY(sys::send_with_fds(here.get(), "x", {}));
    return TRY(egress::receive_answer(here.get(), kTimeoutMs)).answer;
  }();
  child.send(SIGKILL);
  child.wait();
  return answer;
}

}  // namespace

NetworkTrial try_network(const HostDirs& dirs) {
  NetworkTrial out;
  const auto answer = ask(dirs);
  const Step step = answer ? answer->step : Step::kNamespaces;
  out.enforced = step == Step::kDone;
  out.netns = step > Step::kLinks;
  out.nft = step > Step::kNft;
  out.tproxy = step > Step::kTproxy;
  if (out.enforced) return out;
  Error error = answer ? egress::to_error(*answer) : answer.error();
  out.cooperative = EgressProxy::start({}, {.libexec = dirs.libexec}).has_value();
  if (out.cooperative) error = keeper::no_enforcement(std::move(error));
  out.fix = std::exchange(error.hint, "");
  out.why = error.to_string();
  return out;
}

}  // namespace temenos::box
