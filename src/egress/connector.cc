#include "egress/connector.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "egress/socket_address.h"

namespace temenos::egress {
namespace {

// A peer that has gone without a word is noticed after about four minutes.
constexpr int kKeepIdle = 120;
constexpr int kKeepInterval = 30;
constexpr int kKeepCount = 4;

void set(int fd, int level, int option, int value) {
  (void)setsockopt(fd, level, option, &value, sizeof value);  // a courtesy; none is a boundary
}

void prepare(int fd) {
  set(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  set(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  set(fd, IPPROTO_TCP, TCP_KEEPIDLE, kKeepIdle);
  set(fd, IPPROTO_TCP, TCP_KEEPINTVL, kKeepInterval);
  set(fd, IPPROTO_TCP, TCP_KEEPCNT, kKeepCount);
}

}  // namespace

void Connector::start(std::uint64_t ticket, std::vector<AddressBlock> addresses, std::uint16_t port,
                      bool own, std::int64_t now) {
  Race race{.addresses = std::move(addresses),
            .port = port,
            .own = own,
            .deadline = now + options_.deadline_ms,
            .last_errno = ENETUNREACH};
  Race& kept = races_.insert_or_assign(ticket, std::move(race)).first->second;
  (void)advance(ticket, kept, now);
}

// Tries addresses until one is under way; then the next has its turn later.
Connector::Step Connector::advance(std::uint64_t ticket, Race& race, std::int64_t now) {
  while (race.next < race.addresses.size()) {
    const AddressBlock address = race.addresses[race.next++];
    const std::size_t before = race.attempts.size();
    if (try_one(ticket, race, address) == Step::kOver) return Step::kOver;
    if (race.attempts.size() == before) continue;
    const bool more = race.next < race.addresses.size();
    wake_at(ticket, race, more ? std::min(now + options_.next_ms, race.deadline) : race.deadline);
    return Step::kGoesOn;
  }
  if (!race.attempts.empty()) {
    wake_at(ticket, race, race.deadline);
    return Step::kGoesOn;
  }
  lost(ticket, race.last_errno);
  return Step::kOver;
}

Connector::Step Connector::try_one(std::uint64_t ticket, Race& race, const AddressBlock& address) {
  if (by_fd_.size() >= options_.max_sockets) {
    race.last_errno = EMFILE;
    return Step::kGoesOn;
  }
  const SocketAddress to(address, race.port);
  Attempt attempt{UniqueFd(socket(to.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)),
                  address};
  if (!attempt.fd) {
    race.last_errno = errno;
    return Step::kGoesOn;
  }
  prepare(attempt.fd.get());
  if (connect(attempt.fd.get(), to.get(), to.size()) == 0) {
    return won(ticket, race, std::move(attempt));
  }
  if (errno != EINPROGRESS) {
    race.last_errno = errno;
    return Step::kGoesOn;
  }
  const int fd = attempt.fd.get();
  if (!watch_(fd, true)) {
    race.last_errno = EMFILE;
    return Step::kGoesOn;
  }
  by_fd_.emplace(fd, ticket);
  race.attempts.push_back(std::move(attempt));
  return Step::kGoesOn;
}

Connector::Step Connector::won(std::uint64_t ticket, Race& race, Attempt attempt) {
  Connected connected{.fd = std::move(attempt.fd), .address = attempt.address};
  if (!race.own) {
    // An address that has become the host's since it was checked: its peer is itself.
    const auto local = local_address(connected.fd.get());
    if (!local || *local == attempt.address) {
      connected.fd.reset();
      connected.own = true;
    }
  }
  end(ticket);
  done_(ticket, std::move(connected));
  return Step::kOver;
}

void Connector::lost(std::uint64_t ticket, int sys_errno) {
  end(ticket);
  done_(ticket, Connected{.sys_errno = sys_errno});
}

void Connector::end(std::uint64_t ticket) {
  const auto found = races_.find(ticket);
  if (found == races_.end()) return;
  for (const Attempt& attempt : found->second.attempts) by_fd_.erase(attempt.fd.get());
  wakes_.erase({found->second.wake, ticket});
  races_.erase(found);
}

void Connector::wake_at(std::uint64_t ticket, Race& race, std::int64_t when) {
  wakes_.erase({race.wake, ticket});
  race.wake = when;
  wakes_.insert({when, ticket});
}

void Connector::on_event(int fd, std::int64_t now) {
  const auto found = by_fd_.find(fd);
  if (found == by_fd_.end()) return;
  // The event may be of a socket that is closed by now and had this number.
  pollfd now_ready{fd, POLLOUT, 0};
  if (poll(&now_ready, 1, 0) == 0) return;
  const std::uint64_t ticket = found->second;
  Race& race = races_.find(ticket)->second;
  int error = 0;
  socklen_t size = sizeof error;
  if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0) error = errno;
  by_fd_.erase(found);
  // What is handed over lives on elsewhere, and so would its place in the poll set.
  (void)watch_(fd, false);
  const auto at = std::find_if(race.attempts.begin(), race.attempts.end(),
                               [fd](const Attempt& attempt) { return attempt.fd.get() == fd; });
  Attempt attempt = std::move(*at);
  race.attempts.erase(at);
  if (error == 0) {
    (void)won(ticket, race, std::move(attempt));
    return;
  }
  race.last_errno = error;
  attempt.fd.reset();
  (void)advance(ticket, race, now);
}

std::int64_t Connector::tick(std::int64_t now) {
  while (!wakes_.empty() && wakes_.begin()->first <= now) {
    const std::uint64_t ticket = wakes_.begin()->second;
    Race& race = races_.find(ticket)->second;
    if (now >= race.deadline) {
      lost(ticket, ETIMEDOUT);
    } else {
      (void)advance(ticket, race, now);
    }
  }
  return wakes_.empty() ? -1 : wakes_.begin()->first;
}

void Connector::cancel_all() {
  races_.clear();
  by_fd_.clear();
  wakes_.clear();
}

}  // namespace temenos::egress
