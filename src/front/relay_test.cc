#include "front/relay.h"

#include <dirent.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/resource.h>

#include <chrono>
#include <functional>
#include <thread>

#include "testing/tcp.h"

namespace temenos::front {
namespace {

using namespace std::chrono_literals;
using namespace temenos::testing;

// A relay between two TCP connections, driven by the same events that the loop gives it.
class RelayTest : public ::testing::Test {
 protected:
  RelayTest() : relay_(pipes_) {
    auto [client, near] = tcp_pair();
    auto [far, server] = tcp_pair();
    client_ = std::move(client);
    server_ = std::move(server);
    relay_.client.fd = std::move(near);
    relay_.server.fd = std::move(far);
    epoll_.reset(epoll_create1(EPOLL_CLOEXEC));
    watch(relay_.client.fd.get(), 0);
    watch(relay_.server.fd.get(), 1);
  }
  void watch(int fd, std::uint32_t which) {
    make_non_blocking(fd);
    epoll_event event{.events = EPOLLIN | EPOLLPRI | EPOLLOUT | EPOLLRDHUP | EPOLLET,
                      .data = {.u32 = which}};
    ASSERT_EQ(epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event), 0);
  }
  // Until the relay is over, or `enough` is true when it has nothing to do for a moment.
  Relay::Step run(const std::function<bool()>& enough = [] { return false; }) {
    const auto until = std::chrono::steady_clock::now() + 20s;
    Relay::Step step = relay_.step();
    while (std::chrono::steady_clock::now() < until) {
      if (step == Relay::Step::kDone || step == Relay::Step::kBroken) return step;
      if (step == Relay::Step::kIdle && enough()) return step;
      epoll_event events[4];
      const int count = epoll_wait(epoll_.get(), events, 4, step == Relay::Step::kMore ? 0 : 20);
      for (int i = 0; i < count; ++i) {
        (events[i].data.u32 == 0 ? relay_.client : relay_.server).note(events[i].events);
      }
      step = relay_.step();
    }
    ADD_FAILURE() << "not over in time";
    return step;
  }

