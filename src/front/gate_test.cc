#include "front/gate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "front/gate_script.h"
#include "testing/tls_bytes.h"

namespace temenos::front {
namespace {

using namespace egress;
using namespace std::string_literals;
using temenos::testing::tls_answer;
using temenos::testing::tls_change_cipher;
using temenos::testing::tls_hello;
using ::testing::HasSubstr;
using ::testing::StartsWith;

const Target kSynthetic443 = target_v4({198, 18, 1, 7}, 443);
const Target kSynthetic80 = target_v4({198, 18, 1, 7}, 80);
const Target kSynthetic22 = target_v4({198, 18, 1, 7}, 22);
const std::string kAlert("\x15\x03\x03\x00\x02\x02\x31", 7);

GateScript transparent(const Target& target, const Reply& reply) {
  GateScript script{Gate(target)};
  EXPECT_EQ(script.asks.size(), 1u);
  script.reply(reply);
  return script;
}
GateScript to_tls() { return transparent(kSynthetic443, make_reply(Verdict::kNeedsTls, "a.test")); }
GateScript to_http() {
  return transparent(kSynthetic80, make_reply(Verdict::kNeedsHttp, "a.test"));
}
GateScript to_any() { return transparent(kSynthetic22, make_reply(Verdict::kAny, "a.test")); }

std::string get(std::string_view host, std::string_view path = "/") {
  return "GET " + std::string(path) + " HTTP/1.1\r\nHost: " + std::string(host) + "\r\n\r\n";
}

TEST(Gate, AsksForTheAddressThatWasConnectedTo) {
  const GateScript script{Gate(kSynthetic22)};
  ASSERT_EQ(script.asks.size(), 1u);
  const Request& ask = script.last_ask();
  EXPECT_EQ(ask.ask, Ask::kDestination);
  EXPECT_EQ(ask.family, Family::kV4);
  EXPECT_EQ(ask.port, 22);
  EXPECT_EQ(ask.via, Via::kAddress);
  EXPECT_EQ(ask.address[0], 198);
  EXPECT_EQ(ask.address[3], 7);
}

// ---- TLS

TEST(GateTls, GoesOnWithTheNameAndNothingIsLost) {
  for (const std::size_t piece : {std::size_t{1}, std::size_t{7}, std::size_t{5'000}}) {
    GateScript script = to_tls();
    const std::string hello = tls_hello("A.test") + "early data";
    for (std::size_t at = 0; at < hello.size(); at += piece) {
      script.client(std::string_view(hello).substr(at, piece));
      if (script.asks.size() == 2 && !script.connected) {
        EXPECT_EQ(script.last_ask().ask, Ask::kConnect);
        EXPECT_EQ(script.last_ask().app, App::kTls);
        EXPECT_EQ(script.to_server, "");
        script.reply(make_reply(Verdict::kConnected));
      }
    }
    EXPECT_EQ(script.to_server, tls_hello("A.test"));
    script.server(tls_answer(false));
    EXPECT_TRUE(script.open);
    EXPECT_EQ(script.to_server, hello);
  }
}

TEST(GateTls, AForeignOrMissingNameIsAnAlertAndNoConnection) {
  for (const char* name : {"b.test", "x.a.test", "a.test.evil.net", "evila.test", ""}) {
    GateScript script = to_tls();
    script.client(tls_hello(name));
    EXPECT_TRUE(script.dropped) << name;
    EXPECT_EQ(script.to_client, kAlert);
    EXPECT_EQ(script.to_server, "");
    EXPECT_EQ(script.asks.size(), 1u);
    EXPECT_EQ(script.gate.why(), Why::kForeignName);
    EXPECT_TRUE(script.gate.to_report());
    EXPECT_EQ(std::string_view(script.gate.report().name), name);
  }
}

// What is encrypted in it may name anything; what everybody can read is compared.
TEST(GateTls, AnEncryptedHelloIsJudgedByItsOuterName) {
  const std::string ech = temenos::testing::number(2, 0xfe0d) +
                          temenos::testing::sized(2, std::string(1, '\0') + std::string(200, 'e'));
  GateScript good = to_tls();
  const std::string hello = tls_hello("a.test", ech);
  good.client(hello);
  good.reply(make_reply(Verdict::kConnected, "a.test"));
  good.server(tls_answer(false));
  EXPECT_TRUE(good.open);
  EXPECT_EQ(good.to_server, hello);
  for (const char* name : {"b.test", ""}) {
    GateScript script = to_tls();
    script.client(tls_hello(name, ech));
    EXPECT_EQ(script.to_client, kAlert) << name;
    EXPECT_EQ(script.to_server, "");
    EXPECT_EQ(script.asks.size(), 1u);
    EXPECT_EQ(script.gate.why(), Why::kForeignName);
  }
  GateScript any = to_any();
  any.client(tls_hello("b.test", ech));
  EXPECT_EQ(any.to_client, kAlert);
  EXPECT_EQ(any.to_server, "");
}

TEST(GateTls, AnAddressNeedsNoNameOrItself) {
  const Reply literal = make_reply(Verdict::kNeedsTls, "192.0.2.9", Why::kNone, true);
  GateScript none = transparent(target_v4({192, 0, 2, 9}, 443), literal);
  none.client(tls_hello(""));
  EXPECT_EQ(none.last_ask().ask, Ask::kConnect);
  GateScript named = transparent(target_v4({192, 0, 2, 9}, 443), literal);
  named.client(tls_hello("a.test"));
  EXPECT_EQ(named.to_client, kAlert);
}

// A server that asks for a second hello takes the name of that one.
TEST(GateTls, TheNameOfASecondHelloIsComparedAsWell) {
  for (const bool any : {false, true}) {
    for (const bool at_once : {false, true}) {
      for (const char* name : {"a.test", "b.test"}) {
        const std::string first = tls_hello("a.test");
        const std::string between =
            tls_change_cipher() + "\x17\x03\x03" + temenos::testing::number(2, 5) + "early";
        const std::string second = tls_hello(name);
        GateScript script = any ? to_any() : to_tls();
        script.client(at_once ? first + between + second : first);
        if (!any) script.reply(make_reply(Verdict::kConnected));
        EXPECT_EQ(script.to_server, first);
        EXPECT_EQ(script.gate.wait(), Gate::Wait::kServer);
        const std::string answer = tls_answer(true);
        for (const char byte : answer) script.server({&byte, 1});
        EXPECT_THAT(answer, StartsWith(script.to_client));
        EXPECT_TRUE(script.over() || (script.gate.down_open() && script.to_client == answer) ||
                    script.open);
        if (!at_once) {
          for (const char byte : between + second) script.client({&byte, 1});
        }
        const bool own = std::string_view(name) == "a.test";
        EXPECT_EQ(script.open, own);
        EXPECT_EQ(script.reset, !own);
        EXPECT_EQ(script.to_server, first + between + (own ? second : ""));
        EXPECT_EQ(script.gate.why(), own ? Why::kNone : Why::kForeignName);
        EXPECT_EQ(std::string_view(script.gate.report().name), own ? "" : "b.test");
      }
    }
  }
}

TEST(GateTls, BehindTheServersHelloEverythingGoes) {
  for (const std::string& before : {std::string(), std::string("\x15\x03\x03\0\2\1\x70", 7)}) {
    GateScript script = to_tls();
    script.client(tls_hello("a.test") + "rest");
    script.reply(make_reply(Verdict::kConnected));
    script.server(before + tls_answer(false).substr(0, 11));
    EXPECT_EQ(script.open, false);
    script.server(tls_answer(false).substr(11));
    EXPECT_TRUE(script.open);
    EXPECT_EQ(script.to_server, tls_hello("a.test") + "rest");
    EXPECT_EQ(script.to_client, before + tls_answer(false));
  }
  // One that speaks no TLS, or ends.
  for (const char* answer : {"HTTP/1.1 400 Bad Request\r\n", ""}) {
    GateScript script = to_tls();
    script.client(tls_hello("a.test"));
    script.reply(make_reply(Verdict::kConnected));
    if (*answer == '\0') {
      script.server_ends();
    } else {
      script.server(answer);
    }
    EXPECT_TRUE(script.open);
    EXPECT_EQ(script.gate.report().why, Why::kNone);
  }
  GateScript waits = to_tls();
  waits.client(tls_hello("a.test"));
  waits.reply(make_reply(Verdict::kConnected));
  EXPECT_EQ(waits.gate.report().why, Why::kNone);
}

TEST(GateTls, OtherProtocolsAreRefusedSoThatTheyCanReadIt) {
  GateScript http = to_tls();
  http.client(get("a.test"));
  EXPECT_THAT(http.to_client, StartsWith("HTTP/1.1 403 "));
  EXPECT_THAT(http.to_client, HasSubstr("egress refused: a.test:443 is in the allowlist for TLS"));
  GateScript ssh = to_tls();
  ssh.client("SSH-2.0-x\r\n");
  EXPECT_TRUE(ssh.reset);
  EXPECT_EQ(ssh.gate.why(), Why::kNotTls);
}

TEST(GateTls, SilenceEndsIt) {
  GateScript script = to_tls();
  EXPECT_EQ(script.gate.wait(), Gate::Wait::kHead);
  script.client(tls_hello("a.test").substr(0, 20));
  EXPECT_EQ(script.gate.wait(), Gate::Wait::kHead);
  script.time_out();
  EXPECT_EQ(script.to_client, kAlert);
  EXPECT_EQ(script.gate.why(), Why::kSilent);
  GateScript mute = to_tls();
  mute.time_out();
  EXPECT_EQ(mute.gate.wait(), Gate::Wait::kPeek);
  mute.time_out();
  EXPECT_TRUE(mute.reset);
}

TEST(GateTls, AFailureBehindItIsAReset) {
  GateScript script = to_tls();
  script.client(tls_hello("a.test"));
  script.reply(make_reply(Verdict::kFailed, "", Why::kUnreachable));
  EXPECT_TRUE(script.reset);
  EXPECT_FALSE(script.gate.to_report());
}

// ---- HTTP

TEST(GateHttp, PassesRequestsOneByOne) {
  GateScript script = to_http();
  const std::string first = "POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 5\r\n\r\nhello";
  script.client(first.substr(0, first.size() - 2));
  EXPECT_EQ(script.to_server, "");
  script.reply(make_reply(Verdict::kConnected));
  script.client("lo");
  EXPECT_EQ(script.to_server, first);
  const std::string more = get("A.TEST:80", "/2") + get("a.test", "/3");
  script.client(more);
  EXPECT_EQ(script.to_server, first + more);
  EXPECT_EQ(script.gate.wait(), Gate::Wait::kClient);
  script.client_ends();
  EXPECT_TRUE(script.open);
}

TEST(GateHttp, ChunkedBodiesAreFollowedToTheirEnd) {
  const std::string first =
      "POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n"
      "5\r\nhello\r\n0\r\n\r\n";
  for (const std::size_t piece : {std::size_t{1}, std::size_t{1'000}}) {
    GateScript script = to_http();
    const std::string all = first + get("a.test") + get("b.test");
    for (std::size_t at = 0; at < all.size(); at += piece) {
      script.client(std::string_view(all).substr(at, piece));
      if (script.asks.size() == 2 && !script.connected) {
        script.reply(make_reply(Verdict::kConnected));
      }
    }
    EXPECT_EQ(script.to_server, first + get("a.test"));
    EXPECT_EQ(script.gate.wait(), Gate::Wait::kQuiet);
  }
}

TEST(GateHttp, ALaterRequestToAnotherHostIsRefusedBehindTheAnswer) {
  GateScript script = to_http();
  script.client(get("a.test"));
  script.reply(make_reply(Verdict::kConnected));
  script.server("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
  script.client(get("b.test"));
  EXPECT_EQ(script.to_server, get("a.test"));
  EXPECT_EQ(script.gate.wait(), Gate::Wait::kQuiet);
  script.server("late");
  script.time_out();
  EXPECT_TRUE(script.dropped);
  EXPECT_THAT(script.to_client, HasSubstr("oklateHTTP/1.1 403 Forbidden\r\n"));
  EXPECT_THAT(script.to_client, HasSubstr("egress refused: a.test:80 was connected to, and then "
                                          "b.test was asked for"));
  EXPECT_EQ(script.gate.why(), Why::kForeignName);
}

TEST(GateHttp, WhatIsNotExactlyOneRequestToTheHostGoesNowhere) {
  const std::string bad[] = {
      get("b.test"),
      get("a.test:8080"),
      get("a.test."),
      get(std::string("a.test\0.evil", 11)),
      "GET / HTTP/1.1\r\n\r\n",
      "GET / HTTP/1.1\r\nHost: a.test\r\nHost: b.test\r\n\r\n",
      "GET http://b.test/ HTTP/1.1\r\nHost: a.test\r\n\r\n",
      "GET / HTTP/1.1\nHost: a.test\n\n",
      "\r\n" + get("a.test"),
      "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
      "CONNECT a.test:80 HTTP/1.1\r\nHost: a.test:80\r\n\r\n",
      "POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n",
      "POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 18446744073709551615\r\n\r\n",
      tls_hello("a.test"),
      std::string("\0\1\2\3", 4),
  };
  for (const std::string& request : bad) {
    GateScript script = to_http();
    script.client(request);
    script.time_out();
    EXPECT_TRUE(script.over()) << request;
    EXPECT_EQ(script.to_server, "") << request;
    EXPECT_EQ(script.asks.size(), 1u) << request;
    EXPECT_TRUE(script.gate.to_report());
  }
}

TEST(GateHttp, AfterAnUpgradeTheClientWaitsForThe101) {
  const std::string head =
      "GET /ws HTTP/1.1\r\nHost: a.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
  for (const bool upgraded : {true, false}) {
    GateScript script = to_http();
    script.client(head);
    script.reply(make_reply(Verdict::kConnected));
    script.client(get("b.test"));
    EXPECT_EQ(script.to_server, head);
    EXPECT_EQ(script.gate.wait(), Gate::Wait::kServer);
    script.server("HTTP/1.1 ");
    EXPECT_EQ(script.to_server, head);
    script.server(upgraded ? "101 Switching Protocols\r\n\r\n\x81" : "200 OK\r\n\r\n");
    if (upgraded) {
      EXPECT_TRUE(script.open);
      EXPECT_EQ(script.to_server, head + get("b.test"));
    } else {
      EXPECT_EQ(script.to_server, head);
      EXPECT_EQ(script.gate.why(), Why::kForeignName);
    }
  }
}

TEST(GateHttp, Http2AndLaterUpgradesAreTakenOut) {
  GateScript script = to_http();
  script.client(
      "GET / HTTP/1.1\r\nHost: a.test\r\nConnection: Upgrade, HTTP2-Settings\r\n"
      "Upgrade: h2c\r\nHTTP2-Settings: AAA\r\n\r\n");
  script.reply(make_reply(Verdict::kConnected));
  EXPECT_EQ(script.to_server, get("a.test"));
  script.client(
      "GET /2 HTTP/1.1\r\nHost: a.test\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n");
  EXPECT_EQ(script.to_server, get("a.test") + get("a.test", "/2"));
  EXPECT_NE(script.gate.wait(), Gate::Wait::kServer);
}

// TLS would carry a name again (RFC 2817), and others a destination (RFC 9298).
TEST(GateHttp, OnlyWebSocketIsAnotherProtocol) {
  for (const char* protocol :
       {"TLS/1.0", "websocket, TLS/1.2", "connect-udp", "websocket;x", "spdy/3.1", "HTTP/3"}) {
    GateScript script = to_http();
    script.client(
        std::string("GET / HTTP/1.1\r\nHost: a.test\r\nConnection: Upgrade\r\nUpgrade: ") +
        protocol + "\r\n\r\n");
    script.reply(make_reply(Verdict::kConnected));
    EXPECT_EQ(script.to_server, get("a.test")) << protocol;
    EXPECT_NE(script.gate.wait(), Gate::Wait::kServer) << protocol;
  }
}

// The answer may begin before the body has ended, and what stands in the midst of it is no 101.
TEST(GateHttp, ARequestWithABodyIsNoUpgrade) {
  const std::string fields = "Host: a.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n";
  for (const char* length : {"Content-Length: 5\r\n", "Transfer-Encoding: chunked\r\n"}) {
    GateScript script = to_http();
    script.client("POST / HTTP/1.1\r\n" + fields + length + "\r\n");
    script.reply(make_reply(Verdict::kConnected));
    EXPECT_EQ(script.to_server,
              std::string("POST / HTTP/1.1\r\nHost: a.test\r\n") + length + "\r\n");
    script.server("HTTP/1.1 404 Not Found\r\nContent-Length: 99\r\n\r\n");
    script.client(std::string(length).starts_with("C") ? "hello" : "5\r\nhello\r\n0\r\n\r\n");
    script.server("HTTP/1.1 101 Switching Protocols\r\n\r\n");
    EXPECT_FALSE(script.open) << length;
    script.client(get("b.test"));
    EXPECT_EQ(script.gate.why(), Why::kForeignName) << length;
  }
  GateScript none = to_http();
  none.client("POST / HTTP/1.1\r\n" + fields + "Content-Length: 0\r\n\r\n");
  none.reply(make_reply(Verdict::kConnected));
  EXPECT_EQ(none.gate.wait(), Gate::Wait::kServer);
}

TEST(GateHttp, AFailureIsA502) {
  GateScript script = to_http();
  script.client(get("a.test"));
  script.reply(make_reply(Verdict::kFailed, "", Why::kNoSuchName));
  EXPECT_THAT(script.to_client, StartsWith("HTTP/1.1 502 "));
  EXPECT_THAT(script.to_client, HasSubstr("egress failed: a.test:80 has no address"));
}

// ---- any protocol

TEST(GateAny, TheServerMaySpeakFirstAndSilenceHasNoEnd) {
  GateScript script = to_any();
  EXPECT_TRUE(script.gate.down_open());
  script.server("SSH-2.0-server\r\n");
  EXPECT_EQ(script.to_client, "SSH-2.0-server\r\n");
  EXPECT_EQ(script.gate.wait(), Gate::Wait::kClient);
  script.client("SSH-2.0-client\r\n");
  EXPECT_TRUE(script.open);
  EXPECT_EQ(script.to_server, "SSH-2.0-client\r\n");
}

TEST(GateAny, ForeignNamesAreSeenWhenTheyCome) {
  GateScript tls = to_any();
  const std::string hello = tls_hello("b.test");
  tls.client(hello.substr(0, 40));
  EXPECT_EQ(tls.to_server, "");
  tls.client(hello.substr(40));
  EXPECT_EQ(tls.to_client, kAlert);
  EXPECT_EQ(tls.to_server, "");
  GateScript http = to_any();
  http.client(get("b.test"));
  EXPECT_THAT(http.to_client, StartsWith("HTTP/1.1 403 "));
  GateScript nested = to_any();
  nested.client("CONNECT a.test:443 HTTP/1.1\r\nHost: a.test:443\r\n\r\n");
  EXPECT_THAT(nested.to_client, HasSubstr("CONNECT inside of a connection"));
  EXPECT_EQ(nested.gate.why(), Why::kNested);
  // A server that has said something already would be interrupted.
  GateScript late = to_any();
  late.server("220 ready\r\n");
  late.client(get("b.test"));
  EXPECT_TRUE(late.reset);
  EXPECT_EQ(late.to_server, "");
}

TEST(GateAny, ItsOwnNameOrNonePasses) {
  for (const std::string& first :
       {tls_hello("a.test"), tls_hello(""), get("a.test:22"),
        std::string("\0\0\0\x08\x04\xd2\x16\x2f", 8), std::string("*1\r\n$4\r\nPING\r\n"),
        std::string("PING\r\n"), std::string("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")}) {
    GateScript script = to_any();
    script.client(first);
    EXPECT_EQ(script.to_server, first);
    if (script.gate.wants_server()) script.server(tls_answer(false));
    EXPECT_TRUE(script.open) << first;
    EXPECT_EQ(script.to_server, first);
  }
  GateScript address = transparent(target_v4({192, 0, 2, 9}, 22),
                                   make_reply(Verdict::kAny, "192.0.2.9", Why::kNone, true));
  address.client(tls_hello("b.test"));
  EXPECT_TRUE(address.open);
}

TEST(GateAny, AnEndInTheMiddleIsPassedOnOrRefused) {
  GateScript nothing = to_any();
  nothing.client_ends();
  EXPECT_TRUE(nothing.open);
  GateScript word = to_any();
  word.client("PIN");
  EXPECT_FALSE(word.open);
  word.client_ends();
  EXPECT_TRUE(word.open);
  EXPECT_EQ(word.to_server, "PIN");
  GateScript head = to_any();
  head.client("GET / HTTP/1.1\r\nHost: b.test\r\n");
  head.client_ends();
  EXPECT_TRUE(head.over());
  EXPECT_EQ(head.to_server, "");
}

// ---- what dialer refuses

TEST(GateRefused, ReadableInWhatTheClientSpeaks) {
  const Reply no = make_reply(Verdict::kRefused, "b.test", Why::kNotAllowed);
  GateScript http = transparent(kSynthetic80, no);
  EXPECT_EQ(http.gate.wait(), Gate::Wait::kHello);
  http.client("GET / HT");
  EXPECT_FALSE(http.over());
  http.client("TP/1.1\r\n");
  EXPECT_THAT(http.to_client, StartsWith("HTTP/1.1 403 Forbidden\r\n"));
  EXPECT_THAT(http.to_client,
              HasSubstr("\r\n\r\negress refused: b.test:80 is not in the allowlist\n"
                        "To allow it, start the "
                        "box with --allow-host b.test\n"));
  EXPECT_FALSE(http.gate.to_report());
  GateScript tls = transparent(kSynthetic443, no);
  tls.client(tls_hello("b.test").substr(0, 5));
  EXPECT_EQ(tls.to_client, kAlert);
  GateScript other = transparent(kSynthetic22, no);
  other.client("SSH-2.0-x\r\n");
  EXPECT_TRUE(other.reset);
  GateScript silent = transparent(kSynthetic22, no);
  EXPECT_EQ(silent.gate.wait(), Gate::Wait::kPeek);
  silent.time_out();
  EXPECT_TRUE(silent.reset);
}

TEST(GateRefused, ADialerThatIsGoneClosesWhatWaitsForIt) {
  GateScript asked{Gate(kSynthetic22)};
  asked.lose_dialer();
  asked.time_out();
  EXPECT_TRUE(asked.reset);
  GateScript http = to_http();
  http.client(get("a.test"));
  http.lose_dialer();
  EXPECT_THAT(http.to_client, StartsWith("HTTP/1.1 502 "));
  // What has its connection does not notice.
  GateScript any = to_any();
  any.lose_dialer();
  any.client("x\n");
  EXPECT_TRUE(any.open);
}

// ---- the explicit proxy

TEST(GateProxy, ConnectIsAskedConnectedAndThenSeen) {
  GateScript script{Gate()};
  script.client("CONNECT a.test:443 HTTP/1.1\r\nHost: a.test:443\r\n\r\n" + tls_hello("a.test"));
  ASSERT_EQ(script.asks.size(), 1u);
  EXPECT_EQ(script.last_ask().via, Via::kConnect);
  EXPECT_EQ(script.last_ask().family, Family::kName);
  EXPECT_EQ(std::string_view(script.last_ask().name), "a.test");
  EXPECT_EQ(script.last_ask().port, 443);
  script.reply(make_reply(Verdict::kNeedsTls, "a.test"));
  ASSERT_EQ(script.asks.size(), 2u);
  EXPECT_EQ(script.last_ask().ask, Ask::kConnect);
  EXPECT_EQ(script.to_client, "");
  script.reply(make_reply(Verdict::kConnected));
  EXPECT_THAT(script.to_client, StartsWith("HTTP/1.1 200 "));
  script.server(tls_answer(false));
  EXPECT_TRUE(script.open);
  EXPECT_EQ(script.to_server, tls_hello("a.test"));
}

TEST(GateProxy, ConnectToOneNameWithTheSniOfAnother) {
  GateScript script{Gate()};
  script.client("CONNECT a.test:443 HTTP/1.1\r\nHost: a.test:443\r\n\r\n");
  script.reply(make_reply(Verdict::kNeedsTls, "a.test"));
  script.reply(make_reply(Verdict::kConnected));
  script.to_client.clear();
  script.client(tls_hello("b.test"));
  EXPECT_EQ(script.to_client, kAlert);
  EXPECT_EQ(script.to_server, "");
}

TEST(GateProxy, NestedConnectGoesNowhere) {
  GateScript script{Gate()};
  script.client("CONNECT a.test:22 HTTP/1.1\r\nHost: a.test:22\r\n\r\n");
  script.reply(make_reply(Verdict::kAny, "a.test"));
  script.client("CONNECT b.test:443 HTTP/1.1\r\nHost: b.test:443\r\n\r\n");
  EXPECT_THAT(script.to_client, HasSubstr("HTTP/1.1 403 "));
  EXPECT_EQ(script.to_server, "");
}

TEST(GateProxy, AbsoluteFormIsRewrittenAndNothingFollowsIt) {
  GateScript script{Gate()};
  script.client(
      "POST http://a.test/x?y HTTP/1.1\r\nHost: a.test\r\nProxy-Connection: keep-alive\r\n"
      "Content-Length: 3\r\n\r\nabcGET http://b.test/ HTTP/1.1\r\nHost: b.test\r\n\r\n");
  EXPECT_EQ(script.last_ask().via, Via::kAbsolute);
  EXPECT_EQ(script.last_ask().port, 80);
  script.reply(make_reply(Verdict::kNeedsHttp, "a.test"));
  EXPECT_EQ(script.last_ask().ask, Ask::kConnect);
  script.reply(make_reply(Verdict::kConnected));
  EXPECT_EQ(script.to_server,
            "POST /x?y HTTP/1.1\r\nHost: a.test\r\nContent-Length: 3\r\nConnection: close\r\n\r\n"
            "abc");
  EXPECT_EQ(script.gate.wait(), Gate::Wait::kNothing);
  EXPECT_EQ(script.gate.client_room(), 0u);
  EXPECT_TRUE(script.gate.down_open());
}

TEST(GateProxy, RefusalsAreReadable) {
  const std::string requests[] = {
      "CONNECT b.test:22 HTTP/1.1\r\nHost: b.test:22\r\n\r\n",
      "GET http://b.test:22/ HTTP/1.1\r\nHost: b.test:22\r\n\r\n",
  };
  for (const std::string& request : requests) {
    GateScript script{Gate()};
    script.client(request);
    script.reply(make_reply(Verdict::kRefused, "b.test", Why::kNotAllowed));
    EXPECT_THAT(script.to_client, StartsWith("HTTP/1.1 403 ")) << request;
    EXPECT_THAT(script.to_client, HasSubstr("egress refused: b.test:22 is not in the allowlist"));
    EXPECT_THAT(script.to_client, HasSubstr("--allow-host b.test:22\n"));
  }
  GateScript plain{Gate()};
  plain.client(get("a.test"));
  EXPECT_THAT(plain.to_client, HasSubstr("this proxy got a request that it does not understand"));
  EXPECT_FALSE(plain.gate.to_report());
}

TEST(GateProxy, Socks5ByNameAndByAddress) {
  GateScript script{Gate()};
  script.client(std::string("\x05\x01\x00", 3));
  EXPECT_EQ(script.to_client, std::string("\x05\x00", 2));
  script.client(std::string("\x05\x01\x00\x03\x06", 5) + "a.test" + std::string("\x00\x16", 2));
  EXPECT_EQ(script.last_ask().via, Via::kSocks);
  EXPECT_EQ(std::string_view(script.last_ask().name), "a.test");
  EXPECT_EQ(script.last_ask().port, 22);
  script.reply(make_reply(Verdict::kAny, "a.test"));
  EXPECT_EQ(script.to_client.substr(2, 2), std::string("\x05\x00", 2));
  script.server("hello");
  EXPECT_THAT(script.to_client, HasSubstr("hello"));

  GateScript address{Gate()};
  address.client(std::string("\x05\x01\x00\x05\x01\x00\x01\xC0\x00\x02\x09\x01\xBB", 13));
  EXPECT_EQ(address.last_ask().family, Family::kV4);
  EXPECT_EQ(address.last_ask().address[0], 192);
  EXPECT_EQ(address.last_ask().port, 443);
  address.reply(make_reply(Verdict::kRefused, "192.0.2.9", Why::kNotAllowed, true));
  EXPECT_EQ(address.to_client.substr(2, 2), std::string("\x05\x02", 2));
  EXPECT_TRUE(address.dropped);

  GateScript socks4{Gate()};
  socks4.client(std::string("\x04\x01\x00\x16\xC0\x00\x02\x09\x00", 9));
  EXPECT_TRUE(socks4.reset);
}

// Each byte costs as much as the one before it.
TEST(Gate, AHeadByteByByteIsReadOnce) {
  const std::string line = "GET /" + std::string(60'000, 'x') + " HTTP/1.1\r\nHost: b.test\r\n\r\n";
  for (const Reply& reply :
       {make_reply(Verdict::kNeedsHttp, "a.test"), make_reply(Verdict::kAny, "a.test")}) {
    GateScript script = transparent(kSynthetic80, reply);
    const auto begun = std::chrono::steady_clock::now();
    for (const char byte : line) script.client({&byte, 1});
    EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::seconds(3));
    EXPECT_EQ(script.gate.why(), Why::kForeignName);
  }
}

TEST(Gate, AHeadThatNeverEndsIsBounded) {
  GateScript script = to_http();
  script.client("GET / HTTP/1.1\r\nHost: a.test\r\nX: ");
  for (int i = 0; i < 200 && !script.over(); ++i) {
    script.client(std::string(1'000, 'x'));
    EXPECT_LE(script.gate.memory(), 2 * Gate::kMaxInput);
  }
  EXPECT_TRUE(script.over());
  EXPECT_EQ(script.gate.why(), Why::kMalformed);
}

}  // namespace
}  // namespace temenos::front
