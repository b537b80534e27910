#include "front/front.h"

#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>

#include "base/try.h"
#include "codec/address.h"
#include "egress/control.h"
#include "egress/plan.h"
#include "front/dns_service.h"
#include "front/login.h"

namespace temenos::front {
namespace {

using egress::Control;
using egress::ControlType;
using egress::kListenerCount;
using egress::Listener;

constexpr int kAcceptsATurn = 32;
constexpr Millis kAcceptPause = 100;  // when there are no descriptors left
constexpr std::size_t kRoom = 64 * 1024;

Millis monotonic_ms() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<Millis>(now.tv_sec) * 1000 + static_cast<Millis>(now.tv_nsec) / 1'000'000;
}

// Whose event it is: a place, and who had it when the event was asked for.
enum class Kind : std::uint8_t {
  kControl,
  kDialer,
  kListener,
  kClient,
  kServer,
  kDnsStream,
};
struct Key {
  Kind kind = Kind::kControl;
  std::uint32_t index = 0;       // 24 bits
  std::uint32_t generation = 0;  // of the connection
};
std::uint64_t pack(const Key& key) {
  return static_cast<std::uint64_t>(key.kind) << 56 | static_cast<std::uint64_t>(key.index) << 32 |
         key.generation;
}
Key unpack(std::uint64_t value) {
  return {static_cast<Kind>(value >> 56), static_cast<std::uint32_t>(value >> 32) & 0xFFFFFF,
          static_cast<std::uint32_t>(value)};
}

constexpr std::uint32_t kEdges = EPOLLIN | EPOLLPRI | EPOLLOUT | EPOLLRDHUP | EPOLLET;

std::optional<Target> target_of(int fd) {
  sockaddr_storage own{};
  socklen_t size = sizeof own;
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&own), &size) != 0) return std::nullopt;
  Target out;
  if (own.ss_family == AF_INET) {
    const auto& at = reinterpret_cast<const sockaddr_in&>(own);
    out.port = ntohs(at.sin_port);
    std::memcpy(out.address.data(), &at.sin_addr, 4);
    return out;
  }
  if (own.ss_family != AF_INET6) return std::nullopt;
  const auto& at = reinterpret_cast<const sockaddr_in6&>(own);
  out.port = ntohs(at.sin6_port);
  if (IN6_IS_ADDR_V4MAPPED(&at.sin6_addr)) {
    std::memcpy(out.address.data(), at.sin6_addr.s6_addr + 12, 4);
    return out;
  }
  out.family = egress::Family::kV6;
  std::memcpy(out.address.data(), &at.sin6_addr, 16);
  return out;
}

bool same_target(const Target& a, const Target& b) {
  return a.family == b.family && a.port == b.port && a.address == b.address;
}

class Loop {
 public:
  Loop(UniqueFd control, egress::Listeners listeners, const Config& config)
      : config_(config),
        control_(std::move(control)),
        room_(kRoom),
        dns_(shared_.dialer,
             [this](int fd, std::uint32_t index) {
               return watch(fd, {Kind::kDnsStream, index, 0}, kEdges);
             }),
        slots_(std::min(config.max_connections, kMaxConnections)) {
    shared_.times = config.times;
    shared_.room = room_;
    shared_.max_memory = config.max_memory;
    std::move(listeners.begin(), listeners.end(), listeners_.begin());
    for (std::size_t i = slots_.size(); i > 0; --i) {
      free_.push_back(static_cast<std::uint32_t>(i - 1));
    }
  }

  void be_proxy(UniqueFd listener, Login login) {
    listeners_[static_cast<std::size_t>(Listener::kProxy)] = std::move(listener);
    login_.emplace(std::move(login));
  }

  Result<void> run() {
    epoll_.reset(epoll_create1(EPOLL_CLOEXEC));
    if (!epoll_) return fail_errno(errno, "epoll_create1");
    if (!watch(control_.get(), {Kind::kControl, 0, 0}, EPOLLIN)) {
      return fail_errno(errno, "watching the socket to keeper");
    }
    TRY(listen());
    while (!stopped_) TRY(turn());
    return {};
  }

