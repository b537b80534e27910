#include "egress/connector.h"

#include <dirent.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>

#include <cerrno>
#include <chrono>
#include <map>

#include "codec/address.h"
#include "egress/socket_address.h"

namespace temenos::egress {
namespace {

std::int64_t now_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

int open_descriptors() {
  int count = 0;
  DIR* const dir = opendir("/proc/self/fd");
  while (readdir(dir) != nullptr) ++count;
  closedir(dir);
  return count;
}

// A listener on 127.0.0.x; a full one takes no connection, so connect() to it stays under way.
struct Listener {
  explicit Listener(const char* address, int backlog = 16) : address(*parse_address(address)) {
    fd.reset(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const SocketAddress at(this->address, 0);
    EXPECT_EQ(bind(fd.get(), at.get(), at.size()), 0);
    EXPECT_EQ(listen(fd.get(), backlog), 0);
    sockaddr_in in{};
    socklen_t size = sizeof in;
    EXPECT_EQ(getsockname(fd.get(), reinterpret_cast<sockaddr*>(&in), &size), 0);
    port = ntohs(in.sin_port);
  }
  AddressBlock address;
  UniqueFd fd;
  std::uint16_t port = 0;
};

class ConnectorTest : public ::testing::Test {
 protected:
  Connector make(const Connector::Options& options = {}) {
    return Connector([this](std::uint64_t ticket,
                            Connected connected) { done_.emplace(ticket, std::move(connected)); },
                     [this](int fd, bool on) {
                       if (on) {
                         watched_[fd] = true;
                       } else {
                         watched_.erase(fd);
                       }
                       return true;
                     },
                     options);
  }
  // Until `ticket` is done or five seconds have passed.
  void run(Connector& connector, std::uint64_t ticket) {
    const std::int64_t until = now_ms() + 5000;
    while (!done_.contains(ticket) && now_ms() < until) {
      const std::int64_t next = connector.tick(now_ms());
      std::vector<pollfd> fds;
      for (const auto& [fd, on] : watched_) fds.push_back({fd, POLLOUT, 0});
      const std::int64_t wait = next < 0 ? 100 : std::clamp<std::int64_t>(next - now_ms(), 0, 100);
      if (done_.contains(ticket)) break;
      poll(fds.data(), fds.size(), static_cast<int>(wait));
      for (const auto& fd : fds) {
        if (fd.revents != 0) connector.on_event(fd.fd, now_ms());
      }
    }
  }

