#include "keeper/keeper.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <span>
#include <vector>

#include "audit/log.h"
#include "base/host_ids.h"
#include "base/text.h"
#include "base/try.h"
#include "disk/quota.h"
#include "egress/netns_answer.h"
#include "jail/keeper_rights.h"
#include "keeper/box_limits.h"
#include "keeper/callers.h"
#include "keeper/deadline.h"
#include "keeper/egress_watch.h"
#include "keeper/helper.h"
#include "keeper/launch_spec.h"
#include "keeper/messages.h"
#include "keeper/sources.h"
#include "session/control.h"
#include "sys/file_sys.h"
#include "sys/process_sys.h"

namespace temenos::keeper {
namespace {

using session::ControlMessage;
using session::ControlType;

constexpr int kNamespaces =
    CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP;
// The helper kills and then removes files; a box may have very many.
constexpr int kEndTimeoutMs = 60'000;
// Messages of a session that may be waiting when the box has ended.
constexpr int kMaxLastWords = 1'000;
// It knows more of a sandbox that has gone, and says it within moments.
constexpr std::int64_t kHelperPatienceMs = 2'000;

std::int64_t now_ms() {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return std::int64_t{t.tv_sec} * 1000 + t.tv_nsec / 1'000'000;
}

// Of two time-outs of poll(2), where -1 is none.
int sooner(int a, int b) { return a < 0 ? b : b < 0 ? a : std::min(a, b); }

std::string host_setting(const char* path) {
  auto text = sys::read_path(path, 64).value_or("");
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
  return text;
}

class Keeper {
 public:
  Keeper(UniqueFd control, Launch launch)
      : callers_(std::move(control), std::move(launch.listener)), launch_(std::move(launch)) {}

  Result<void> start();
  // Until the box has ended; returns why.
  Message run();
  // Ends what runs and leaves nothing but what is to last. The callers hear `last` afterwards.
  void end(const Message& last);

 private:
  Result<void> start_helper();
  Result<void> start_session(UniqueFd init_end);
  Result<void> wait_for_maps();
  Result<UniqueFd> lock_data_dir() const;
  std::optional<Message> on_helper();
  std::optional<Message> on_session();
  std::optional<Message> begin_when_ready();
  Message start_timed_out() const;
  void log_network_news();
  bool session_went_first();
  Result<void> tell_session(ControlType type, std::span<const int> fds) const;
  Result<void> count_time();
  std::optional<Message> on_deadlines() const;
  Message ended(EndReason reason, const std::string& detail = "") const;
  Message ended(const BoxLimits::End& end) const;
  Message died(EndReason reason) const;
  void log_end(const Message& last) const;

