#include "egress/dialer.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <deque>
#include <optional>

#include "base/try.h"
#include "egress/connector.h"
#include "egress/control.h"
#include "egress/engine.h"
#include "egress/resolver.h"
#include "sys/process_sys.h"

namespace temenos::egress {
namespace {

// Requests of front between two looks at everything else.
constexpr std::size_t kRequestsAtOnce = 64;
// More than its socket holds.
constexpr std::size_t kRequestsBeforeFlush = 1024;
constexpr int kRetryMs = 50;
constexpr std::size_t kMaxControlFds = 2;

enum class Source : std::uint32_t { kControl, kFront, kConnector, kResolver };

std::int64_t steady_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// A sealed file of keeper's, from its beginning, whatever its offset is.
Result<std::string> whole_file(int fd, std::size_t limit) {
  std::string out;
  char buffer[16384];
  for (;;) {
    const ssize_t count = pread(fd, buffer, sizeof buffer, static_cast<off_t>(out.size()));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return fail_errno(errno, "reading what keeper has handed over");
    if (count == 0) return out;
    out.append(buffer, static_cast<std::size_t>(count));
    if (out.size() > limit)
      return fail(Code::kExhausted, "what keeper has handed over is too long");
  }
}

}  // namespace

class Dialer::Loop final : public Outside {
 public:
  Loop(UniqueFd control, Log log, NameTable names, HostRoutes routes, const Options& options)
      : control_(std::move(control)),
        log_(std::move(log)),
        names_(std::move(names)),
        routes_(std::move(routes)),
        engine_(*this, names_, log_,
                [this](const AddressBlock& address) { return routes_.ask(address); }),
        resolver_({.done =
                       [this](std::uint64_t ticket, LookUpStatus status,
                              std::span<const AddressBlock> addresses) {
                         engine_.on_looked_up(ticket, status, addresses, now_);
                       },
                   .wants_config = [this] { say({ControlType::kWantsResolver}); },
                   .nat64 =
                       [this](std::vector<AddressBlock> prefixes) {
                         engine_.set_nat64(std::move(prefixes));
                       },
                   .watch = [this](int fd, bool readable,
                                   bool writable) { watch_resolver(fd, readable, writable); }},
                  {.port = options.dns_port}),
        connector_(
            [this](std::uint64_t ticket, Connected connected) {
              engine_.on_connected(ticket, std::move(connected), now_);
            },
            [this](int fd, bool on) {
              return on ? watch(fd, Source::kConnector, EPOLLOUT) : unwatch(fd);
            }) {}

  Result<void> open();
  Result<void> serve();

  void look_up(std::uint64_t ticket, const std::string& name) override {
    resolver_.look_up(ticket, name, now_);
  }
  void connect(std::uint64_t ticket, std::vector<AddressBlock> addresses, std::uint16_t port,
               bool own) override {
    connector_.start(ticket, std::move(addresses), port, own, now_);
  }
  void reply(const Reply& reply, UniqueFd connection) override;
  void self_tested() override;

 private:
  bool watch(int fd, Source source, std::uint32_t events);
  bool unwatch(int fd) { return epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr) == 0; }
  void watch_resolver(int fd, bool readable, bool writable);
  void watch_front();
  void say(const Control& control);
  Result<bool> on_control();
  Result<void> on_record(const Control& control, std::vector<UniqueFd> fds);
  void on_front(std::uint32_t events);
  void read_front(std::size_t most, std::size_t most_replies);
  void send_replies();
  void drop_front();
  void say_ended();
  int wait_ms();

  UniqueFd epoll_;
  UniqueFd control_;
  UniqueFd front_;
  std::optional<std::uint32_t> front_events_;
  std::int64_t retry_at_ = 0;  // 0: its socket says when
  bool self_tested_ = false;
  std::uint32_t ending_for_ = 0;  // keeper, who waits for kEnded
  std::deque<std::pair<Reply, UniqueFd>> replies_;
  Log log_;
  NameTable names_;
  std::int64_t now_ = steady_ms();
  HostRoutes routes_;
  Engine engine_;
  Resolver resolver_;
  Connector connector_;
};

Result<void> Dialer::Loop::open() {
  epoll_.reset(epoll_create1(EPOLL_CLOEXEC));
  if (!epoll_) return fail_errno(errno, "epoll_create1");
  if (!watch(control_.get(), Source::kControl, EPOLLIN)) return fail_errno(errno, "epoll_ctl");
  if (!resolver_) return fail(Code::kInternal, "the resolver library could not be set up");
  return {};
}

