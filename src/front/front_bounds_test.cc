// Many connections at once, and what front keeps for all of them together.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <fstream>
#include <thread>
#include <vector>

#include "front/front.h"
#include "testing/front_test.h"

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

}  // namespace
}  // namespace temenos::front