  Callers callers_;
  UniqueFd lock_;  // the data dir's, held until the end
  Launch launch_;
  IdPlan plan_ = plan_ids();
  sys::Process helper_;
  sys::Process session_;
  UniqueFd helper_control_;
  UniqueFd session_control_;
  std::int64_t deadline_ = 0;
  Deadline ttl_;
  Deadline idle_;  // set while session has nothing to do
  BoxLimits limits_;
  UniqueFd term_;  // SIGTERM: systemd stops the box's scope
  EgressWatch egress_;
  bool session_ready_ = false;
  bool ready_ = false;
  bool init_lost_ = false;  // session said that the box's init has left
};

Message Keeper::ended(EndReason reason, const std::string& detail) const {
  Error error;
  error.code = Code::kBoxDied;
  error.what = std::string(end_reason_text(reason)) + detail;
  error.hint = std::string(end_reason_hint(reason));
  Message message = failure(error);
  message.kind = ready_ ? Message::kEnded : Message::kFailed;
  message.value = static_cast<std::uint32_t>(reason);
  return message;
}

Message Keeper::ended(const BoxLimits::End& end) const {
  Message message = ended(end.reason, end.detail);
  put_evidence(message, end.evidence);
  return message;
}

// A process of ours was killed by somebody else. By the kernel, at a limit?
Message Keeper::died(EndReason reason) const {
  const auto cause = limits_.cause(reason == EndReason::kSandboxCrashed);
  return cause ? ended(*cause) : ended(reason);
}

// From the moment in which the box is there for others.
Result<void> Keeper::count_time() {
  if (launch_.spec.ttl_s > 0) TRY(ttl_.set(launch_.spec.ttl_s));
  if (launch_.spec.idle_s == 0) return {};
  // Session answers at once with what it has to do now.
  return tell_session(ControlType::kReportActivity, {});
}

std::optional<Message> Keeper::on_deadlines() const {
  if (ttl_.over()) {
    return ended(EndReason::kTtlOver, ": " + std::to_string(launch_.spec.ttl_s) + " s");
  }
  if (idle_.over()) {
    return ended(EndReason::kIdle, ": " + std::to_string(launch_.spec.idle_s) + " s");
  }
  return std::nullopt;
}

Result<void> Keeper::start() {
  sigset_t term;
  sigemptyset(&term);
  sigaddset(&term, SIGTERM);
  term_.reset(signalfd(-1, &term, SFD_CLOEXEC | SFD_NONBLOCK));
  // Session and the rest inherit that: it is keeper who ends a box.
  if (!term_ || sigprocmask(SIG_BLOCK, &term, nullptr) != 0) return fail_errno(errno, "signalfd");
  deadline_ = now_ms() + std::int64_t{launch_.spec.start_timeout_s} * 1000;
  if (mkdirat(launch_.data_dir.get(), "box", 0755) != 0 && errno != EEXIST) {
    return fail_errno(errno, "making " + escape(launch_.spec.data_dir) + "/box",
                      "free some disk space, or set XDG_DATA_HOME to a directory with room");
  }
  if (plan_.as_root &&
      fchownat(launch_.data_dir.get(), "box", kBoxIdBase, kBoxIdBase, AT_SYMLINK_NOFOLLOW) != 0) {
    if (errno != EINVAL) return fail_errno(errno, "giving the box its directory");
    return fail(Code::kUnsupported, "this root has no user ids to give to a box",
                "it is the root of a user namespace, as in a container: run temenos outside of it");
  }
  // Before anything is started: with systemd this process moves, and what it starts with it.
  TRY(limits_.begin(launch_.spec, launch_.data_dir.get()));
  TRY(egress_.begin(launch_.spec, launch_.data_dir.get()));
  // Without a limit the box has what the host has.
  if (!limits_.memory_is_held()) launch_.spec.limits.memory_mb = 0;
  return start_helper();
}

// Shared, beside the launcher's: the data dir is free for others when nobody holds one any more.
Result<UniqueFd> Keeper::lock_data_dir() const {
  UniqueFd lock = TRY(sys::open_beneath(launch_.data_dir.get(), "lock", O_RDONLY));
  if (flock(lock.get(), LOCK_SH | LOCK_NB) != 0)
    return fail_errno(errno, "locking the data directory");
  return lock;
}

Result<void> Keeper::start_helper() {
  HelperStart start;
  start.launch = &launch_;
  start.plan = &plan_;
  if (plan_.as_root) start.sources = TRY(clone_sources(launch_, plan_));
  auto [helper_here, helper_there] = TRY(sys::socket_pair(SOCK_SEQPACKET));
  auto [init_box, init_session] = TRY(sys::socket_pair(SOCK_STREAM));
  // Two: helper's must be its own, so that no one can unlock it for the other.
  lock_ = TRY(lock_data_dir());
  const UniqueFd lock = TRY(lock_data_dir());
  start.lock = lock.get();
  start.control = helper_there.get();
  start.init_socket = init_box.get();
  // The session first: it is small, and it must not inherit what the helper holds.
  TRY(start_session(std::move(init_session)));
  const bool host_network = launch_.spec.network == NetworkMode::kHost;
  const int namespaces = kNamespaces | (host_network ? 0 : CLONE_NEWNET);
  // By us: the box's root need not be able to reach it.
  UniqueFd netsetup;
  if (launch_.spec.network == NetworkMode::kFiltered) {
    netsetup = TRY(sys::open_canonical(TRY(sys::resolve(launch_.spec.netsetup))));
    start.netsetup = netsetup.get();
  }
  start.join = limits_.join_fds();
  start.meter = limits_.meter_socket();
  UniqueFd pidfd;
  auto pid = [&] {
    const TasksForTheUser rest;
    return sys::raw_fork(namespaces, &pidfd);
  }();
  if (!pid) return tl::make_unexpected(no_user_namespaces(pid.error().sys_errno));
  if (*pid == 0) {
    helper_here.reset();
    session_control_.reset();
    launch_.client.reset();
    _exit(helper_main(std::move(start)));
  }
  helper_ = sys::Process(*pid, std::move(pidfd));
  helper_control_ = std::move(helper_here);
  launch_.client.reset();
  // With ours still open, the end of a helper that is killed now would never be seen.
  helper_there.reset();
  init_box.reset();
  limits_.helper_is_there();
  return wait_for_maps();
}

Result<void> Keeper::wait_for_maps() {
  const auto hello = receive_message(helper_control_.get());
  if (hello && hello->kind == Message::kFailed) return tl::make_unexpected(to_error(*hello));
  Result<void> mapped;
  if (hello) mapped = apply_ids(plan_, helper_.pid());
  Message go;
  go.kind = Message::kMapped;
  if (hello && mapped) mapped = send_message(helper_control_.get(), go);
  pollfd gone{helper_control_.get(), 0, 0};
  if (!hello || (!mapped && poll(&gone, 1, 0) == 1)) {
    return tl::make_unexpected(to_error(ended(EndReason::kHelperDied)));
  }
  if (!mapped) return mapped;
  // Nothing is left to do with the rights of root but to clean up.
  if (plan_.as_root) TRY(jail::keep_cleanup_rights());
  return {};
}

Result<void> Keeper::start_session(UniqueFd init_end) {
  auto [here, there] = TRY(sys::socket_pair(SOCK_SEQPACKET));
  UniqueFd pidfd;
  const pid_t pid = TRY(sys::raw_fork(0, &pidfd));
  if (pid == 0) {
    // Twice, so that neither target is still needed as a source.
    const int init_copy = fcntl(init_end.get(), F_DUPFD_CLOEXEC, 10);
    const int control_copy = fcntl(there.get(), F_DUPFD_CLOEXEC, 10);
    if (dup2(init_copy, session::kInitFd) < 0 || dup2(control_copy, session::kControlFd) < 0 ||
        !sys::close_on_exec_from(session::kControlFd + 1)) {
      _exit(125);
    }
    const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (const int fd : {0, 1, 2}) dup2(null, fd);
    char name[] = "temenos-session";
    char* const argv[] = {name, nullptr};
    char* const environment[] = {nullptr};
    execve(launch_.spec.session.c_str(), argv, environment);
    _exit(125);
  }
  session_ = sys::Process(pid, std::move(pidfd));
  session_control_ = std::move(here);
  const int client = launch_.client.get();
  return tell_session(ControlType::kAddClient, {&client, 1});
}

Result<void> Keeper::tell_session(ControlType type, std::span<const int> fds) const {
  ControlMessage message;
  message.type = type;
  return sys::send_with_fds(
      session_control_.get(),
      std::string_view(reinterpret_cast<const char*>(&message), sizeof message), fds);
}

std::optional<Message> Keeper::on_helper() {
  auto received = receive_message_with_fds(helper_control_.get(), netns::kListeners);
  if (!received) return died(EndReason::kHelperDied);
  Message* const message = &received->message;
  switch (message->kind) {
    case Message::kNetwork: {
      auto listeners = egress::checked_listeners(std::move(received->fds));
      const bool due = launch_.spec.network == NetworkMode::kFiltered && !egress_.has_listeners();
      if (!listeners || !due) return ended(EndReason::kHelperDied);
      if (const auto taken = egress_.take_listeners(std::move(*listeners)); !taken) {
        return failure(taken.error());
      }
      return std::nullopt;
    }
    case Message::kStarted:
      return std::nullopt;
    case Message::kFailed:
      return *message;
    case Message::kEnded:
      // Without a session init leaves, and then runsc ends well.
      if (session_went_first()) return died(EndReason::kSessionDied);
      if (!ready_) message->kind = Message::kFailed;
      {
        const auto reason = static_cast<EndReason>(message->value);
        const bool crashed = reason == EndReason::kSandboxCrashed;
        if (may_be_limit(reason) && limits_.cause(crashed)) return died(reason);
      }
      return *message;
    default:
      return ended(EndReason::kHelperDied);
  }
}

// Once, when the box's init has answered and its network has refused something: the box's time
// counts from here.
std::optional<Message> Keeper::begin_when_ready() {
  if (ready_ || !session_ready_ || !egress_.is_proven()) return std::nullopt;
  ready_ = true;
  Message ready;
  ready.kind = Message::kReady;
  put_text(ready, limits_.trouble());
  ready.numbers = limits_.numbers();
  ready.proxy = egress_.proxy();
  if (!count_time()) return died(EndReason::kSessionDied);
  callers_.box_is_ready();
  if (!callers_.tell_starter(ready)) return ended(EndReason::kStopped);
  if (launch_.spec.durable) callers_.outlive_starter();
  // All of runsc's processes are there from now on. When helper is gone, that is seen elsewhere.
  (void)send_message(helper_control_.get(), ready);
  return std::nullopt;
}

// Who is not ready in time: which part of it?
Message Keeper::start_timed_out() const {
  if (!session_ready_ || egress_.is_proven()) return ended(EndReason::kStartTimedOut);
  return ended(EndReason::kStartTimedOut,
               egress_.proxy().port != 0 ? ": its proxy does not start"
                                         : ": nobody has seen its network refuse a connection");
}

std::optional<Message> Keeper::on_session() {
  const auto received = sys::receive_with_fds(session_control_.get(), sizeof(ControlMessage), 0);
  if (!received || received->bytes.size() != sizeof(ControlMessage)) {
    return died(EndReason::kSessionDied);
  }
  ControlMessage message;
  memcpy(&message, received->bytes.data(), sizeof message);
  switch (message.type) {
    case ControlType::kJailed:
      return std::nullopt;
    case ControlType::kReady:
      if (session_ready_) break;
      session_ready_ = true;
      return begin_when_ready();
    case ControlType::kBusy:
    case ControlType::kIdle:
      if (!idle_.set(message.type == ControlType::kIdle ? launch_.spec.idle_s : 0)) break;
      return std::nullopt;
    case ControlType::kInitLost:
      init_lost_ = true;
      // With EOF the helper knows more (runsc's status and last words): its message comes.
      if (message.reason == static_cast<std::uint32_t>(session::LostReason::kEof))
        return std::nullopt;
      return ended(message.reason == static_cast<std::uint32_t>(session::LostReason::kTimeout)
                       ? EndReason::kStartTimedOut
                       : EndReason::kProtocol);
    case ControlType::kKillBox:
      return ended(message.reason == static_cast<std::uint32_t>(session::KillReason::kTreeSurvived)
                       ? EndReason::kTreeSurvived
                       : EndReason::kProtocol);
    case ControlType::kBye:
    case ControlType::kJobOver:
      return std::nullopt;
    case ControlType::kAddClient:
    case ControlType::kReportActivity:
    case ControlType::kAddJob:
    case ControlType::kStop:
      break;
  }
  return ended(EndReason::kSessionDied);
}

// True when the session has closed its socket and never said that init had left.
bool Keeper::session_went_first() {
  // It says little; one that never stops is not waited for.
  for (int i = 0; i < kMaxLastWords; ++i) {
    pollfd fd{session_control_.get(), POLLIN, 0};
    if (init_lost_ || poll(&fd, 1, 0) <= 0) return false;
    const auto message = on_session();
    if (message) return message->value == static_cast<std::uint32_t>(EndReason::kSessionDied);
  }
  return false;
}

Message Keeper::run() {
  bool session_gone = false;
  std::int64_t patience_end = 0;  // with helper, after session has gone
  std::vector<pollfd> polls;
  for (;;) {
    polls = {{helper_control_.get(), POLLIN, 0},
             {session_gone ? -1 : session_control_.get(), POLLIN, 0},
             {ttl_.fd(), POLLIN, 0},
             {idle_.fd(), POLLIN, 0},
             {term_.get(), POLLIN, 0},
             limits_.memory_poll(),
             limits_.disk_poll()};
    const std::size_t network = polls.size();
    const auto network_polls = egress_.polls();
    polls.insert(polls.end(), network_polls.begin(), network_polls.end());
    const std::size_t own = polls.size();
    callers_.add_polls(polls);
    // After the session has left because init did, the helper's message is a moment away.
    const std::int64_t limit = session_gone ? std::max<std::int64_t>(patience_end - now_ms(), 0)
                               : ready_     ? -1
                                            : deadline_ - now_ms();
    if (!ready_ && !session_gone && limit <= 0) return start_timed_out();
    const int look = sooner(limits_.timeout_ms(), egress_.timeout_ms());
    const bool look_first = look >= 0 && (limit < 0 || look < limit);
    if (session_gone && limit == 0) return died(EndReason::kSessionDied);
    const int n = poll(polls.data(), polls.size(), look_first ? look : static_cast<int>(limit));
    if (n < 0 && errno != EINTR) return ended(EndReason::kHelperDied);
    if (n == 0 && !look_first) {
      return session_gone ? died(EndReason::kSessionDied) : start_timed_out();
    }
    if (n < 0) continue;
    if (polls[4].revents != 0) return ended(EndReason::kStopped);
    if (const auto over = limits_.check(polls[5].revents, polls[6].revents)) return ended(*over);
    if (polls[0].revents != 0) {
      if (const auto message = on_helper()) return *message;
    }
    if (polls[1].revents != 0) {
      if (const auto message = on_session()) {
        const auto reason = static_cast<EndReason>(message->value);
        if (reason != EndReason::kSessionDied) return *message;
        session_gone = true;
        patience_end = now_ms() + kHelperPatienceMs;
      }
    }
    egress_.check(std::span(polls).subspan(network, EgressWatch::kPolls));
    log_network_news();
    if (!ready_ && egress_.start_failure()) return failure(*egress_.start_failure());
    if (const auto message = begin_when_ready()) return *message;
    if (callers_.serve(std::span(polls).subspan(own), session_gone ? -1 : session_control_.get(),
                       limits_, egress_)) {
      return ended(EndReason::kStopped);
    }
    // Last, and not by `polls`: what session has just said may have put the end off.
    if (const auto message = on_deadlines()) return *message;
  }
}

// By keeper: nobody else may be there to see it.
void Keeper::log_end(const Message& last) const {
  audit::Event event("end");
  event.text("reason", end_reason_name(static_cast<EndReason>(last.value)));
  event.text("what", to_error(last).what);
  audit::Log(launch_.data_dir.get()).write(event);
}

void Keeper::log_network_news() {
  for (const auto& news : egress_.take_news()) {
    if (!launch_.spec.durable) continue;
    audit::Event event("network");
    event.text("what", news);
    audit::Log(launch_.data_dir.get()).write(event);
  }
}

void Keeper::end(const Message& last) {
  // First, so that who comes now is refused at once and waits for the lock instead.
  callers_.close_listener();
  if (launch_.spec.durable) (void)unlinkat(launch_.data_dir.get(), kSocketName, 0);
  session_.send(SIGKILL);
  if (helper_) {
    // It sees the end of the socket, kills all in its namespace and removes the files.
    shutdown(helper_control_.get(), SHUT_WR);
    limits_.let_die();
    pollfd fd{helper_.pidfd(), POLLIN, 0};
    if (poll(&fd, 1, kEndTimeoutMs) <= 0) helper_.send(SIGKILL);
    helper_.wait();
  }
  session_.wait();
  egress_.end();
  limits_.end();
  if (!launch_.spec.durable) (void)remove_box(launch_.data_dir.get(), plan_);
  if (launch_.spec.durable) log_end(last);
  lock_.reset();
  callers_.say_goodbye(last);
}

}  // namespace

Error no_user_namespaces(int err) {
  Error error;
  error.code = Code::kUnsupported;
  error.what = "cannot make a user namespace";
  error.sys_errno = err;
  if (err == EAGAIN) {
    error.what = "this user has as many processes as boxes may leave him with";
    error.hint =
        "end some, or raise the limit (ulimit -u), of which a quarter is kept free of boxes";
    return error;
  }
  if (host_setting("/proc/sys/user/max_user_namespaces") == "0") {
    error.hint = "the host forbids them: sudo sysctl user.max_user_namespaces=65536";
  } else if (err == ENOSPC) {
    error.hint =
        "this user has as many namespaces as the host allows: "
        "sudo sysctl user.max_user_namespaces=65536";
  } else if (host_setting("/proc/sys/kernel/unprivileged_userns_clone") == "0" && geteuid() != 0) {
    error.hint =
        "the host forbids them to ordinary users: sudo sysctl kernel.unprivileged_userns_clone=1";
  } else if (host_setting("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") == "1" &&
             geteuid() != 0) {
    error.hint =
        "AppArmor restricts them: give temenos-keeper a profile with 'userns,' (see docs/host.md), "
        "or sudo sysctl kernel.apparmor_restrict_unprivileged_userns=0";
  } else {
    error.hint = "run outside of a container, or let the container make user namespaces";
  }
  return error;
}

Result<void> remove_box(int data_dir, const IdPlan& plan) {
  remove_noted_groups(data_dir);
  disk::release_quota(data_dir);
  const auto box = sys::open_beneath(data_dir, "box", O_RDONLY | O_DIRECTORY);
  if (!box) {
    if (box.error().code == Code::kNotFound) return {};
    return tl::make_unexpected(box.error());
  }
  // Mostly the helper has emptied it.
  if (unlinkat(data_dir, "box", AT_REMOVEDIR) == 0) return {};
  auto [here, there] = TRY(sys::socket_pair(SOCK_SEQPACKET));
  const int child_end = there.get();
  const int box_fd = box->get();
  UniqueFd pidfd;
  const auto pid = sys::raw_fork(CLONE_NEWUSER, &pidfd);
  if (!pid) return tl::make_unexpected(no_user_namespaces(pid.error().sys_errno));
  if (*pid == 0) {
    here.reset();
    Message message;
    message.kind = Message::kFailed;
    auto clean = [&]() -> Result<void> {
      if (TRY(receive_message(child_end)).kind != Message::kMapped)
        return fail(Code::kProtocol, "no maps");
      TRY(sys::become_namespace_root());
      TRY(sys::die_with_parent());
      for (const char* name : {"upper", "work", "base"}) TRY(sys::remove_tree(box_fd, name));
      return {};
    };
    const auto cleaned = clean();
    if (!cleaned) message = failure(cleaned.error());
    if (cleaned) message.kind = Message::kEnded;
    (void)send_message(child_end, message);
    _exit(0);
  }
  there.reset();
  sys::Process child(*pid, std::move(pidfd));
  const auto mapped = apply_ids(plan, child.pid());
  Message go;
  go.kind = Message::kMapped;
  if (mapped) (void)send_message(here.get(), go);
  if (!mapped) here.reset();
  const auto answer = mapped ? receive_message(here.get()) : Result<Message>(go);
  child.wait();
  if (!mapped) return mapped;
  if (!answer) return tl::make_unexpected(answer.error());
  if (answer->kind != Message::kEnded) return tl::make_unexpected(to_error(*answer));
  if (unlinkat(data_dir, "box", AT_REMOVEDIR) != 0)
    return fail_errno(errno, "removing the box's files");
  return {};
}

Result<void> remove_box(int data_dir) { return remove_box(data_dir, plan_ids()); }

int keeper_main(int control) {
  signal(SIGPIPE, SIG_IGN);
  // A signal meant for the caller's terminal group is the caller's to pass on; the keeper ends with
  // its socket.
  for (const int number : {SIGINT, SIGHUP, SIGQUIT}) signal(number, SIG_IGN);
  // A starter may have it ignored; helper waits for runsc and says how it ended.
  signal(SIGCHLD, SIG_DFL);
  UniqueFd starter(control);
  auto launch = receive_launch(control);
  if (!launch) {
    (void)send_message(control, failure(launch.error()));
    return 1;
  }
  Keeper keeper(std::move(starter), std::move(*launch));
  const auto started = keeper.start();
  const Message last = started ? keeper.run() : failure(started.error());
  keeper.end(last);
  return last.kind == Message::kEnded ? 0 : 1;
}

}  // namespace temenos::keeper