bool Dialer::Loop::watch(int fd, Source source, std::uint32_t events) {
  epoll_event event{.events = events};
  event.data.u64 =
      std::uint64_t{static_cast<std::uint32_t>(source)} << 32 | static_cast<std::uint32_t>(fd);
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event) == 0) return true;
  return errno == ENOENT && epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0;
}

void Dialer::Loop::watch_resolver(int fd, bool readable, bool writable) {
  if (!readable && !writable) {
    (void)unwatch(fd);
    return;
  }
  // Where it fails the query runs into its time-out.
  (void)watch(fd, Source::kResolver, (readable ? EPOLLIN : 0u) | (writable ? EPOLLOUT : 0u));
}

void Dialer::Loop::say(const Control& control) {
  // keeper that reads nothing has other troubles than a word it does not hear.
  (void)sys::send_with_fds(
      control_.get(), {reinterpret_cast<const char*>(&control), sizeof control}, {}, MSG_DONTWAIT);
}

void Dialer::Loop::self_tested() {
  if (!std::exchange(self_tested_, true)) say({ControlType::kSelfTested});
}

// False: keeper has gone.
Result<bool> Dialer::Loop::on_control() {
  auto received = TRY(sys::receive_with_fds(control_.get(), sizeof(Control) + 1, kMaxControlFds));
  if (received.bytes.empty()) return false;
  Control control;
  if (received.bytes.size() != sizeof control) return fail(Code::kProtocol, "no control record");
  std::memcpy(&control, received.bytes.data(), sizeof control);
  TRY(on_record(control, std::move(received.fds)));
  return true;
}

Result<void> Dialer::Loop::on_record(const Control& control, std::vector<UniqueFd> fds) {
  switch (control.type) {
    case ControlType::kFront:
      if (fds.size() != 1) break;
      drop_front();
      front_ = std::move(fds[0]);
      self_tested_ = false;
      watch_front();
      return {};
    case ControlType::kRules: {
      if (fds.size() != 1) break;
      const std::string lines = TRY(whole_file(fds[0].get(), kMaxRulesText));
      const auto taken = engine_.set_rules(lines);
      say(taken ? Control{ControlType::kRulesTaken, static_cast<std::uint32_t>(*taken)}
                : Control{ControlType::kRulesRefused});
      return {};
    }
    case ControlType::kResolver: {
      if (fds.size() != 2) break;
      const std::string resolv_conf = TRY(whole_file(fds[0].get(), kMaxResolvConf));
      const std::string hosts = TRY(whole_file(fds[1].get(), kMaxHosts));
      resolver_.set_config(resolv_conf, hosts, now_);
      return {};
    }
    case ControlType::kFlushLog:
      // What front has said before keeper asked, whether it takes its answers or not.
      if (front_) read_front(kRequestsBeforeFlush, replies_.size() + kRequestsBeforeFlush);
      log_.flush(now_);
      say({ControlType::kLogFlushed, static_cast<std::uint32_t>(log_.refused())});
      return {};
    case ControlType::kEndRefused:
      if (!fds.empty() || control.value == 0) break;
      engine_.end_refused();
      ending_for_ = control.value;
      return {};
    default:
      break;
  }
  return fail(Code::kProtocol, "a control record that is not for dialer");
}

void Dialer::Loop::watch_front() {
  if (!front_) return;
  // Nothing is read of a front that does not take its answers.
  const std::uint32_t blocked = retry_at_ == 0 ? EPOLLOUT : 0u;
  const std::uint32_t events = replies_.empty() ? EPOLLIN : blocked;
  if (front_events_ == events) return;
  if (watch(front_.get(), Source::kFront, events)) {
    front_events_ = events;
  } else {
    drop_front();
  }
}

void Dialer::Loop::drop_front() {
  engine_.drop_front();
  connector_.cancel_all();
  resolver_.forget_all();
  replies_.clear();
  if (front_) (void)unwatch(front_.get());
  front_.reset();
  front_events_.reset();
  retry_at_ = 0;
}

void Dialer::Loop::reply(const Reply& reply, UniqueFd connection) {
  replies_.emplace_back(reply, std::move(connection));
}

