// front as a process, with real sockets and a dialer that does as the test says.
#include "front/front.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "testing/front_test.h"
#include "testing/tcp.h"
#include "testing/tls_bytes.h"

namespace temenos::front {
namespace {

using namespace egress;
using namespace std::chrono_literals;
using namespace temenos::testing;
using ::testing::HasSubstr;
using ::testing::StartsWith;

const std::string kAlert("\x15\x03\x03\x00\x02\x02\x31", 7);

// ---- forwarding

TEST_F(FrontTest, AnyProtocolBothWaysAndTheServerSpeaksFirst) {
  route(Verdict::kAny);
  UniqueFd client = bed.connect();
  UniqueFd far = server.accept_one();
  ASSERT_TRUE(send_text(far.get(), "220 hello\r\n"));
  EXPECT_EQ(hear(client.get(), 11).text, "220 hello\r\n");
  ASSERT_TRUE(send_text(client.get(), "EHLO me\r\n"));
  EXPECT_EQ(hear(far.get(), 9).text, "EHLO me\r\n");
  shutdown(client.get(), SHUT_WR);
  EXPECT_EQ(hear(far.get()).how, "end");
  ASSERT_TRUE(send_text(far.get(), "bye"));
  far.reset();
  const Heard last = hear(client.get());
  EXPECT_EQ(last.text, "bye");
  EXPECT_EQ(last.how, "end");
  const auto reports = bed.dialer().reports(1);
  ASSERT_EQ(reports.size(), 1u);
  EXPECT_EQ(reports[0].why, Why::kNone);
  EXPECT_EQ(reports[0].up, 9u);
  EXPECT_EQ(reports[0].down, 14u);
  EXPECT_EQ(reports[0].app, App::kOther);
  EXPECT_EQ(reports[0].id, bed.dialer().asks()[0].id);
}

TEST_F(FrontTest, TlsByteByByteAndThenHttp2UndisturbedInIt) {
  route(Verdict::kNeedsTls);
  UniqueFd client = bed.connect();
  const std::string hello = tls_hello("a.test");
  for (const char byte : hello) ASSERT_TRUE(send_text(client.get(), {&byte, 1}));
  UniqueFd far = server.accept_one();
  EXPECT_EQ(hear(far.get(), hello.size()).text, hello);
  ASSERT_TRUE(send_text(far.get(), tls_answer(false)));
  EXPECT_EQ(hear(client.get(), tls_answer(false).size()).text, tls_answer(false));
  // Records of whatever is inside.
  const std::string inside = "\x17\x03\x03" + std::string(1 << 20, 'h');
  std::thread sender([&] { send_text(client.get(), inside); });
  EXPECT_TRUE(hear(far.get(), inside.size()).text == inside);
  sender.join();
  EXPECT_EQ(bed.dialer().asks()[1].ask, Ask::kConnect);
}

TEST_F(FrontTest, ASecondHelloNamesTheSameServerOrEndsIt) {
  for (const Verdict verdict : {Verdict::kNeedsTls, Verdict::kAny}) {
    for (const char* name : {"a.test", "b.test"}) {
      route(verdict);
      UniqueFd client = bed.connect();
      const std::string hello = tls_hello("a.test");
      // What stands behind the first waits for the server's answer.
      const std::string second = tls_change_cipher() + tls_hello(name);
      ASSERT_TRUE(send_text(client.get(), hello + second));
      UniqueFd far = server.accept_one();
      EXPECT_EQ(hear(far.get(), hello.size()).text, hello);
      EXPECT_EQ(hear(far.get(), 1, 100).how, "time");
      ASSERT_TRUE(send_text(far.get(), tls_answer(true) + tls_change_cipher()));
      const std::string answer = tls_answer(true) + tls_change_cipher();
      if (std::string_view(name) == "a.test") {
        EXPECT_EQ(hear(client.get(), answer.size()).text, answer);
        EXPECT_EQ(hear(far.get(), second.size()).text, second);
      } else {
        EXPECT_EQ(hear(client.get()).how, "reset");
        EXPECT_THAT(tls_change_cipher(), StartsWith(hear(far.get()).text));
      }
    }
  }
  const auto reports = bed.dialer().reports(4);
  EXPECT_EQ(std::count_if(reports.begin(), reports.end(),
                          [](const Request& report) {
                            return report.why == Why::kForeignName &&
                                   std::string_view(report.name) == "b.test";
                          }),
            2);
}

TEST_F(FrontTest, EndsBeforeTheServersHelloArePassedOn) {
  route(Verdict::kNeedsTls);
  UniqueFd client = bed.connect();
  ASSERT_TRUE(send_text(client.get(), tls_hello("a.test")));
  UniqueFd far = server.accept_one();
  EXPECT_EQ(hear(far.get(), tls_hello("a.test").size()).how, "");
  shutdown(client.get(), SHUT_WR);
  EXPECT_EQ(hear(far.get()).how, "end");
  ASSERT_TRUE(send_text(far.get(), "bye"));
  shutdown(far.get(), SHUT_WR);
  const Heard heard = hear(client.get());
  EXPECT_EQ(heard.text, "bye");
  EXPECT_EQ(heard.how, "end");
  UniqueFd other = bed.connect();
  ASSERT_TRUE(send_text(other.get(), tls_hello("a.test")));
  UniqueFd other_far = server.accept_one();
  EXPECT_EQ(hear(other_far.get(), tls_hello("a.test").size()).how, "");
  shutdown(other_far.get(), SHUT_WR);
  EXPECT_EQ(hear(other.get()).how, "end");
  const auto reports = bed.dialer().reports(1);
  ASSERT_GE(reports.size(), 1u);
  EXPECT_EQ(reports[0].why, Why::kNone);
}

TEST_F(FrontTest, LargeTransfersBothWaysAtOnceComeWhole) {
  route(Verdict::kAny);
  UniqueFd client = bed.connect();
  UniqueFd far = server.accept_one();
  std::string up(16u << 20, '\0');
  std::string down(16u << 20, '\0');
  for (std::size_t i = 0; i < up.size(); ++i) {
    up[i] = static_cast<char>(i * 2654435761u >> 24);
    down[i] = static_cast<char>(i * 40503u >> 8);
  }
  std::thread a([&] {
    send_text(client.get(), up);
    shutdown(client.get(), SHUT_WR);
  });
  std::thread b([&] {
    send_text(far.get(), down);
    shutdown(far.get(), SHUT_WR);
  });
  Heard heard_down;
  std::thread c([&] { heard_down = hear(client.get(), SIZE_MAX, 30'000); });
  const Heard heard_up = hear(far.get(), SIZE_MAX, 30'000);
  a.join();
  b.join();
  c.join();
  EXPECT_TRUE(heard_up.text == up);
  EXPECT_TRUE(heard_down.text == down);
  EXPECT_EQ(heard_up.how, "end");
  EXPECT_EQ(heard_down.how, "end");
}

TEST_F(FrontTest, ResetsArePassedOn) {
  route(Verdict::kAny);
  UniqueFd client = bed.connect();
  UniqueFd far = server.accept_one();
  reset_now(far);
  EXPECT_EQ(hear(client.get()).how, "reset");
  UniqueFd second = bed.connect();
  UniqueFd second_far = server.accept_one();
  reset_now(second);
  EXPECT_EQ(hear(second_far.get()).how, "reset");
}

// ---- HTTP on a rule without a port

TEST_F(QuickFrontTest, PipelinedAndKeptAliveRequestsAndASecondHost) {
  route(Verdict::kNeedsHttp);
  UniqueFd client = bed.connect();
  ASSERT_TRUE(send_text(client.get(), get("a.test", "/1") + get("a.test", "/2")));
  UniqueFd far = server.accept_one();
  const std::string both = get("a.test", "/1") + get("a.test", "/2");
  EXPECT_EQ(hear(far.get(), both.size()).text, both);
  const std::string answer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
  ASSERT_TRUE(send_text(far.get(), answer + answer));
  EXPECT_EQ(hear(client.get(), 2 * answer.size()).text, answer + answer);
  ASSERT_TRUE(send_text(client.get(), get("b.test")));
  // Reported when it is refused, before the client has gone.
  EXPECT_EQ(bed.dialer().reports(1).size(), 1u);
  const Heard refused = hear(client.get());
  EXPECT_THAT(refused.text, StartsWith("HTTP/1.1 403 Forbidden\r\n"));
  EXPECT_THAT(refused.text, HasSubstr("b.test was asked for"));
  EXPECT_EQ(refused.how, "end");
  EXPECT_EQ(hear(far.get()).text, "");
  const auto reports = bed.dialer().reports(1);
  ASSERT_EQ(reports.size(), 1u);
  EXPECT_EQ(reports[0].why, Why::kForeignName);
  EXPECT_EQ(std::string_view(reports[0].name), "b.test");
}

TEST_F(FrontTest, BodiesOfAnySizeAndWhatFollowsThem) {
  route(Verdict::kNeedsHttp);
  UniqueFd client = bed.connect();
  const std::string body(3u << 20, 'b');
  const std::string first =
      "PUT / HTTP/1.1\r\nHost: a.test\r\nContent-Length: " + std::to_string(body.size()) +
      "\r\n\r\n" + body;
  std::string second = "POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n";
  for (int i = 0; i < 20; ++i) second += "10000\r\n" + std::string(0x10000, 'c') + "\r\n";
  second += "0\r\n\r\n";
  const std::string all = first + second + get("a.test", "/last");
  std::thread sender([&] { send_text(client.get(), all); });
  UniqueFd far = server.accept_one();
  EXPECT_TRUE(hear(far.get(), all.size(), 20'000).text == all);
  sender.join();
}

TEST_F(FrontTest, AnUpgradeAndServerSentEventsAreNotHeldBack) {
  route(Verdict::kNeedsHttp);
  UniqueFd client = bed.connect();
  const std::string head =
      "GET /ws HTTP/1.1\r\nHost: a.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
  ASSERT_TRUE(send_text(client.get(), head));
  UniqueFd far = server.accept_one();
  EXPECT_EQ(hear(far.get(), head.size()).text, head);
  const std::string switched = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n";
  ASSERT_TRUE(send_text(far.get(), switched));
  EXPECT_EQ(hear(client.get(), switched.size()).text, switched);
  ASSERT_TRUE(send_text(client.get(), "\x81\x05hello"));
  EXPECT_EQ(hear(far.get(), 7).text, "\x81\x05hello");
  ASSERT_TRUE(send_text(far.get(), "\x81\x02hi"));
  EXPECT_EQ(hear(client.get(), 4).text, "\x81\x02hi");

  UniqueFd events = bed.connect();
  ASSERT_TRUE(send_text(events.get(), get("a.test", "/events")));
  UniqueFd source = server.accept_one();
  EXPECT_EQ(hear(source.get(), get("a.test", "/events").size()).how, "");
  for (const char byte : std::string("HTTP/1.1 200 OK\r\n\r\ndata: 1\n\n")) {
    ASSERT_TRUE(send_text(source.get(), {&byte, 1}));
    EXPECT_EQ(hear(events.get(), 1).text, std::string(1, byte));
  }
}

// ---- refusals

TEST_F(QuickFrontTest, RefusedDestinationsAreReadableAtOnce) {
  bed.dialer().rule(bed.transparent(), {.name = "b.test"});
  UniqueFd http = bed.connect();
  ASSERT_TRUE(send_text(http.get(), get("b.test")));
  const Heard text = hear(http.get());
  EXPECT_THAT(text.text, StartsWith("HTTP/1.1 403 Forbidden\r\n"));
  EXPECT_THAT(text.text, HasSubstr("egress refused: b.test:"));
  EXPECT_EQ(text.how, "end");
  UniqueFd tls = bed.connect();
  ASSERT_TRUE(send_text(tls.get(), tls_hello("b.test")));
  EXPECT_EQ(hear(tls.get()).text, kAlert);
  UniqueFd other = bed.connect();
  ASSERT_TRUE(send_text(other.get(), "SSH-2.0-x\r\n"));
  EXPECT_EQ(hear(other.get()).how, "reset");
  UniqueFd silent = bed.connect();
  EXPECT_EQ(hear(silent.get(), 1, 1'000).how, "reset");
  EXPECT_TRUE(bed.dialer().reports().empty());
}

TEST_F(QuickFrontTest, AClientThatSendsMuchStillReadsWhyItWasRefused) {
  bed.dialer().rule(bed.transparent(), {.name = "b.test"});
  UniqueFd client = bed.connect();
  ASSERT_TRUE(
      send_text(client.get(), "POST / HTTP/1.1\r\nHost: b.test\r\nContent-Length: 500000\r\n\r\n" +
                                  std::string(500'000, 'x')));
  const Heard heard = hear(client.get());
  EXPECT_THAT(heard.text, HasSubstr("egress refused"));
  EXPECT_EQ(heard.how, "end");
  // A reset here could have taken away what it had not read yet.
  EXPECT_TRUE(send_text(client.get(), "more"));
}

TEST_F(QuickFrontTest, SlowAndSilentClientsEndAtTheHeaderTime) {
  route(Verdict::kNeedsHttp);
  UniqueFd slow = bed.connect();
  const auto begun = std::chrono::steady_clock::now();
  std::string head = "GET / HTTP/1.1\r\nHost: a.test\r\nX: ";
  while (send_text(slow.get(), head.substr(0, 1)) &&
         std::chrono::steady_clock::now() - begun < 3s) {
    head = head.substr(1) + "x";
    if (hear(slow.get(), 1, 30).how != "time") break;
  }
  const auto took = std::chrono::steady_clock::now() - begun;
  EXPECT_GE(took, 390ms);
  EXPECT_LT(took, 2s);
  UniqueFd silent = bed.connect();
  EXPECT_EQ(hear(silent.get(), 1, 3'000).how, "reset");
  // A foreign hello after it finds nobody.
  EXPECT_EQ(server.accept_one(0).get(), -1);
  const auto reports = bed.dialer().reports(2);
  ASSERT_EQ(reports.size(), 2u);
  EXPECT_EQ(reports[0].why, Why::kSilent);
}

TEST_F(QuickFrontTest, NothingInEitherDirectionForTooLongIsTheEnd) {
  route(Verdict::kAny);
  UniqueFd client = bed.connect();
  UniqueFd far = server.accept_one();
  for (int i = 0; i < 4; ++i) {
    std::this_thread::sleep_for(700ms);
    ASSERT_TRUE(send_text(client.get(), "x\n"));
    EXPECT_EQ(hear(far.get(), 2).text, "x\n");
  }
  EXPECT_EQ(hear(client.get(), 1, 4'000).how, "reset");
  EXPECT_EQ(hear(far.get(), 1, 1'000).how, "reset");
}

TEST_F(QuickFrontTest, ALongUploadIsNotHeldToTheTimeOfAHead) {
  route(Verdict::kNeedsHttp);
  UniqueFd client = bed.connect();
  ASSERT_TRUE(
      send_text(client.get(), "PUT / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 10\r\n\r\n"));
  UniqueFd far = server.accept_one();
  for (int i = 0; i < 10; ++i) {
    std::this_thread::sleep_for(100ms);
    ASSERT_TRUE(send_text(client.get(), "x"));
  }
  EXPECT_THAT(hear(far.get(), 62).text, HasSubstr("\r\n\r\nxxxxxxxxxx"));
}

// ---- the explicit proxy

TEST_F(QuickFrontTest, ConnectAbsoluteFormAndSocks) {
  bed.dialer().rule("a.test:443", {.verdict = Verdict::kNeedsTls, .server = server.port});
  bed.dialer().rule("a.test:80", {.verdict = Verdict::kNeedsHttp, .server = server.port});
  bed.dialer().rule("a.test:22", {.verdict = Verdict::kAny, .server = server.port});
  UniqueFd tunnel = bed.connect_proxy();
  ASSERT_TRUE(send_text(tunnel.get(), "CONNECT a.test:443 HTTP/1.1\r\nHost: a.test:443\r\n\r\n"));
  const std::string established = "HTTP/1.1 200 Connection established\r\n\r\n";
  EXPECT_EQ(hear(tunnel.get(), established.size()).text, established);
  UniqueFd far = server.accept_one();
  ASSERT_TRUE(send_text(tunnel.get(), tls_hello("a.test")));
  EXPECT_EQ(hear(far.get(), tls_hello("a.test").size()).text, tls_hello("a.test"));

  UniqueFd foreign = bed.connect_proxy();
  ASSERT_TRUE(send_text(foreign.get(), "CONNECT a.test:443 HTTP/1.1\r\nHost: a.test:443\r\n\r\n"));
  EXPECT_EQ(hear(foreign.get(), established.size()).text, established);
  UniqueFd foreign_far = server.accept_one();
  ASSERT_TRUE(send_text(foreign.get(), tls_hello("b.test")));
  EXPECT_EQ(hear(foreign.get()).text, kAlert);
  EXPECT_EQ(hear(foreign_far.get()).text, "");

  UniqueFd nested = bed.connect_proxy();
  ASSERT_TRUE(send_text(nested.get(), "CONNECT a.test:22 HTTP/1.1\r\nHost: a.test:22\r\n\r\n"));
  EXPECT_EQ(hear(nested.get(), established.size()).text, established);
  UniqueFd nested_far = server.accept_one();
  ASSERT_TRUE(send_text(nested.get(), "CONNECT b.test:22 HTTP/1.1\r\nHost: b.test:22\r\n\r\n"));
  EXPECT_THAT(hear(nested.get()).text, HasSubstr("CONNECT inside of a connection"));
  EXPECT_EQ(hear(nested_far.get()).text, "");

  UniqueFd absolute = bed.connect_proxy();
  ASSERT_TRUE(send_text(absolute.get(),
                        "GET http://a.test/x HTTP/1.1\r\nHost: a.test\r\n\r\n" + get("b.test")));
  UniqueFd absolute_far = server.accept_one();
  const std::string rewritten = "GET /x HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n";
  EXPECT_EQ(hear(absolute_far.get(), rewritten.size()).text, rewritten);
  ASSERT_TRUE(send_text(absolute_far.get(), "HTTP/1.1 200 OK\r\n\r\nbody"));
  absolute_far.reset();
  const Heard answer = hear(absolute.get());
  EXPECT_EQ(answer.text, "HTTP/1.1 200 OK\r\n\r\nbody");
  EXPECT_EQ(answer.how, "end");

  UniqueFd socks = bed.connect_proxy();
  ASSERT_TRUE(send_text(socks.get(), {"\x05\x01\x00", 3}));
  EXPECT_EQ(hear(socks.get(), 2).text, std::string("\x05\x00", 2));
  ASSERT_TRUE(send_text(
      socks.get(), std::string("\x05\x01\x00\x03\x06", 5) + "a.test" + std::string("\x00\x16", 2)));
  EXPECT_EQ(hear(socks.get(), 10).text.substr(0, 2), std::string("\x05\x00", 2));
  UniqueFd socks_far = server.accept_one();
  ASSERT_TRUE(send_text(socks_far.get(), "SSH-2.0-s\r\n"));
  EXPECT_EQ(hear(socks.get(), 11).text, "SSH-2.0-s\r\n");
  EXPECT_EQ(bed.dialer().asks().back().via, Via::kSocks);
}

TEST_F(QuickFrontTest, WhatTheProxyRefusesAndWhatFails) {
  bed.dialer().rule("down.test:80", {.verdict = Verdict::kNeedsHttp});
  UniqueFd refused = bed.connect_proxy();
  ASSERT_TRUE(send_text(refused.get(), "CONNECT b.test:22 HTTP/1.1\r\nHost: b.test:22\r\n\r\n"));
  const Heard text = hear(refused.get());
  EXPECT_THAT(text.text, StartsWith("HTTP/1.1 403 Forbidden\r\n"));
  EXPECT_THAT(text.text, HasSubstr("egress refused: b.test:22 is not in the allowlist\n"));
  EXPECT_THAT(text.text, HasSubstr("--allow-host b.test:22\n"));
  UniqueFd failed = bed.connect_proxy();
  ASSERT_TRUE(send_text(failed.get(), "GET http://down.test/ HTTP/1.1\r\nHost: down.test\r\n\r\n"));
  EXPECT_THAT(hear(failed.get()).text, StartsWith("HTTP/1.1 502 Bad Gateway\r\n"));
  UniqueFd socks4 = bed.connect_proxy();
  ASSERT_TRUE(send_text(socks4.get(), {"\x04\x01\x00\x50\x01\x02\x03\x04\x00", 9}));
  EXPECT_NE(hear(socks4.get()).how, "time");
}

// ---- dialer dies

TEST_F(FrontTest, ADialerThatDiesClosesWhatWaitsAndKeepsWhatIsForwarded) {
  route(Verdict::kAny);
  UniqueFd live = bed.connect();
  UniqueFd far = server.accept_one();
  bed.dialer().rule(bed.transparent(), {.name = "a.test", .mute = true});
  UniqueFd waits = bed.connect();  // for its destination
  ASSERT_EQ(bed.dialer().asks(2).size(), 2u);
  UniqueFd proxy = bed.connect_proxy();
  bed.dialer().rule("a.test:22", {.mute = true});
  ASSERT_TRUE(send_text(proxy.get(), "CONNECT a.test:22 HTTP/1.1\r\nHost: a.test:22\r\n\r\n"));
  ASSERT_EQ(bed.dialer().asks(3).size(), 3u);
  bed.dialer().stop();
  EXPECT_THAT(hear(proxy.get()).text, StartsWith("HTTP/1.1 502 "));
  EXPECT_EQ(hear(waits.get()).how, "reset");
  ASSERT_TRUE(send_text(live.get(), "still here\n"));
  EXPECT_EQ(hear(far.get(), 11).text, "still here\n");
  // Without one, everything new is refused and said to be a failure.
  UniqueFd without = bed.connect_proxy();
  ASSERT_TRUE(send_text(without.get(), "CONNECT a.test:22 HTTP/1.1\r\nHost: a.test:22\r\n\r\n"));
  EXPECT_THAT(hear(without.get()).text, HasSubstr("is being started again"));
  // The next one serves, also what was forwarded before it came.
  (void)bed.replace_dialer();
  route(Verdict::kAny);
  UniqueFd again = bed.connect();
  UniqueFd again_far = server.accept_one();
  ASSERT_TRUE(send_text(again_far.get(), "x"));
  EXPECT_EQ(hear(again.get(), 1).text, "x");
  live.reset();
  far.reset();
  EXPECT_EQ(bed.dialer().reports(1).size(), 1u);
}

TEST_F(FrontTest, WhatIsDeniedEndsByAResetAndNothingElseDoes) {
  route(Verdict::kAny);
  UniqueFd denied = bed.connect();
  UniqueFd denied_far = server.accept_one();
  UniqueFd other = bed.connect();
  UniqueFd other_far = server.accept_one();
  ASSERT_TRUE(send_text(denied.get(), "up\n"));
  EXPECT_EQ(hear(denied_far.get(), 3).text, "up\n");
  const auto asks = bed.dialer().asks(2);
  ASSERT_EQ(asks.size(), 2u);
  bed.dialer().end(asks[0].id);
  EXPECT_EQ(hear(denied.get()).how, "reset");
  EXPECT_EQ(hear(denied_far.get()).how, "reset");
  auto reports = bed.dialer().reports(1);
  ASSERT_EQ(reports.size(), 1u);
  EXPECT_EQ(reports[0].id, asks[0].id);
  EXPECT_EQ(reports[0].up, 3u);
  // One that is not there is answered too: dialer waits for it.
  bed.dialer().end(77);
  reports = bed.dialer().reports(2);
  ASSERT_EQ(reports.size(), 2u);
  EXPECT_EQ(reports[1].id, 77u);
  ASSERT_TRUE(send_text(other.get(), "on\n"));
  EXPECT_EQ(hear(other_far.get(), 3).text, "on\n");
}

// In every state that a connection may be in: nothing of it is left (FrontTest looks).
TEST_F(FrontTest, WhatIsDeniedMayBeAnywhere) {
  route(Verdict::kNeedsHttp);
  const UniqueFd silent = bed.connect();  // nothing was seen of it yet
  const UniqueFd half = bed.connect();    // a part of a head
  ASSERT_TRUE(send_text(half.get(), "GET / HT"));
  const UniqueFd whole = bed.connect();
  ASSERT_TRUE(send_text(whole.get(), get("a.test")));
  const UniqueFd far = server.accept_one();
  EXPECT_EQ(hear(far.get(), get("a.test").size()).text, get("a.test"));
  bed.dialer().rule(bed.transparent(), {.name = "a.test", .mute = true});
  const UniqueFd waiting = bed.connect();  // for dialer, who will not answer
  const auto asks = bed.dialer().asks(5);
  ASSERT_EQ(asks.size(), 5u);
  for (const auto& ask : asks) bed.dialer().end(ask.id);
  for (const UniqueFd* fd : {&silent, &half, &whole, &far, &waiting}) {
    EXPECT_EQ(hear(fd->get()).how, "reset");
  }
}

TEST_F(FrontTest, ADialerThatIsReplacedOrBreaksTheProtocolIsTheSame) {
  bed.dialer().rule(bed.transparent(), {.name = "a.test", .mute = true});
  UniqueFd waits = bed.connect();
  ASSERT_EQ(bed.dialer().asks(1).size(), 1u);
  const auto old = bed.replace_dialer();
  EXPECT_EQ(hear(waits.get()).how, "reset");
  // One after hello, before its connection.
  bed.dialer().rule(bed.transparent(), {.verdict = Verdict::kNeedsTls, .name = "a.test"});
  UniqueFd hello = bed.connect();
  ASSERT_EQ(bed.dialer().asks(1).size(), 1u);
  bed.dialer().rule(bed.transparent(), {.name = "a.test", .mute = true});
  ASSERT_TRUE(send_text(hello.get(), tls_hello("a.test")));
  ASSERT_EQ(bed.dialer().asks(2).size(), 2u);
  bed.dialer().stop();
  EXPECT_EQ(hear(hello.get()).how, "reset");
  (void)bed.replace_dialer();
}

TEST_F(QuickFrontTest, AnAnswerThatNobodyWaitsForLeavesNothing) {
  route(Verdict::kAny);
  for (int i = 0; i < 50; ++i) {
    UniqueFd client = bed.connect();
    reset_now(client);
  }
  ASSERT_TRUE(bed.back_to_its_start());
}

// ---- DNS

std::string dns_question(std::string_view name, std::uint16_t type = 1) {
  std::string out = number(2, 0x1234) + number(2, 0x0100) + number(2, 1) + number(2, 0) +
                    number(2, 0) + number(2, 0);
  while (!name.empty()) {
    const std::string_view label = name.substr(0, name.find('.'));
    out += sized(1, label);
    name.remove_prefix(std::min(name.size(), label.size() + 1));
  }
  return out + number(1, 0) + number(2, type) + number(2, 1);
}

UniqueFd udp_client(std::uint16_t port) {
  UniqueFd fd(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const sockaddr_in at{
      .sin_family = AF_INET, .sin_port = htons(port), .sin_addr = {htonl(INADDR_LOOPBACK)}};
  must(connect(fd.get(), reinterpret_cast<const sockaddr*>(&at), sizeof at) == 0);
  return fd;
}

// The answer to it: its code, and its last four bytes.
std::string ask_udp(int fd, const std::string& question) {
  EXPECT_TRUE(send_text(fd, question));
  char room[512];
  pollfd entry{fd, POLLIN, 0};
  if (poll(&entry, 1, 5'000) != 1) return "time";
  const ssize_t count = recv(fd, room, sizeof room, 0);
  if (count < 12) return "short";
  const std::string answer(room, static_cast<std::size_t>(count));
  EXPECT_EQ(answer.substr(0, 2), question.substr(0, 2));
  return std::to_string(answer[3] & 15) + " " + answer.substr(answer.size() - 4);
}

TEST_F(FrontTest, NamesOverDatagramsAndStreams) {
  bed.dialer().name("a.test", 300, true);
  bed.dialer().name("b.test", 65'536, false);
  const UniqueFd udp = udp_client(bed.udp_port);
  EXPECT_EQ(ask_udp(udp.get(), dns_question("A.Test")), "0 \xC6\x12\x02\x2C");
  EXPECT_EQ(ask_udp(udp.get(), dns_question("b.test")), std::string("0 \xC6\x13\x01\x00", 6));
  EXPECT_EQ(ask_udp(udp.get(), dns_question("unknown.test")).substr(0, 1), "2");
  EXPECT_EQ(ask_udp(udp.get(), dns_question("localhost")), std::string("0 \x7F\0\0\1", 6));
  // What is no question is not answered, and does no harm.
  ASSERT_TRUE(send_text(udp.get(), "x"));
  ASSERT_TRUE(send_text(udp.get(), std::string(4'096, '\xff')));
  EXPECT_EQ(ask_udp(udp.get(), dns_question("a.test")), "0 \xC6\x12\x02\x2C");
  // Asked of dialer once.
  EXPECT_EQ(bed.dialer().asks().size(), 3u);

  const UniqueFd tcp = connect_loopback(bed.dns_tcp_port);
  const std::string questions = sized(2, dns_question("a.test")) + sized(2, dns_question("c.test"));
  bed.dialer().name("c.test", 1, true);
  for (const char byte : questions) ASSERT_TRUE(send_text(tcp.get(), {&byte, 1}));
  for (const char* last : {"\xC6\x12\x02\x2C", "\xC6\x12\x01\x01"}) {
    const std::string size = hear(tcp.get(), 2).text;
    ASSERT_EQ(size.size(), 2u);
    const std::string answer = hear(tcp.get(), static_cast<std::uint8_t>(size[1])).text;
    EXPECT_EQ(answer.substr(answer.size() - 4), last);
  }
  // A stream of nonsense is closed; too many streams are, too.
  const UniqueFd nonsense = connect_loopback(bed.dns_tcp_port);
  ASSERT_TRUE(send_text(nonsense.get(), std::string(100, '\xff')));
  EXPECT_NE(hear(nonsense.get()).how, "time");
  std::vector<UniqueFd> many;
  for (int i = 0; i < 80; ++i) many.push_back(connect_loopback(bed.dns_tcp_port));
  EXPECT_EQ(hear(many.back().get()).how, "end");
  EXPECT_EQ(ask_udp(udp.get(), dns_question("a.test")), "0 \xC6\x12\x02\x2C");
}

TEST_F(FrontTest, WithoutDialerNamesFailAtOnceAndComeBack) {
  bed.dialer().name("a.test", 300, true);
  const UniqueFd udp = udp_client(bed.udp_port);
  EXPECT_EQ(ask_udp(udp.get(), dns_question("a.test")).substr(0, 1), "0");
  bed.dialer().stop();
  // Until front has seen it the answer may still be the one it knows.
  for (int i = 0; i < 1'000; ++i) {
    if (ask_udp(udp.get(), dns_question("a.test")).substr(0, 1) == "2") break;
  }
  EXPECT_EQ(ask_udp(udp.get(), dns_question("a.test")).substr(0, 1), "2");
  (void)bed.replace_dialer();
  bed.dialer().name("a.test", 301, true);
  for (int i = 0; i < 1'000; ++i) {
    if (ask_udp(udp.get(), dns_question("a.test")).substr(0, 1) == "0") break;
  }
  EXPECT_EQ(ask_udp(udp.get(), dns_question("a.test")), "0 \xC6\x12\x02\x2D");
}

// ---- bounds

TEST_F(QuickFrontTest, APipelinedRequestBehindASlowServerIsNotSilence) {
  route(Verdict::kNeedsHttp);
  // More than the kernel buffers, then the beginning of a second request.
  const std::string body(24u << 20, 'b');
  const std::string second = get("a.test", "/2");
  const std::string first = "PUT / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n" +
                            std::string("1800000\r\n") + body + "\r\n0\r\n\r\n";
  UniqueFd client = bed.connect();
  std::thread sender([&] { send_text(client.get(), first + second.substr(0, 20)); });
  UniqueFd far = server.accept_one();
  std::this_thread::sleep_for(1s);  // longer than the time for a head
  const Heard heard = hear(far.get(), first.size(), 20'000);
  EXPECT_EQ(heard.text.size(), first.size()) << heard.how;
  EXPECT_TRUE(heard.text == first);
  sender.join();
  ASSERT_TRUE(send_text(client.get(), second.substr(20)));
  EXPECT_EQ(hear(far.get(), second.size()).text, second);
}

TEST_F(QuickFrontTest, ARefusalBehindAnAnswerThatNeverEndsComesInTheEnd) {
  route(Verdict::kNeedsHttp);
  UniqueFd client = bed.connect();
  ASSERT_TRUE(send_text(client.get(), get("a.test")));
  UniqueFd far = server.accept_one();
  ASSERT_TRUE(send_text(far.get(), "HTTP/1.1 200 OK\r\n\r\n"));
  ASSERT_TRUE(send_text(client.get(), get("b.test")));
  Heard heard;
  std::thread reader([&] { heard = hear(client.get(), SIZE_MAX, 4'000); });
  for (int i = 0; i < 600 && send_text(far.get(), "data\n"); ++i) std::this_thread::sleep_for(10ms);
  reader.join();
  EXPECT_EQ(heard.how, "end");
  EXPECT_THAT(heard.text, HasSubstr("data\nHTTP/1.1 403 Forbidden"));
}

TEST_F(QuickFrontTest, ADialerThatIsTooLateIsNotHeardAndNothingOfItStays) {
  bed.dialer().rule("a.test:22", {.verdict = Verdict::kAny, .server = server.port, .late_ms = 900});
  UniqueFd proxy = bed.connect_proxy();
  ASSERT_TRUE(send_text(proxy.get(), "CONNECT a.test:22 HTTP/1.1\r\nHost: a.test:22\r\n\r\n"));
  EXPECT_THAT(hear(proxy.get()).text, StartsWith("HTTP/1.1 502 "));
  UniqueFd far = server.accept_one();
  ASSERT_TRUE(far);
  EXPECT_EQ(hear(far.get()).how, "reset");
}

TEST_F(QuickFrontTest, WhoLeavesBeforeTheAnswerIsReportedAsSilent) {
  bed.dialer().rule(bed.transparent(),
                    {.verdict = Verdict::kNeedsTls, .name = "a.test", .late_ms = 200});
  UniqueFd client = bed.connect();
  ASSERT_EQ(bed.dialer().asks(1).size(), 1u);
  reset_now(client);
  const auto reports = bed.dialer().reports(1);
  ASSERT_EQ(reports.size(), 1u);
  EXPECT_EQ(reports[0].why, Why::kSilent);
  EXPECT_EQ(reports[0].up, 0u);
}

}  // namespace
}  // namespace temenos::front
