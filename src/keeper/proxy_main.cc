#include "keeper/proxy_main.h"

#include <poll.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <span>

#include "base/try.h"
#include "jail/keeper_rights.h"
#include "keeper/egress_watch.h"
#include "keeper/messages.h"
#include "keeper/network_requests.h"

namespace temenos::keeper {
namespace {

constexpr int kControl = 3;

class ProxyKeeper {
 public:
  explicit ProxyKeeper(UniqueFd control) : control_(std::move(control)) {}
  ~ProxyKeeper() { egress_.end(); }

  Result<void> start(EgressWatch::Parts parts) {
    TRY(egress_.begin(std::move(parts)));
    TRY(egress_.be_proxy(false));
    // As the keeper of a box: what is left is to start these two again.
    if (geteuid() == 0) TRY(jail::keep_cleanup_rights());
    return {};
  }

  // Until the other side has gone.
  Result<void> run() {
    bool ready = false;
    for (;;) {
      const auto network = egress_.polls();
      std::array<pollfd, 1 + EgressWatch::kPolls> polls{{{control_.get(), POLLIN, 0}}};
      std::copy(network.begin(), network.end(), polls.begin() + 1);
      if (poll(polls.data(), polls.size(), egress_.timeout_ms()) < 0) continue;  // EINTR
      egress_.check(std::span(polls).subspan(1));
      (void)egress_.take_news();  // nobody reads them
      if (!ready && egress_.start_failure()) return tl::make_unexpected(*egress_.start_failure());
      if (!ready && egress_.is_proven()) {
        ready = true;
        Message message;
        message.kind = Message::kReady;
        message.proxy = egress_.proxy();
        TRY(send_message(control_.get(), message));
      }
      if (polls[0].revents != 0 && !answer()) return {};
    }
  }

 private:
  // False: there is nobody any more, or nobody who speaks as we do.
  bool answer() {
    auto request = receive_message_with_fds(control_.get(), kMaxMessageFds);
    if (!request || request->fds.size() != descriptors_of(request->message.kind)) return false;
    const auto reply = answer_for_network(egress_, request->message, request->fds);
    return reply && send_message(control_.get(), *reply);
  }

  UniqueFd control_;
  EgressWatch egress_;
};

}  // namespace

int proxy_main(const std::string& dialer, const std::string& front) {
  for (const int number : {SIGPIPE, SIGINT, SIGHUP, SIGQUIT}) signal(number, SIG_IGN);
  signal(SIGCHLD, SIG_DFL);
  ProxyKeeper keeper{UniqueFd(kControl)};
  EgressWatch::Parts parts{.dialer = dialer, .front = front};
  for (int i = 0; i < 2; ++i) parts.log[static_cast<std::size_t>(i)].reset(kControl + 1 + i);
  parts.rules.reset(kControl + 3);
  auto served = keeper.start(std::move(parts));
  if (served) served = keeper.run();
  if (!served) (void)send_message(kControl, failure(served.error()));
  return served ? 0 : 1;
}

}  // namespace temenos::keeper