void Dialer::Loop::send_replies() {
  if (now_ < retry_at_) return;
  retry_at_ = 0;
  while (front_ && !replies_.empty()) {
    auto& [reply, connection] = replies_.front();
    const int fd = connection.get();
    const auto sent =
        sys::send_with_fds(front_.get(), {reinterpret_cast<const char*>(&reply), sizeof reply},
                           std::span<const int>(&fd, connection ? 1 : 0), MSG_DONTWAIT);
    if (!sent) {
      const int error = sent.error().sys_errno;
      // ETOOMANYREFS: the user has more descriptors under way than it may. When that is over, no
      // event tells, and the socket has room all the time.
      const bool later = error == ENOBUFS || error == ETOOMANYREFS;
      if (!later && error != EAGAIN) return drop_front();
      if (later) retry_at_ = now_ + kRetryMs;
      break;
    }
    replies_.pop_front();
  }
  watch_front();
}

void Dialer::Loop::read_front(std::size_t most, std::size_t most_replies) {
  alignas(Request) std::uint8_t bytes[sizeof(Request) + 1];
  for (std::size_t i = 0; i < most && replies_.size() < most_replies; ++i) {
    // Descriptors that come along are not wanted: without a control buffer the kernel closes them.
    ssize_t count;
    do {
      count = recv(front_.get(), bytes, sizeof bytes, MSG_DONTWAIT);
    } while (count < 0 && errno == EINTR);
    if (count < 0 && errno == EAGAIN) return;
    if (count <= 0) return drop_front();
    if (!engine_.on_request({bytes, static_cast<std::size_t>(count)}, now_)) return drop_front();
  }
}

void Dialer::Loop::on_front(std::uint32_t events) {
  if (!front_) return;
  if ((events & EPOLLIN) != 0 && replies_.empty()) {
    read_front(kRequestsAtOnce, kRequestsAtOnce);
  } else if ((events & (EPOLLHUP | EPOLLERR)) != 0) {
    drop_front();
  }
}

// Of a front that was dropped, or has used ids twice, nobody knows what it still has open.
void Dialer::Loop::say_ended() {
  if (ending_for_ == 0 || (front_ && engine_.ending() > 0)) return;
  say({ControlType::kEnded, front_ && engine_.knows_all() ? ending_for_ : 0});
  ending_for_ = 0;
}

int Dialer::Loop::wait_ms() {
  std::int64_t next = -1;
  for (const std::int64_t one : {resolver_.tick(now_), connector_.tick(now_), log_.tick(now_)}) {
    if (one >= 0 && (next < 0 || one < next)) next = one;
  }
  if (next < 0) return -1;
  return static_cast<int>(std::clamp<std::int64_t>(next - now_, 0, 60'000));
}

Result<void> Dialer::Loop::serve() {
  for (;;) {
    int wait = wait_ms();
    send_replies();
    say_ended();
    if (retry_at_ != 0 && (wait < 0 || wait > kRetryMs)) wait = kRetryMs;
    epoll_event events[64];
    const int count = epoll_wait(epoll_.get(), events, 64, wait);
    if (count < 0 && errno != EINTR) return fail_errno(errno, "epoll_wait");
    now_ = steady_ms();
    for (int i = 0; i < count; ++i) {
      const int fd = static_cast<int>(events[i].data.u64 & 0xffffffff);
      const std::uint32_t what = events[i].events;
      const bool failed = (what & (EPOLLERR | EPOLLHUP)) != 0;
      switch (static_cast<Source>(events[i].data.u64 >> 32)) {
        case Source::kControl:
          if (!TRY(on_control())) {
            log_.flush(now_);
            return {};
          }
          break;
        case Source::kFront:
          if (fd == front_.get()) on_front(what);
          break;
        case Source::kConnector:
          connector_.on_event(fd, now_);
          break;
        case Source::kResolver:
          resolver_.on_event(fd, (what & EPOLLIN) != 0 || failed, (what & EPOLLOUT) != 0, now_);
          break;
      }
    }
  }
}

Result<Dialer> Dialer::make(UniqueFd control, Log log, NameTable names, const Options& options) {
  auto loop = std::make_unique<Loop>(std::move(control), std::move(log), std::move(names),
                                     TRY(HostRoutes::open()), options);
  TRY(loop->open());
  return Dialer(std::move(loop));
}

Dialer::Dialer(std::unique_ptr<Loop> loop) : loop_(std::move(loop)) {}
Dialer::Dialer(Dialer&&) noexcept = default;
Dialer::~Dialer() = default;

Result<void> Dialer::serve() { return loop_->serve(); }

}  // namespace temenos::egress
