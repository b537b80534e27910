#include "session/loop.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <time.h>

#include <cerrno>
#include <cstring>

#include "base/try.h"
#include "session/spool.h"

namespace temenos::session {
namespace {

constexpr std::size_t kMaxPassed = 2;  // descriptors beside one control message
constexpr Millis kFarewell = 1'000;    // for clients to read why their box is gone
// Clients can begin and end operations 100,000 times a second. Shorter than any time that keeper
// waits for an idle box, so that a kBusy held back for so long still comes in time.
constexpr Millis kActivityStep = 250;

Millis monotonic_ms() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<Millis>(now.tv_sec) * 1000 + static_cast<Millis>(now.tv_nsec) / 1'000'000;
}

// Bytes received; 0 at the end or on a broken socket; -1 when there are none now. Descriptors that
// come along are dropped by the kernel: recv(2) has no place for them.
ssize_t receive(int fd, std::span<std::uint8_t> space) {
  const ssize_t count = recv(fd, space.data(), space.size(), MSG_DONTWAIT);
  if (count >= 0) return count;
  return errno == EAGAIN || errno == EINTR ? -1 : 0;
}

enum class Sent { kAll, kBlocked, kBroken };

template <typename Consume>
Sent send_queue(int fd, const ByteQueue& queue, Consume consume) {
  while (!queue.empty()) {
    // Not all parts at once by sendmsg(2): the jail has none.
    iovec part{};
    (void)queue.peek({&part, 1});
    const ssize_t count = send(fd, part.iov_base, part.iov_len, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (count >= 0) {
      consume(static_cast<std::size_t>(count));
    } else if (errno == EAGAIN) {
      return Sent::kBlocked;
    } else if (errno != EINTR) {
      return Sent::kBroken;
    }
  }
  return Sent::kAll;
}

class Loop {
 public:
  Loop(UniqueFd init, UniqueFd control, const EngineConfig& config)
      : init_(std::move(init)), control_(std::move(control)), engine_(config, monotonic_ms()) {}

  Result<void> run() {
    for (;;) {
      flush();
      for (const auto& event : engine_.take_events()) (void)send_control(control_.get(), event);
      report_activity();
      if (engine_.dead() && farewell_over()) break;
      TRY(wait());
    }
    // Keeper may have gone already; then nobody is left to tell.
    (void)send_control(control_.get(), {ControlType::kBye});
    return {};
  }

 private:
  void report_activity() {
    if (!reports_activity_ || engine_.dead()) return;
    const bool busy = engine_.live_operations() > 0;
    // Work that came and went between two reports makes the box as new.
    unreported_ = unreported_ || busy != told_busy_;
    if (!unreported_) return;
    const Millis now = monotonic_ms();
    if (now < next_report_) return;
    next_report_ = now + kActivityStep;
    // A keeper that does not read is asked again a step later.
    if (!send_control(control_.get(), {busy ? ControlType::kBusy : ControlType::kIdle})) return;
    told_busy_ = busy;
    unreported_ = false;
  }

  bool farewell_over() {
    const Millis now = monotonic_ms();
    if (farewell_ == kNever) farewell_ = now + kFarewell;
    if (now >= farewell_) return true;
    for (const auto& fd : client_fds_) {
      if (fd) return false;
    }
    return true;
  }

  // Before the others: what a disk has taken makes room, and who waits for the job hears of it now.
  void flush_spools() {
    for (int slot = Engine::kMaxClients; slot < Engine::kSlots; ++slot) {
      Spool& spool = spools_[slot - Engine::kMaxClients];
      if (!spool) continue;
      if (stage_.empty()) stage_.resize(4 * box_wire::kMaxFrame);
      while (const std::size_t size = copy_frames(engine_.client_out(slot), stage_)) {
        spool.write(std::span(stage_).first(size));
        engine_.client_sent(slot, size);
      }
      if (!engine_.closing(slot)) continue;
      spool = Spool();
      engine_.remove_client(slot, monotonic_ms());
    }
  }

  void flush() {
    flush_spools();
    if (init_ && !init_blocked_) {
      const Sent sent = send_queue(init_.get(), engine_.init_out(), [this](std::size_t count) {
        engine_.init_out().consume(count);
      });
      init_blocked_ = sent == Sent::kBlocked;
      // Its last words may still be there to read; the end shows there.
      if (sent == Sent::kBroken) engine_.init_out().clear();
    }
    for (int slot = 0; slot < Engine::kMaxClients; ++slot) {
      if (!client_fds_[slot] || client_blocked_[slot]) continue;
      const Sent sent =
          send_queue(client_fds_[slot].get(), engine_.client_out(slot),
                     [this, slot](std::size_t count) { engine_.client_sent(slot, count); });
      client_blocked_[slot] = sent == Sent::kBlocked;
      if (sent == Sent::kBroken || (sent == Sent::kAll && engine_.closing(slot))) drop(slot);
    }
  }

  void drop(int slot) {
    client_fds_[slot].reset();
    client_blocked_[slot] = false;
    engine_.remove_client(slot, monotonic_ms());
  }

  Result<void> wait() {
    std::array<pollfd, 2 + Engine::kMaxClients> polls;
    polls[0] = {control_.get(), POLLIN, 0};
    const bool init_live = init_ && !engine_.dead();
    polls[1] = {init_live ? init_.get() : -1, POLLIN, 0};
    if (init_blocked_) polls[1].events |= POLLOUT;
    for (int slot = 0; slot < Engine::kMaxClients; ++slot) {
      pollfd& entry = polls[2 + slot];
      entry = {client_fds_[slot] ? client_fds_[slot].get() : -1, POLLRDHUP, 0};
      if (entry.fd < 0) continue;
      if (engine_.wants_read(slot)) entry.events |= POLLIN;
      if (client_blocked_[slot]) entry.events |= POLLOUT;
    }
    // What is already queued was not blocked when it came: send it before waiting.
    int timeout = sendable() ? 0 : timeout_ms();
    if (poll(polls.data(), polls.size(), timeout) < 0 && errno != EINTR) {
      return fail_errno(errno, "poll of the session's sockets", "this is a fault of the host");
    }
    const Millis now = monotonic_ms();
    if (polls[0].revents != 0) read_controls();
    // Before its time is judged: a disk may have held up us, and not init.
    if (polls[1].revents != 0) on_init(polls[1].revents, now);
    engine_.on_time(now);
    for (int slot = 0; slot < Engine::kMaxClients; ++slot) {
      if (polls[2 + slot].revents != 0) on_client(slot, polls[2 + slot], now);
    }
    return {};
  }

  bool sendable() {
    if (init_ && !init_blocked_ && !engine_.init_out().empty()) return true;
    for (int slot = 0; slot < Engine::kMaxClients; ++slot) {
      if (client_fds_[slot] && !client_blocked_[slot] && !engine_.client_out(slot).empty())
        return true;
    }
    return false;
  }

  int timeout_ms() const {
    const Millis until =
        std::min({engine_.next_deadline(), farewell_, unreported_ ? next_report_ : kNever});
    if (until == kNever) return -1;
    const Millis now = monotonic_ms();
    return until <= now ? 0 : static_cast<int>(std::min<Millis>(until - now, 1'000'000));
  }

  void on_init(short events, Millis now) {
    if ((events & POLLOUT) != 0) init_blocked_ = false;
    if ((events & (POLLIN | POLLHUP | POLLERR)) == 0) return;
    const ssize_t count = receive(init_.get(), engine_.init_space());
    if (count > 0) {
      engine_.init_received(static_cast<std::size_t>(count), now);
    } else if (count == 0) {
      engine_.init_closed();
    }
  }

  void on_client(int slot, const pollfd& entry, Millis now) {
    if (!client_fds_[slot] || client_fds_[slot].get() != entry.fd) return;
    if ((entry.revents & POLLOUT) != 0) client_blocked_[slot] = false;
    if ((entry.revents & POLLIN) != 0 && engine_.wants_read(slot)) {
      const ssize_t count = receive(entry.fd, engine_.client_space(slot));
      if (count > 0) {
        // The job that these bytes name was announced before they were sent.
        read_controls();
        engine_.client_received(slot, static_cast<std::size_t>(count), now);
      } else if (count == 0) {
        drop(slot);
      }
      return;
    }
    if ((entry.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0) drop(slot);
  }

  void read_controls() {
    while (!engine_.dead() && read_control()) {
    }
  }

  // False: there is none now.
  bool read_control() {
    ControlMessage order;
    iovec part{&order, sizeof order};
    alignas(cmsghdr) char room[CMSG_SPACE(kMaxPassed * sizeof(int))];
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = room;
    message.msg_controllen = sizeof room;
    const ssize_t count = recvmsg(control_.get(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) return false;
    std::array<UniqueFd, kMaxPassed> passed;
    for (cmsghdr* part_of = CMSG_FIRSTHDR(&message); part_of != nullptr && count > 0;
         part_of = CMSG_NXTHDR(&message, part_of)) {
      if (part_of->cmsg_level != SOL_SOCKET || part_of->cmsg_type != SCM_RIGHTS) continue;
      const std::size_t fds = (part_of->cmsg_len - CMSG_LEN(0)) / sizeof(int);
      for (std::size_t i = 0; i < fds && i < kMaxPassed; ++i) {
        int fd = -1;
        std::memcpy(&fd, CMSG_DATA(part_of) + i * sizeof fd, sizeof fd);
        passed[i].reset(fd);
      }
    }
    if (count == sizeof order && order.type == ControlType::kAddClient && passed[0]) {
      if (const auto slot = engine_.add_client()) client_fds_[*slot] = std::move(passed[0]);
      return true;
    }
    if (count == sizeof order && order.type == ControlType::kAddJob && appends(passed[0]) &&
        appends(passed[1])) {
      if (const auto slot = engine_.add_job(order.detail, monotonic_ms())) {
        spools_[*slot - Engine::kMaxClients] = Spool(std::move(passed), order.reason);
      }
      return true;
    }
    if (count == sizeof order && order.type == ControlType::kReportActivity) {
      reports_activity_ = unreported_ = true;
      return true;
    }
    engine_.stop();
    return false;
  }

  // Without it a segment that was emptied would begin with a hole.
  static bool appends(const UniqueFd& fd) {
    return fd && (fcntl(fd.get(), F_GETFL) & O_APPEND) != 0;
  }

  UniqueFd init_;
  UniqueFd control_;
  Engine engine_;
  std::array<UniqueFd, Engine::kMaxClients> client_fds_;
  std::array<bool, Engine::kMaxClients> client_blocked_{};
  std::array<Spool, kMaxJobs> spools_;
  std::vector<std::uint8_t> stage_;  // frames on their way into a spool
  bool init_blocked_ = false;
  Millis farewell_ = kNever;
  bool reports_activity_ = false;
  bool told_busy_ = false;
  bool unreported_ = false;
  Millis next_report_ = 0;
};

}  // namespace

Result<void> serve(UniqueFd init, UniqueFd control, const EngineConfig& config) {
  return Loop(std::move(init), std::move(control), config).run();
}

Result<void> send_control(int control, const ControlMessage& message,
                          std::span<const int> passed_fds) {
  ControlMessage copy = message;
  iovec part{&copy, sizeof copy};
  alignas(cmsghdr) char room[CMSG_SPACE(kMaxPassed * sizeof(int))] = {};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  const bool passes = !passed_fds.empty() && passed_fds.size() <= kMaxPassed;
  if (passes) {
    header.msg_control = room;
    header.msg_controllen = CMSG_SPACE(passed_fds.size_bytes());
    cmsghdr* part_of = CMSG_FIRSTHDR(&header);
    part_of->cmsg_level = SOL_SOCKET;
    part_of->cmsg_type = SCM_RIGHTS;
    part_of->cmsg_len = CMSG_LEN(passed_fds.size_bytes());
    std::memcpy(CMSG_DATA(part_of), passed_fds.data(), passed_fds.size_bytes());
  }
  // session's jail has no sendmsg(2), and it passes nothing.
  constexpr int kFlags = MSG_NOSIGNAL | MSG_DONTWAIT;
  const ssize_t sent =
      passes ? sendmsg(control, &header, kFlags) : send(control, &copy, sizeof copy, kFlags);
  if (sent != sizeof copy) {
    return fail_errno(errno, "cannot reach the other end of the session's control socket",
                      "the box is going down; start it again");
  }
  return {};
}

}  // namespace temenos::session
