// Ports of a box with the real programs, init on this host: so "the box's loopback" is the host's.
#include "box/port_pump.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <netinet/in.h>
#include <sys/un.h>

#include <functional>

#include "testing/session_fixture.h"

namespace temenos {
namespace {

using namespace std::chrono_literals;

// A server that a test plays: each connection is served by `serve` on a thread of its own.
class Server {
 public:
  using Serve = std::function<void(int fd)>;
  Server(int family, Serve serve, const std::string& path = "") : serve_(std::move(serve)) {
    sockaddr_storage address{};
    socklen_t size = sizeof(sockaddr_in);
    address.ss_family = static_cast<sa_family_t>(family);
    if (family == AF_INET) {
      reinterpret_cast<sockaddr_in&>(address).sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    } else if (family == AF_INET6) {
      reinterpret_cast<sockaddr_in6&>(address).sin6_addr = in6addr_loopback;
      size = sizeof(sockaddr_in6);
    } else {
      path.copy(reinterpret_cast<sockaddr_un&>(address).sun_path, 107);
      size = sizeof(sockaddr_un);
    }
    fd_.reset(socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(bind(fd_.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(listen(fd_.get(), 128), 0);
    size = sizeof address;
    EXPECT_EQ(getsockname(fd_.get(), reinterpret_cast<sockaddr*>(&address), &size), 0);
    port_ = ntohs(reinterpret_cast<sockaddr_in&>(address).sin_port);  // at the same place in both
  }
  void run(int connections) {
    runner_ = std::thread([this, connections] {
      for (int i = 0; i < connections; ++i) {
        const int fd = accept4(fd_.get(), nullptr, nullptr, SOCK_CLOEXEC);
        if (fd < 0) return;
        servers_.emplace_back([this, fd] {
          const UniqueFd connection(fd);
          serve_(fd);
        });
      }
    });
  }
  ~Server() {
    shutdown(fd_.get(), SHUT_RDWR);
    if (runner_.joinable()) runner_.join();
    for (auto& server : servers_) server.join();
  }
  std::uint16_t port() const { return port_; }
  // Nobody listens there any more.
  void close() { fd_.reset(); }
  UniqueFd take() { return std::move(fd_); }

 private:
  Serve serve_;
  UniqueFd fd_;
  std::uint16_t port_ = 0;
  std::thread runner_;
  std::vector<std::thread> servers_;
};

bool send_all(int fd, std::string_view data) {
  while (!data.empty()) {
    const ssize_t count = send(fd, data.data(), data.size(), MSG_NOSIGNAL);
    if (count <= 0) return false;
    data.remove_prefix(static_cast<std::size_t>(count));
  }
  return true;
}

std::string read_all(int fd) {
  std::string data;
  char block[65536];
  for (ssize_t count; (count = recv(fd, block, sizeof block, 0)) > 0;) {
    data.append(block, static_cast<std::size_t>(count));
  }
  return data;
}

std::string read_exactly(int fd, std::size_t size) {
  std::string data(size, '\0');
  const ssize_t count = recv(fd, data.data(), size, MSG_WAITALL);
  data.resize(count > 0 ? static_cast<std::size_t>(count) : 0);
  return data;
}

void echo(int fd) {
  char block[65536];
  for (ssize_t count; (count = recv(fd, block, sizeof block, 0)) > 0;) {
    if (!send_all(fd, {block, static_cast<std::size_t>(count)})) return;
  }
}

UniqueFd connect_to(std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  return fd;
}

std::string pattern(std::size_t size, unsigned seed) {
  std::string data(size, '\0');
  std::uint64_t state = seed + 1;
  for (char& byte : data) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    byte = static_cast<char>(state >> 56);
  }
  return data;
}

class PortPumpTest : public temenos::testing::SessionTest {
 protected:
  void SetUp() override {
    SessionTest::SetUp();
    auto pump = PortPump::start(connect());
    ASSERT_TRUE(pump) << pump.error().to_string();
    pump_ = std::move(*pump);
  }
  void TearDown() override {
    pump_.reset();
    SessionTest::TearDown();
  }
  UniqueFd dial(std::uint16_t port) {
    auto fd = pump_->dial({port, ""});
    EXPECT_TRUE(fd) << fd.error().to_string();
    return fd ? std::move(*fd) : UniqueFd();
  }
  // A port of the host that leads to `port`.
  std::uint16_t forward(std::uint16_t port) {
    Server listener(AF_INET, {});
    const auto made = pump_->forward(listener.take(), {port, ""});
    EXPECT_TRUE(made) << made.error().to_string();
    return made.value_or(std::uint16_t{0});
  }

  std::unique_ptr<PortPump> pump_;
};

TEST_F(PortPumpTest, BytesGoBothWaysAndEachWayHasItsEnd) {
  Server server(AF_INET, [](int fd) {
    const std::string asked = read_all(fd);  // until the caller's end
    send_all(fd, "heard " + asked);
  });
  server.run(2);
  const UniqueFd fd = dial(server.port());
  ASSERT_TRUE(send_all(fd.get(), "hello"));
  ASSERT_EQ(shutdown(fd.get(), SHUT_WR), 0);
  EXPECT_EQ(read_all(fd.get()), "heard hello");
  const UniqueFd forwarded = connect_to(forward(server.port()));
  ASSERT_TRUE(send_all(forwarded.get(), "again"));
  ASSERT_EQ(shutdown(forwarded.get(), SHUT_WR), 0);
  EXPECT_EQ(read_all(forwarded.get()), "heard again");
}

TEST_F(PortPumpTest, TheServersEndLeavesTheOtherWayOpen) {
  std::promise<std::string> heard;
  Server server(AF_INET, [&heard](int fd) {
    send_all(fd, "welcome");  // the server speaks first
    shutdown(fd, SHUT_WR);
    heard.set_value(read_all(fd));
  });
  server.run(1);
  const UniqueFd fd = connect_to(forward(server.port()));
  EXPECT_EQ(read_all(fd.get()), "welcome");
  EXPECT_TRUE(send_all(fd.get(), "late words"));
  ASSERT_EQ(shutdown(fd.get(), SHUT_WR), 0);
  EXPECT_EQ(heard.get_future().get(), "late words");
}

TEST_F(PortPumpTest, Ipv6AndUnixSocketsAreReached) {
  const std::string path = dir_ + "/socket";
  Server six(AF_INET6, echo);
  Server local(AF_UNIX, echo, path);
  six.run(1);
  local.run(1);
  UniqueFd fd = dial(six.port());
  ASSERT_TRUE(send_all(fd.get(), "six"));
  EXPECT_EQ(read_exactly(fd.get(), 3), "six");
  auto dialed = pump_->dial({0, path});
  ASSERT_TRUE(dialed) << dialed.error().to_string();
  fd = std::move(*dialed);
  ASSERT_TRUE(send_all(fd.get(), "unix"));
  EXPECT_EQ(read_exactly(fd.get(), 4), "unix");
}

TEST_F(PortPumpTest, WhereNobodyListensItIsSaidAndTheAcceptedConnectionReset) {
  Server gone(AF_INET, {});
  const std::uint16_t port = gone.port();
  gone.close();
  const auto refused = pump_->dial({port, ""});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().sys_errno, ECONNREFUSED);
  EXPECT_THAT(refused.error().to_string(), ::testing::HasSubstr(std::to_string(port)));
  EXPECT_FALSE(refused.error().hint.empty());
  const auto missing = pump_->dial({0, dir_ + "/none"});
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().sys_errno, ENOENT);
  const UniqueFd fd = connect_to(forward(port));
  char byte = 0;
  EXPECT_EQ(recv(fd.get(), &byte, 1, 0), -1);
  EXPECT_EQ(errno, ECONNRESET);
  for (const PortTarget& bad : {PortTarget{0, ""}, PortTarget{1, "/a"}, PortTarget{0, "relative"},
                                PortTarget{0, "/" + std::string(107, 'x')}}) {
    const auto result = pump_->dial(bad);
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().code, Code::kInvalidArgument);
  }
}

TEST_F(PortPumpTest, AHundredConnectionsAtOnce) {
  constexpr int kConnections = 100;
  constexpr std::size_t kSize = 200'000;
  Server server(AF_INET, echo);
  server.run(kConnections);
  const std::uint16_t port = forward(server.port());
  std::vector<std::thread> threads;
  std::atomic<int> good = 0;
  for (int i = 0; i < kConnections; ++i) {
    threads.emplace_back([&, i] {
      const UniqueFd fd = i % 2 == 0 ? connect_to(port) : dial(server.port());
      const std::string data = pattern(kSize, static_cast<unsigned>(i));
      std::thread sender([&] {
        send_all(fd.get(), data);
        shutdown(fd.get(), SHUT_WR);
      });
      good += read_all(fd.get()) == data;
      sender.join();
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(good, kConnections);
}

TEST_F(PortPumpTest, WhoDoesNotReadHoldsUpNobodyElse) {
  Server flood(AF_INET, [](int fd) {
    const std::string block(65536, 'f');
    while (send_all(fd, block)) {
    }
  });
  flood.run(20);
  Server server(AF_INET, echo);
  server.run(1);
  std::vector<UniqueFd> idle;
  for (int i = 0; i < 20; ++i) idle.push_back(dial(flood.port()));
  // Each has sent all that it may: nothing of that is read.
  const UniqueFd fd = dial(server.port());
  const std::string data = pattern(5u << 20, 1);
  std::thread sender([&] {
    send_all(fd.get(), data);
    shutdown(fd.get(), SHUT_WR);
  });
  EXPECT_EQ(read_all(fd.get()), data);
  sender.join();
  EXPECT_LT(temenos::testing::status_kb(session_pid_, "VmHWM"), temenos::testing::kMemoryKb);
}

TEST_F(PortPumpTest, AServerThatDoesNotReadHoldsUpNobodyElse) {
  std::promise<void> enough;
  auto wait = enough.get_future().share();
  Server deaf(AF_INET, [wait](int) { wait.get(); });
  deaf.run(1);
  Server server(AF_INET, echo);
  server.run(1);
  const UniqueFd stuck = dial(deaf.port());
  const std::string block(1u << 20, 'x');
  std::size_t sent = 0;
  for (;;) {
    pollfd entry{stuck.get(), POLLOUT, 0};
    if (poll(&entry, 1, 500) == 0) break;  // its way is full
    const ssize_t count = send(stuck.get(), block.data(), block.size(), MSG_DONTWAIT);
    if (count > 0) sent += static_cast<std::size_t>(count);
    ASSERT_LT(sent, 64u << 20);
  }
  const UniqueFd fd = dial(server.port());
  const std::string data = pattern(2u << 20, 2);
  std::thread sender([&] {
    send_all(fd.get(), data);
    shutdown(fd.get(), SHUT_WR);
  });
  EXPECT_EQ(read_all(fd.get()), data);
  sender.join();
  enough.set_value();
}

TEST_F(PortPumpTest, FiftyMegabytesArriveAsTheyWere) {
  const std::string data = pattern(50u << 20, 3);
  Server server(AF_INET, [&data](int fd) { send_all(fd, data); });
  server.run(1);
  const UniqueFd fd = dial(server.port());
  EXPECT_EQ(read_all(fd.get()), data);
}

TEST_F(PortPumpTest, AClientThatVanishesResetsTheConnectionInTheBox) {
  std::promise<int> ended;
  Server server(AF_INET, [&ended](int fd) {
    // Sends for as long as somebody is there.
    const std::string block(65536, 'v');
    while (send_all(fd, block)) {
    }
    ended.set_value(errno);
  });
  server.run(1);
  {
    const UniqueFd fd = connect_to(forward(server.port()));
    EXPECT_EQ(read_exactly(fd.get(), 100'000).size(), 100'000u);
  }
  auto when = ended.get_future();
  ASSERT_EQ(when.wait_for(30s), std::future_status::ready);
  const int error = when.get();
  EXPECT_TRUE(error == ECONNRESET || error == EPIPE) << error;
}

TEST_F(PortPumpTest, AResetInTheBoxIsAResetOutside) {
  Server server(AF_INET, [](int fd) {
    read_exactly(fd, 1);
    const linger now{1, 0};
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
  });
  server.run(1);
  const UniqueFd fd = connect_to(forward(server.port()));
  ASSERT_TRUE(send_all(fd.get(), "x"));
  char byte = 0;
  EXPECT_EQ(recv(fd.get(), &byte, 1, 0), -1);
  EXPECT_EQ(errno, ECONNRESET);
}

TEST_F(PortPumpTest, ItsEndCutsEverythingAndTheBoxIsToldSo) {
  Server server(AF_INET, [](int fd) { read_all(fd); });
  server.run(2);
  const std::uint16_t port = forward(server.port());
  const UniqueFd dialed = dial(server.port());
  const UniqueFd forwarded = connect_to(port);
  ASSERT_TRUE(send_all(forwarded.get(), "x"));
  pump_.reset();
  EXPECT_EQ(read_all(dialed.get()), "");
  EXPECT_EQ(read_all(forwarded.get()), "");
  // The listener has gone, too; and the server's threads end, or the test would not.
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const UniqueFd again(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(::connect(again.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), -1);
}

TEST_F(PortPumpTest, MoreThanTheLimitIsRefusedAndTheRestGoesOn) {
  constexpr int kMost = static_cast<int>(PortPump::kMaxConnections);
  Server server(AF_INET, echo);
  server.run(kMost + 1);
  std::vector<UniqueFd> open;
  for (int i = 0; i < kMost; ++i) open.push_back(dial(server.port()));
  const auto more = pump_->dial({server.port(), ""});
  ASSERT_FALSE(more);
  EXPECT_EQ(more.error().code, Code::kExhausted);
  // One that waits in the backlog is served when another has gone.
  const UniqueFd waiting = connect_to(forward(server.port()));
  ASSERT_TRUE(send_all(waiting.get(), "wait"));
  open.front().reset();
  EXPECT_EQ(read_exactly(waiting.get(), 4), "wait");
}

TEST_F(PortPumpTest, WithoutItsSessionEverythingEnds) {
  Server server(AF_INET, echo);
  server.run(1);
  const UniqueFd fd = dial(server.port());
  const UniqueFd waiting = connect_to(forward(server.port()));
  ASSERT_EQ(kill(init_pid_, SIGKILL), 0);
  ASSERT_EQ(waitpid(init_pid_, nullptr, 0), init_pid_);
  init_pid_ = -1;
  EXPECT_EQ(read_all(fd.get()), "");
  auto late = pump_->dial({server.port(), ""});
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().code, Code::kBoxDied);
}

}  // namespace
}  // namespace temenos
