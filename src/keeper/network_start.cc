#include "keeper/network_start.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <vector>

#include "base/try.h"
#include "egress/netns_answer.h"
#include "keeper/messages.h"

namespace temenos::keeper {
namespace {

constexpr int kTimeoutMs = 20'000;

}  // namespace

int become_netsetup(int program, int socket) {
  // Twice, so that the target is not needed as a source any more.
  const int program_copy = fcntl(program, F_DUPFD_CLOEXEC, 10);
  const int socket_copy = fcntl(socket, F_DUPFD_CLOEXEC, 10);
  if (program_copy < 0 || dup2(socket_copy, egress::kAnswerFd) < 0 ||
      !sys::close_on_exec_from(egress::kAnswerFd + 1)) {
    return errno;
  }
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  char name[] = "temenos-netsetup";
  char* const argv[] = {name, nullptr};
  char* const environment[] = {nullptr};
  execveat(program_copy, "", argv, environment, AT_EMPTY_PATH);
  return errno;
}

Error no_netsetup(int err) {
  return fail_errno(err, "cannot run temenos-netsetup",
                    "it must be executable by everybody: run ./scripts/setup again")
      .value();
}

Error no_enforcement(Error error) {
  if (!error.hint.empty()) error.hint += "; ";
  error.hint += "or, without a boundary: --enforcement cooperative";
  return error;
}

NetworkStart::~NetworkStart() {
  process_.send(SIGKILL);
  process_.wait();
}

Result<void> NetworkStart::begin(int program) {
  auto [here, there] = TRY(sys::socket_pair(SOCK_SEQPACKET));
  UniqueFd pidfd;
  // Its own mount namespace: it is still to find the host's libraries when helper has pivoted.
  const pid_t pid = TRY(sys::raw_fork(CLONE_NEWNS, &pidfd));
  if (pid == 0) {
    netns::Failure failure;
    const int err = become_netsetup(program, there.get());
    failure.error = no_netsetup(err);
    (void)egress::send_failure(egress::kAnswerFd, failure);
    _exit(125);
  }
  process_ = sys::Process(pid, std::move(pidfd));
  socket_ = std::move(here);
  return {};
}

Result<void> NetworkStart::finish(int control) {
  auto listeners = egress::receive_listeners(socket_.get(), kTimeoutMs);
  if (!listeners) {
    return tl::make_unexpected(no_enforcement(
        std::move(listeners).error().with_context("the box cannot have a filtered network")));
  }
  process_.wait();
  Message message;
  message.kind = Message::kNetwork;
  std::vector<int> fds;
  for (const auto& listener : *listeners) fds.push_back(listener.get());
  return send_message(control, message, fds);
}

}  // namespace temenos::keeper