  std::map<std::uint64_t, Connected> done_;
  std::map<int, bool> watched_;
};

TEST_F(ConnectorTest, ConnectsAndHandsOverAPreparedSocket) {
  const Listener listener("127.0.0.1");
  Connector connector = make();
  connector.start(1, {listener.address}, listener.port, true, now_ms());
  run(connector, 1);
  ASSERT_TRUE(done_.contains(1));
  const int fd = done_[1].fd.get();
  ASSERT_GE(fd, 0);
  EXPECT_EQ(done_[1].address, listener.address);
  int value = 0;
  socklen_t size = sizeof value;
  EXPECT_EQ(getsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &value, &size), 0);
  EXPECT_EQ(value, 1);
  EXPECT_EQ(getsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &value, &size), 0);
  EXPECT_EQ(value, 1);
  EXPECT_NE(fcntl(fd, F_GETFL) & O_NONBLOCK, 0);
  EXPECT_NE(fcntl(fd, F_GETFD) & FD_CLOEXEC, 0);
  EXPECT_TRUE(watched_.empty());
  EXPECT_EQ(connector.sockets(), 0u);
}

TEST_F(ConnectorTest, AnAddressThatHasBecomeTheHostsOwnIsRefused) {
  const Listener listener("127.0.0.1");
  Connector connector = make();
  connector.start(1, {listener.address}, listener.port, false, now_ms());
  run(connector, 1);
  ASSERT_TRUE(done_.contains(1));
  EXPECT_TRUE(done_[1].own);
  EXPECT_FALSE(done_[1].fd);
}

TEST_F(ConnectorTest, ARefusedAddressMakesRoomForTheNextAtOnce) {
  Listener gone("127.0.0.2");
  const Listener there("127.0.0.1");
  // Nobody listens at the first one's address on this port.
  gone.fd.reset();
  Connector connector = make({.next_ms = 60'000});
  connector.start(1, {gone.address, there.address}, there.port, true, now_ms());
  run(connector, 1);
  ASSERT_TRUE(done_.contains(1));
  EXPECT_TRUE(done_[1].fd);
  EXPECT_EQ(done_[1].address, there.address);
}

// Fills the queue of a listener, so that the next connect() stays under way.
std::vector<UniqueFd> fill(const Listener& listener) {
  std::vector<UniqueFd> fillers;
  const SocketAddress to(listener.address, listener.port);
  for (int i = 0; i < 8; ++i) {
    fillers.emplace_back(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    (void)connect(fillers.back().get(), to.get(), to.size());
  }
  return fillers;
}

TEST_F(ConnectorTest, ASilentAddressDoesNotHoldUpTheNext) {
  const Listener silent("127.0.0.3", 0);
  const auto fillers = fill(silent);
  Listener there("127.0.0.4");
  // The same port at another address.
  const SocketAddress at(there.address, silent.port);
  there.fd.reset(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(bind(there.fd.get(), at.get(), at.size()), 0);
  ASSERT_EQ(listen(there.fd.get(), 4), 0);
  const int before = open_descriptors();
  Connector connector = make({.next_ms = 50});
  connector.start(1, {silent.address, there.address}, silent.port, true, now_ms());
  EXPECT_TRUE(done_.empty());
  run(connector, 1);
  ASSERT_TRUE(done_.contains(1));
  EXPECT_EQ(done_[1].address, there.address);
  EXPECT_EQ(connector.sockets(), 0u);
  done_.clear();
  EXPECT_EQ(open_descriptors(), before);  // the loser is closed
}

TEST_F(ConnectorTest, DeadlinesAndCaps) {
  const Listener silent("127.0.0.5", 0);
  const auto fillers = fill(silent);
  const int before = open_descriptors();
  Connector connector = make({.deadline_ms = 100, .max_sockets = 2});
  const std::int64_t now = now_ms();
  for (std::uint64_t ticket = 1; ticket <= 3; ++ticket) {
    connector.start(ticket, {silent.address}, silent.port, true, now);
  }
  ASSERT_TRUE(done_.contains(3));
  EXPECT_EQ(done_[3].sys_errno, EMFILE);
  EXPECT_EQ(connector.tick(now + 99), now + 100);
  EXPECT_FALSE(done_.contains(1));
  EXPECT_EQ(connector.tick(now + 100), -1);
  EXPECT_EQ(done_[1].sys_errno, ETIMEDOUT);
  EXPECT_EQ(done_[2].sys_errno, ETIMEDOUT);
  EXPECT_EQ(connector.sockets(), 0u);
  EXPECT_EQ(open_descriptors(), before);
}

TEST_F(ConnectorTest, NothingIsLeftAfterCancelling) {
  const Listener silent("127.0.0.6", 0);
  const auto fillers = fill(silent);
  const int before = open_descriptors();
  Connector connector = make();
  for (std::uint64_t ticket = 1; ticket <= 50; ++ticket) {
    connector.start(ticket, {silent.address}, silent.port, true, now_ms());
  }
  EXPECT_EQ(connector.sockets(), 50u);
  connector.cancel_all();
  EXPECT_EQ(connector.sockets(), 0u);
  EXPECT_EQ(open_descriptors(), before);
  EXPECT_EQ(connector.tick(now_ms() + 60'000), -1);
  EXPECT_TRUE(done_.empty());
}

// The event of a socket that was closed while events were worked off, whose number this one has.
TEST_F(ConnectorTest, AnEventThatIsNotItsOwnIsNoConnection) {
  const Listener silent("127.0.0.7", 0);
  const auto fillers = fill(silent);
  Connector connector = make();
  connector.start(1, {silent.address}, silent.port, true, now_ms());
  ASSERT_EQ(watched_.size(), 1u);
  connector.on_event(watched_.begin()->first, now_ms());
  EXPECT_TRUE(done_.empty());
  EXPECT_EQ(watched_.size(), 1u);
  EXPECT_EQ(connector.sockets(), 1u);
}

TEST_F(ConnectorTest, NoAddressIsNoConnection) {
  Connector connector = make();
  connector.start(1, {}, 80, false, now_ms());
  ASSERT_TRUE(done_.contains(1));
  EXPECT_EQ(done_[1].sys_errno, ENETUNREACH);
}

}  // namespace
}  // namespace temenos::egress
