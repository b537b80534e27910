// Many connections at once, and what front keeps for all of them together.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <random>
#include <thread>
#include <vector>

#include "front/dial_client.h"
#include "front/dns_service.h"
#include "front/front.h"
#include "testing/front_test.h"
#include "testing/tls_bytes.h"

namespace temenos::front {
namespace {

using namespace egress;
using namespace std::chrono_literals;
using namespace temenos::testing;

TEST_F(QuickFrontTest, AThousandConnections) {
  route(Verdict::kAny);
  std::vector<std::pair<UniqueFd, UniqueFd>> all;
  for (int i = 0; i < 1'000; ++i) {
    UniqueFd client = bed.connect();
    all.emplace_back(std::move(client), server.accept_one());
  }
  for (auto& [client, far] : all) ASSERT_TRUE(send_text(client.get(), "up\n"));
  for (auto& [client, far] : all) ASSERT_EQ(hear(far.get(), 3).text, "up\n");
  for (auto& [client, far] : all) ASSERT_TRUE(send_text(far.get(), "down"));
  for (auto& [client, far] : all) ASSERT_EQ(hear(client.get(), 4).text, "down");
}

class QuickEnd : public FrontTest {
 protected:
  static FrontBed::Options options() {
    FrontBed::Options out;
    out.times.unsent = 500;
    return out;
  }
  QuickEnd() : FrontTest(options()) {}
};

// A line of the kernel's list of connections: the one from front's port to the client's.
bool kernel_has(std::uint16_t from, std::uint16_t to) {
  std::ifstream list("/proc/self/net/tcp");
  char own[16];
  char far[16];
  (void)std::snprintf(own, sizeof own, ":%04X ", from);
  (void)std::snprintf(far, sizeof far, ":%04X ", to);
  for (std::string line; std::getline(list, line);) {
    const auto at = line.find(own);
    if (at != line.npos && line.find(far, at + 1) != line.npos) return true;
  }
  return false;
}

// It is memory of the host beyond the cap, which a box that never reads could hold for minutes.
TEST_F(QuickEnd, WhatAClientNeverTakesIsNotKeptOnceTheConnectionIsOver) {
  route(Verdict::kAny);
  const UniqueFd client = connect_loopback(bed.tcp_port, 4'096);
  sockaddr_in own{};
  socklen_t size = sizeof own;
  ASSERT_EQ(getsockname(client.get(), reinterpret_cast<sockaddr*>(&own), &size), 0);
  const std::string much(256 * 1024, 'x');
  {
    const UniqueFd far = server.accept_one();
    ASSERT_TRUE(send_text(far.get(), much));
  }
  ASSERT_EQ(shutdown(client.get(), SHUT_WR), 0);
  ASSERT_EQ(bed.dialer().reports(1).size(), 1u);  // it is over for front
  const auto end = std::chrono::steady_clock::now() + 20s;
  while (kernel_has(bed.tcp_port, ntohs(own.sin_port))) {
    ASSERT_LT(std::chrono::steady_clock::now(), end);
    std::this_thread::sleep_for(20ms);
  }
  // It was not taken in the meantime.
  std::string taken(much.size(), '\0');
  EXPECT_LT(recv(client.get(), taken.data(), taken.size(), MSG_DONTWAIT),
            static_cast<ssize_t>(much.size() / 2));
}

class LittleMemory : public FrontTest {
 protected:
  static FrontBed::Options options() {
    FrontBed::Options out = quick();
    out.times.head = 5'000;
    out.max_memory = 300'000;
    return out;
  }
  LittleMemory() : FrontTest(options()) {}
};

TEST_F(LittleMemory, FirstBytesOfAllConnectionsTogetherAreBounded) {
  route(Verdict::kNeedsHttp);
  const std::string much = "GET / HTTP/1.1\r\nHost: a.test\r\nX: " + std::string(50'000, 'x');
  std::vector<UniqueFd> clients;
  for (int i = 0; i < 20; ++i) {
    clients.push_back(bed.connect());
    send_text(clients.back().get(), much);
  }
  const auto reports = bed.dialer().reports(10);
  ASSERT_GE(reports.size(), 10u);
  for (const auto& report : reports) EXPECT_EQ(report.why, Why::kTooMany);
  // Those that go make room.
  clients.clear();
  ASSERT_TRUE(bed.back_to_its_start());
  UniqueFd client = bed.connect();
  ASSERT_TRUE(send_text(client.get(), get("a.test")));
  UniqueFd far = server.accept_one();
  EXPECT_EQ(hear(far.get(), get("a.test").size()).text, get("a.test"));
}

class FewConnections : public FrontTest {
 protected:
  static FrontBed::Options options() {
    FrontBed::Options out = quick();
    out.max_connections = 4;
    return out;
  }
  FewConnections() : FrontTest(options()) {}
};

TEST_F(FewConnections, BeyondTheCapNobodyIsAcceptedUntilOneEnds) {
  route(Verdict::kAny);
  std::vector<std::pair<UniqueFd, UniqueFd>> all;
  for (int i = 0; i < 4; ++i) {
    UniqueFd client = bed.connect();
    all.emplace_back(std::move(client), server.accept_one());
  }
  const UniqueFd next = bed.connect();
  EXPECT_FALSE(server.accept_one(300));
  EXPECT_EQ(bed.dialer().asks().size(), 4u);
  all.pop_back();
  const UniqueFd far = server.accept_one();
  ASSERT_TRUE(far);
  ASSERT_TRUE(send_text(far.get(), "x"));
  EXPECT_EQ(hear(next.get(), 1).text, "x");
}

TEST_F(FewConnections, AQuestionThatDialerHasNotAnsweredKeepsItsPlace) {
  bed.dialer().rule(bed.transparent(), {.name = "a.test", .mute = true});
  for (int i = 0; i < 20; ++i) {
    UniqueFd client = bed.connect();
    reset_now(client);
  }
  // Many more than the cap came and went; no more than the cap are asked for.
  bed.dialer().name("a.test", 1, true);
  std::this_thread::sleep_for(100ms);
  EXPECT_LE(bed.dialer().asks().size(), 4u);
}

// A client that asks faster than anybody can answer is one of many.
TEST_F(QuickFrontTest, AStreamOfQuestionsThatNeverEndsLeavesOthersTheirTurn) {
  route(Verdict::kAny);
  const std::string question =
      sized(2, number(2, 7) + number(2, 0x0100) + number(2, 1) + number(6, 0) +
                   sized(1, "localhost") + number(1, 0) + number(2, 1) + number(2, 1));
  std::string questions;
  while (questions.size() < 60'000) questions += question;
  const UniqueFd flood = connect_loopback(bed.dns_tcp_port);
  std::atomic<bool> stop = false;
  std::atomic<std::size_t> answers = 0;
  std::thread asks([&] {
    while (!stop && send_text(flood.get(), questions)) {
    }
    shutdown(flood.get(), SHUT_WR);
  });
  std::thread hears([&] {
    char room[65'536];
    for (ssize_t count = 1; count > 0; answers += static_cast<std::size_t>(count)) {
      count = recv(flood.get(), room, sizeof room, 0);
      if (count < 0) break;
    }
  });
  while (answers < 1'000'000) std::this_thread::yield();
  for (int i = 0; i < 20; ++i) {
    UniqueFd client = bed.connect();
    UniqueFd far = server.accept_one(2'000);
    EXPECT_TRUE(far);
    if (!far) break;
    EXPECT_TRUE(send_text(far.get(), "x"));
    EXPECT_EQ(hear(client.get(), 1).text, "x");
  }
  stop = true;
  asks.join();
  hears.join();
}

// All places have a question open, and all that had the last ones were refused: a flood hides none.
TEST(DialClientQueue, ReportsBehindAFullHouseOfQuestionsAreNotLost) {
  auto [near, far] = *sys::socket_pair(SOCK_SEQPACKET);
  DialClient client;
  client.use(std::move(near));
  for (std::size_t i = 0; i < kMaxConnections + DnsService::kMaxPending; ++i) {
    ASSERT_TRUE(client.ask({.id = i}));
  }
  for (std::size_t i = 0; i < kMaxConnections; ++i) client.report({.id = i, .ask = Ask::kReport});
  std::size_t reports = 0;
  Request request;
  do {
    while (recv(far.get(), &request, sizeof request, MSG_DONTWAIT) == sizeof request) {
      if (request.ask == Ask::kReport) ++reports;
    }
    ASSERT_TRUE(client.exchange([](const Reply&, UniqueFd) {}));
  } while (client.blocked() || recv(far.get(), &request, 1, MSG_DONTWAIT | MSG_PEEK) == 1);
  EXPECT_EQ(reports, kMaxConnections);
}

TEST(DialClientQueue, OfAReplyWithTwoDescriptorsNoneStays) {
  auto [near, far] = *sys::socket_pair(SOCK_SEQPACKET);
  auto [one, other] = *sys::socket_pair(SOCK_STREAM);
  DialClient client;
  client.use(std::move(near));
  const Reply reply;
  const int fds[] = {one.get(), one.get()};
  ASSERT_TRUE(
      sys::send_with_fds(far.get(), {reinterpret_cast<const char*>(&reply), sizeof reply}, fds));
  (void)client.exchange([](const Reply&, UniqueFd) {});
  one.reset();
  char byte = 0;
  EXPECT_EQ(recv(other.get(), &byte, 1, MSG_DONTWAIT), 0) << "somebody still has its other end";
}

// Whatever clients, servers and dialer do in whatever order, nothing stays and the next one works.
TEST_F(QuickFrontTest, DisorderLeavesNothing) {
  const std::uint32_t seed = static_cast<std::uint32_t>(getpid());
  std::mt19937 random(seed);
  auto pick = [&](std::uint32_t below) { return static_cast<std::uint32_t>(random()) % below; };
  const std::string words[] = {
      get("a.test"),
      get("b.test"),
      tls_hello("a.test"),
      tls_hello("b.test").substr(0, 30),
      tls_answer(true),
      tls_change_cipher() + tls_hello("b.test"),
      "POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 100\r\n\r\nbody",
      "CONNECT a.test:22 HTTP/1.1\r\nHost: a.test:22\r\n\r\n",
      std::string("\5\1\0\5", 4),
      "GET http://a.test:22/ HTTP/1.1\r\nHost: a.test:22\r\n\r\n",
      "\r\n",
      std::string(5'000, 'x'),
  };
  const Verdict verdicts[] = {Verdict::kAny, Verdict::kNeedsHttp, Verdict::kNeedsTls,
                              Verdict::kRefused};
  std::vector<UniqueFd> open;
  for (int round = 0; round < 1'500; ++round) {
    const DialRule rule{.verdict = verdicts[pick(4)],
                        .name = "a.test",
                        .server = pick(8) == 0 ? std::uint16_t{0} : server.port,
                        .mute = pick(20) == 0};
    bed.dialer().rule(bed.transparent(), rule);
    bed.dialer().rule("a.test:22", rule);
    if (open.size() < 60) open.push_back(pick(3) == 0 ? bed.connect_proxy() : bed.connect());
    if (pick(2) == 0) {
      if (UniqueFd far = server.accept_one(0)) open.push_back(std::move(far));
    }
    UniqueFd& one = open[pick(static_cast<std::uint32_t>(open.size()))];
    const std::string& word = words[pick(std::size(words))];
    switch (pick(6)) {
      case 0:
        shutdown(one.get(), SHUT_WR);
        break;
      case 1:
        std::swap(one, open.back());
        if (pick(2) == 0) reset_now(open.back());
        open.pop_back();
        break;
      default:
        (void)::send(one.get(), word.data(), pick(static_cast<std::uint32_t>(word.size())) + 1,
                     MSG_NOSIGNAL | MSG_DONTWAIT);
    }
    if (open.empty()) open.push_back(bed.connect());
    if (round % 300 == 299) (void)bed.replace_dialer();
  }
  open.clear();
  while (server.accept_one(0)) {
  }
  ASSERT_TRUE(bed.back_to_its_start()) << seed;
  while (server.accept_one(100)) {
  }
  route(Verdict::kAny);
  const UniqueFd client = bed.connect();
  const UniqueFd far = server.accept_one();
  ASSERT_TRUE(far) << seed;
  ASSERT_TRUE(send_text(far.get(), "well"));
  EXPECT_EQ(hear(client.get(), 4).text, "well") << seed;
}

}  // namespace
}  // namespace temenos::front