 private:
  struct Slot {
    std::unique_ptr<Connection> connection;
    std::uint32_t generation = 0;
    bool is_ready = false;
  };

  bool watch(int fd, const Key& key, std::uint32_t events) {
    epoll_event event{.events = events, .data = {.u64 = pack(key)}};
    return epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0;
  }

  Result<void> turn() {
    std::array<epoll_event, 256> events;
    const int count =
        epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), timeout());
    if (count < 0 && errno != EINTR) return fail_errno(errno, "epoll_wait");
    now_ = monotonic_ms();
    for (int i = 0; i < count; ++i) {
      TRY(on_event(unpack(events[i].data.u64), events[i].events));
    }
    run_ready();
    if (out_of_fds_ && now_ >= accept_again_) {
      out_of_fds_ = false;
      set_accepting();
    }
    if (now_ >= deadline_) on_time();
    if (now_ >= dns_.deadline()) dns_.on_time(now_);
    return {};
  }

  int timeout() const {
    if (!ready_.empty()) return 0;
    Millis until = std::min(deadline_, dns_.deadline());
    if (out_of_fds_) until = std::min(until, accept_again_);
    if (until == kNever) return -1;
    const Millis now = monotonic_ms();
    return until <= now ? 0 : static_cast<int>(std::min<Millis>(until - now, 1'000'000));
  }

  Result<void> on_event(const Key& key, std::uint32_t events) {
    switch (key.kind) {
      case Kind::kControl:
        return read_control();
      case Kind::kDialer:
        // One that was replaced in this very turn may still have an event.
        if (key.generation == dialer_generation_) talk_to_dialer();
        break;
      case Kind::kListener:
        on_listener(static_cast<Listener>(key.index));
        break;
      case Kind::kClient:
      case Kind::kServer: {
        Slot& slot = slots_[key.index];
        if (!slot.connection || slot.generation != key.generation) break;
        if (key.kind == Kind::kClient) {
          slot.connection->on_client(events);
        } else {
          slot.connection->on_server(events);
        }
        make_ready(key.index);
        break;
      }
      case Kind::kDnsStream:
        dns_.on_stream(key.index, events, now_);
        break;
    }
    return {};
  }

  // ---- connections

  void make_ready(std::uint32_t index) {
    if (std::exchange(slots_[index].is_ready, true)) return;
    ready_.push_back(index);
  }

  // Each that has something to do has one turn; who has more to do is in the next round.
  void run_ready() {
    running_.swap(ready_);
    for (const std::uint32_t index : running_) {
      slots_[index].is_ready = false;
      if (slots_[index].connection) step(index);
    }
    running_.clear();
  }

  void step(std::uint32_t index) {
    Slot& slot = slots_[index];
    for (;;) {
      switch (slot.connection->step(now_)) {
        case Connection::Step::kWatch:
          if (watch(slot.connection->server_fd(), {Kind::kServer, index, slot.generation},
                    kEdges)) {
            continue;
          }
          return release(index);
        case Connection::Step::kMore:
          make_ready(index);
          break;
        case Connection::Step::kIdle:
          break;
        case Connection::Step::kOver:
          return release(index);
      }
      deadline_ = std::min(deadline_, slot.connection->deadline());
      return;
    }
  }

  void release(std::uint32_t index) {
    slots_[index].connection.reset();
    ++slots_[index].generation;
    free_.push_back(index);
    if (std::exchange(is_full_, false)) set_accepting();
  }

  void on_time() {
    deadline_ = kNever;
    for (std::uint32_t index = 0; index < slots_.size(); ++index) {
      Connection* const connection = slots_[index].connection.get();
      if (connection == nullptr) continue;
      const Millis until = connection->deadline();
      if (now_ < until) {
        deadline_ = std::min(deadline_, until);
        continue;
      }
      connection->on_time(now_);
      step(index);
    }
  }

  // ---- listeners

  static bool is_tcp(Listener which) {
    return which == Listener::kTcp4 || which == Listener::kTcp6 || which == Listener::kProxy;
  }

  void on_listener(Listener which) {
    const auto index = static_cast<std::size_t>(which);
    if (which == Listener::kDnsUdp4 || which == Listener::kDnsUdp6) {
      dns_.on_datagrams(which == Listener::kDnsUdp4 ? 0 : 1, now_);
      return;
    }
    for (int i = 0; i < kAcceptsATurn; ++i) {
      if (is_tcp(which) && free_.empty()) {
        is_full_ = true;
        return set_accepting();
      }
      UniqueFd accepted(
          accept4(listeners_[index].get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
      if (!accepted) {
        // With no descriptor left the listener would be ready again at once, for ever.
        if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
          out_of_fds_ = true;
          accept_again_ = now_ + kAcceptPause;
          set_accepting();
        }
        return;
      }
      send_at_once(accepted.get());
      if (is_tcp(which)) {
        begin(std::move(accepted), which);
      } else {
        dns_.on_accepted(std::move(accepted), now_);
      }
    }
  }

  // Those that cannot be served wait in the kernel's queue, which is bounded as well.
  void set_accepting() {
    for (std::uint32_t i = 0; i < listeners_.size(); ++i) {
      if (!listeners_[i]) continue;
      const bool pause = out_of_fds_ || (is_full_ && is_tcp(static_cast<Listener>(i)));
      epoll_event event{.events = pause ? 0u : static_cast<std::uint32_t>(EPOLLIN),
                        .data = {.u64 = pack({Kind::kListener, i, 0})}};
      (void)epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, listeners_[i].get(), &event);
    }
  }

  // Nothing where it cannot be told where the client wanted to go.
  std::optional<Gate> gate_for(int client, Listener which) const {
    if (which == Listener::kProxy) return Gate(&*login_);
    const auto target = target_of(client);
    if (!target) return std::nullopt;
    const bool is_proxy =
        std::any_of(config_.proxies.begin(), config_.proxies.end(),
                    [&](const Target& proxy) { return same_target(proxy, *target); });
    return is_proxy ? Gate() : Gate(*target);
  }

  void begin(UniqueFd client, Listener which) {
    auto gate = gate_for(client.get(), which);
    if (!gate) return;
    const std::uint32_t index = free_.back();
    Slot& slot = slots_[index];
    const int fd = client.get();
    if (!watch(fd, {Kind::kClient, index, slot.generation}, kEdges)) return;
    free_.pop_back();
    slot.connection = std::make_unique<Connection>(shared_, ++serial_ << 16 | index,
                                                   std::move(client), std::move(*gate), now_);
    make_ready(index);
  }

  // ---- dialer and keeper

  void talk_to_dialer() {
    const bool live = shared_.dialer.exchange([this](const egress::Reply& reply, UniqueFd socket) {
      const std::uint64_t index = reply.id & 0xFFFF;
      if (index >= DnsService::kFirstId) return dns_.on_reply(reply, now_);
      // One that nobody waits for any more is closed here.
      const bool is_known = index < slots_.size() && slots_[index].connection &&
                            slots_[index].connection->id() == reply.id;
      const bool is_denied = reply.verdict == egress::Verdict::kEnd;
      if (!is_known) {
        // dialer waits for it: its own report may have been one too many.
        if (is_denied) shared_.dialer.report({.id = reply.id, .ask = egress::Ask::kReport});
        return;
      }
      if (is_denied) {
        slots_[index].connection->on_denied();
      } else {
        slots_[index].connection->on_reply(reply, std::move(socket), now_);
      }
      make_ready(static_cast<std::uint32_t>(index));
    });
    if (!live) lose_dialer();
  }

  // Whoever waits for it gets no connection; what is forwarded goes on.
  void lose_dialer() {
    shared_.dialer.lose();
    for (std::uint32_t index = 0; index < slots_.size(); ++index) {
      if (!slots_[index].connection) continue;
      slots_[index].connection->on_dialer_lost();
      make_ready(index);
    }
    dns_.on_dialer_lost(now_);
  }

  Result<void> read_control() {
    Control order;
    iovec part{&order, sizeof order};
    alignas(cmsghdr) char room[CMSG_SPACE(sizeof(int))];
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = room;
    message.msg_controllen = sizeof room;
    const ssize_t count = recvmsg(control_.get(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) return {};
    UniqueFd passed;
    const cmsghdr* const header = count > 0 ? CMSG_FIRSTHDR(&message) : nullptr;
    if (header != nullptr && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS &&
        header->cmsg_len == CMSG_LEN(sizeof(int))) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(header), sizeof fd);
      passed.reset(fd);
    }
    if (count == 0 || (count < 0 && errno == ECONNRESET)) {
      stopped_ = true;
      return {};
    }
    if (count != sizeof order) return fail(Code::kProtocol, "a message of keeper that is none");
    if (order.type == ControlType::kDialer && passed) return use_dialer(std::move(passed));
    if (order.type == ControlType::kPing) {
      const Control alive{.type = ControlType::kPong};
      (void)send(control_.get(), &alive, sizeof alive, MSG_DONTWAIT | MSG_NOSIGNAL);
      return {};
    }
    return fail(Code::kProtocol, "a message of keeper that is not for front");
  }

  Result<void> listen() {
    for (std::uint32_t i = 0; i < listeners_.size(); ++i) {
      if (!listeners_[i]) continue;
      const int fd = listeners_[i].get();
      if (!make_non_blocking(fd) || !watch(fd, {Kind::kListener, i, 0}, EPOLLIN)) {
        return fail_errno(errno, "watching a listener");
      }
      const auto which = static_cast<Listener>(i);
      if (which == Listener::kDnsUdp4 || which == Listener::kDnsUdp6) {
        dns_.take_socket(which == Listener::kDnsUdp4 ? 0 : 1, std::move(listeners_[i]));
      }
    }
    return {};
  }

  Result<void> use_dialer(UniqueFd socket) {
    lose_dialer();
    if (!watch(socket.get(), {Kind::kDialer, 0, ++dialer_generation_}, kEdges)) {
      return fail_errno(errno, "watching the socket to dialer");
    }
    shared_.dialer.use(std::move(socket));
    return {};
  }

  const Config& config_;
  UniqueFd control_;
  std::array<UniqueFd, kListenerCount + 1> listeners_;  // the last one is the proxy's
  std::optional<Login> login_;                          // of that
  UniqueFd epoll_;
  std::vector<char> room_;
  Shared shared_;
  DnsService dns_;
  std::vector<Slot> slots_;
  std::vector<std::uint32_t> free_;
  std::vector<std::uint32_t> ready_;
  std::vector<std::uint32_t> running_;
  std::uint64_t serial_ = 0;
  std::uint32_t dialer_generation_ = 0;
  Millis now_ = monotonic_ms();
  Millis deadline_ = kNever;
  Millis accept_again_ = 0;
  bool is_full_ = false;  // no more connections
  bool out_of_fds_ = false;
  bool stopped_ = false;
};

}  // namespace

Config default_config(std::size_t max_fds) {
  Config out;
  const std::size_t for_connections = max_fds - std::min<std::size_t>(max_fds, kFdsBeside);
  out.max_connections =
      std::clamp<std::size_t>(for_connections / kFdsOfConnection, 1, kMaxConnections);
  for (const auto text : {egress::kRouter4, egress::kRouter6}) {
    const auto address = parse_address(text);
    out.proxies.push_back({.family = address->v4 ? egress::Family::kV4 : egress::Family::kV6,
                           .address = address->bytes,
                           .port = egress::kProxyPort});
  }
  return out;
}

Result<void> serve(UniqueFd control, egress::Listeners listeners, const Config& config) {
  return Loop(std::move(control), std::move(listeners), config).run();
}

Result<void> serve_proxy(UniqueFd control, UniqueFd listener, Login login, const Config& config) {
  Loop loop(std::move(control), {}, config);
  loop.be_proxy(std::move(listener), std::move(login));
  return loop.run();
}

}  // namespace temenos::front