  Pipes pipes_;
  Relay relay_;
  UniqueFd epoll_;
  UniqueFd client_;
  UniqueFd server_;
};

// Bytes that are different everywhere, so that a lost or doubled piece shows.
std::string pattern(std::size_t size, std::uint32_t seed) {
  std::string out(size, '\0');
  std::uint32_t state = seed;
  for (char& byte : out) {
    state = state * 1664525 + 1013904223;
    byte = static_cast<char>(state >> 24);
  }
  return out;
}

TEST_F(RelayTest, LargeTransfersBothWaysAtOnceComeWholeThroughSlowReaders) {
  relay_.open();
  const std::string up = pattern(24u << 20, 1);
  const std::string down = pattern(24u << 20, 2);
  auto talk = [](int fd, const std::string& say, std::string& heard) {
    std::thread writer([&] {
      // In uneven pieces.
      for (std::size_t at = 0; at < say.size(); at += 77'777) {
        EXPECT_TRUE(send_text(fd, std::string_view(say).substr(at, 77'777)));
      }
      shutdown(fd, SHUT_WR);
    });
    std::size_t reads = 0;
    for (;;) {
      char room[50'000];
      const ssize_t count = recv(fd, room, ++reads % 3 == 0 ? 100 : sizeof room, 0);
      if (count <= 0) break;
      heard.append(room, static_cast<std::size_t>(count));
      if (reads % 50 == 0) std::this_thread::sleep_for(1ms);
    }
    writer.join();
  };
  std::string heard_up;
  std::string heard_down;
  std::thread client([&] { talk(client_.get(), up, heard_down); });
  std::thread server([&] { talk(server_.get(), down, heard_up); });
  EXPECT_EQ(run(), Relay::Step::kDone);
  client.join();
  server.join();
  EXPECT_TRUE(heard_up == up);
  EXPECT_TRUE(heard_down == down);
  EXPECT_EQ(relay_.up.moved(), up.size());
  EXPECT_EQ(relay_.down.moved(), down.size());
  EXPECT_EQ(pipes_.out(), 0u);
}

TEST_F(RelayTest, AReaderThatDoesNotReadHoldsTheWriterUpAndNothingIsBufferedButAPipe) {
  relay_.open();
  ASSERT_EQ(fcntl(client_.get(), F_SETFL, O_NONBLOCK), 0);
  const std::string piece(65'536, 'x');
  std::size_t sent = 0;
  auto last = std::chrono::steady_clock::now();
  run([&] {
    const ssize_t count = send(client_.get(), piece.data(), piece.size(), MSG_NOSIGNAL);
    if (count > 0) {
      sent += static_cast<std::size_t>(count);
      last = std::chrono::steady_clock::now();
    }
    return std::chrono::steady_clock::now() - last > 300ms;
  });
  EXPECT_LE(relay_.up.held(), Pipes::kLarge);
  EXPECT_GT(relay_.up.held(), 0u);
  EXPECT_EQ(relay_.up.memory(), 0u);
  // The other way is as free as before.
  ASSERT_TRUE(send_text(server_.get(), "hello"));
  run([&] { return relay_.down.moved() == 5; });
  EXPECT_EQ(hear(client_.get(), 5).text, "hello");
  // And all of it arrives once it is read.
  std::size_t heard = 0;
  ASSERT_EQ(fcntl(server_.get(), F_SETFL, O_NONBLOCK), 0);
  shutdown(client_.get(), SHUT_WR);
  run([&] {
    char room[65'536];
    ssize_t count = 0;
    while ((count = recv(server_.get(), room, sizeof room, 0)) > 0) {
      heard += static_cast<std::size_t>(count);
    }
    return count == 0;
  });
  EXPECT_EQ(heard, sent);
}

TEST_F(RelayTest, HalfCloseIsKept) {
  relay_.open();
  ASSERT_TRUE(send_text(client_.get(), "the question"));
  shutdown(client_.get(), SHUT_WR);
  run([&] { return relay_.up.ended(); });
  EXPECT_EQ(hear(server_.get()).text, "the question");
  ASSERT_TRUE(send_text(server_.get(), "the answer"));
  run([&] { return relay_.down.moved() == 10; });
  EXPECT_EQ(hear(client_.get(), 10).text, "the answer");
  server_.reset();
  EXPECT_EQ(run(), Relay::Step::kDone);
  EXPECT_EQ(hear(client_.get()).how, "end");
}

TEST_F(RelayTest, AResetIsPassedOnInBothDirections) {
  relay_.open();
  reset_now(server_);
  ASSERT_EQ(run(), Relay::Step::kBroken);
  relay_.reset();
  EXPECT_EQ(hear(client_.get()).how, "reset");
}

TEST_F(RelayTest, AResetAfterTheEndOfThatDirectionIsSeen) {
  relay_.open();
  shutdown(server_.get(), SHUT_WR);
  run([&] { return relay_.down.ended(); });
  EXPECT_EQ(hear(client_.get()).how, "end");
  reset_now(server_);
  ASSERT_EQ(run(), Relay::Step::kBroken);
  relay_.reset();
  // It has read the end already; the next write finds the reset.
  EXPECT_FALSE(send_text(client_.get(), "x") && send_text(client_.get(), "y") &&
               hear(client_.get()).how == "end" && send_text(client_.get(), "z"));
}

TEST_F(RelayTest, WhatCameBeforeAResetIsStillPassedOn) {
  relay_.open();
  ASSERT_TRUE(send_text(server_.get(), "last words"));
  reset_now(server_);
  ASSERT_EQ(run(), Relay::Step::kBroken);
  relay_.reset();
  const Heard heard = hear(client_.get());
  EXPECT_EQ(heard.text, "last words");
  EXPECT_EQ(heard.how, "reset");
}

TEST_F(RelayTest, PushedBytesGoFirstAndTheLimitHolds) {
  ASSERT_TRUE(send_text(client_.get(), "0123456789"));
  relay_.up.push("first ");
  relay_.up.push("second ");
  relay_.up.allow(4);
  Pump::Step step = Pump::Step::kIdle;
  run([&] {
    step = relay_.up.step(relay_.client, relay_.server);
    return step == Pump::Step::kLimit;
  });
  EXPECT_EQ(step, Pump::Step::kLimit);
  EXPECT_EQ(hear(server_.get(), 17).text, "first second 0123");
  relay_.up.push(" pushed later ");
  relay_.up.allow(2);
  run([&] { return relay_.up.moved() == 17 + 14 + 2; });
  EXPECT_EQ(hear(server_.get(), 16).text, " pushed later 45");
  EXPECT_EQ(relay_.up.memory(), 0u);
}

TEST_F(RelayTest, AnIdleRelayHasNoPipe) {
  relay_.open();
  ASSERT_TRUE(send_text(client_.get(), "x"));
  run([&] { return relay_.up.moved() == 1; });
  EXPECT_EQ(hear(server_.get(), 1).text, "x");
  EXPECT_EQ(pipes_.out(), 0u);
  EXPECT_EQ(pipes_.spare(), 1u);
}

TEST_F(RelayTest, WithoutDescriptorsForAPipeItGoesOn) {
  relay_.open();
  rlimit old{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &old), 0);
  rlimit none = old;
  none.rlim_cur = 0;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  const std::string say = pattern(100'000, 3);
  ASSERT_TRUE(send_text(client_.get(), say));
  shutdown(client_.get(), SHUT_WR);
  std::string heard;
  ASSERT_EQ(fcntl(server_.get(), F_SETFL, O_NONBLOCK), 0);
  // poll(2) counts against the limit as well: only plain calls.
  for (int turn = 0; turn < 1'000'000 && heard.size() < say.size(); ++turn) {
    relay_.client.note(EPOLLIN);
    relay_.server.note(EPOLLOUT);
    EXPECT_NE(relay_.step(), Relay::Step::kBroken);
    char room[65'536];
    const ssize_t count = recv(server_.get(), room, sizeof room, 0);
    if (count > 0) heard.append(room, static_cast<std::size_t>(count));
  }
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &old), 0);
  EXPECT_TRUE(heard == say);
  EXPECT_EQ(pipes_.spare(), 0u);
}

// splice(2) stops before an urgent byte (telnet, FTP) and never gets past it.
TEST_F(RelayTest, UrgentBytesStopNothing) {
  relay_.open();
  ASSERT_TRUE(send_text(server_.get(), "before"));
  EXPECT_EQ(run([&] { return relay_.down.moved() == 6; }), Relay::Step::kIdle);
  for (int round = 0; round < 3; ++round) {
    ASSERT_EQ(send(server_.get(), "!", 1, MSG_OOB), 1);
    ASSERT_TRUE(send_text(server_.get(), "behind"));
    const std::uint64_t least = 6u * (static_cast<std::uint64_t>(round) + 2);
    EXPECT_EQ(run([&] { return relay_.down.moved() >= least; }), Relay::Step::kIdle);
  }
  ASSERT_EQ(send(server_.get(), "!", 1, MSG_OOB), 1);
  ASSERT_TRUE(send_text(server_.get(), "last"));
  shutdown(server_.get(), SHUT_WR);
  shutdown(client_.get(), SHUT_WR);
  EXPECT_EQ(run(), Relay::Step::kDone);
  std::string heard = hear(client_.get()).text;
  std::erase(heard, '!');
  EXPECT_EQ(heard, "beforebehindbehindbehindlast");
}

// With the end right behind it, before anything was heard of it.
TEST_F(RelayTest, AnUrgentByteIsNotTakenForTheEnd) {
  relay_.open();
  ASSERT_TRUE(send_text(server_.get(), "before"));
  ASSERT_EQ(send(server_.get(), "!", 1, MSG_OOB), 1);
  ASSERT_TRUE(send_text(server_.get(), "behind"));
  shutdown(server_.get(), SHUT_WR);
  shutdown(client_.get(), SHUT_WR);
  EXPECT_EQ(run(), Relay::Step::kDone);
  std::string heard = hear(client_.get()).text;
  std::erase(heard, '!');
  EXPECT_EQ(heard, "beforebehind");
}

}  // namespace
}  // namespace temenos::front
