// The proxy that every user of the host can connect to.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/text.h"
#include "front/gate.h"
#include "front/gate_script.h"
#include "front/login.h"

namespace temenos::front {
namespace {

using namespace egress;
using namespace std::string_literals;
using ::testing::HasSubstr;
using ::testing::StartsWith;

const Login kLogin("secret", true);
const std::string kCredentials =
    "Proxy-Authorization: Basic " + base64_encode("temenos:secret") + "\r\n";

TEST(GateLogin, NobodyIsServedWithoutIt) {
  for (const std::string& fields :
       {std::string(), std::string("Proxy-Authorization: Basic dGVtZW5vczp3cm9uZw==\r\n"),
        kCredentials + kCredentials}) {
    for (const std::string& begin :
         {std::string("CONNECT a.test:443 HTTP/1.1\r\nHost: a.test\r\n"),
          std::string("GET http://a.test/ HTTP/1.1\r\nHost: a.test\r\n")}) {
      GateScript script{Gate(&kLogin)};
      script.client(begin + fields + "\r\n");
      EXPECT_TRUE(script.dropped);
      EXPECT_THAT(script.to_client, StartsWith("HTTP/1.1 407 "));
      EXPECT_THAT(script.to_client, HasSubstr("serves those that know its password"));
      EXPECT_TRUE(script.asks.empty());
      EXPECT_FALSE(script.gate.to_report());
    }
  }
}

TEST(GateLogin, WithItThePathIsTheSame) {
  GateScript tunnel{Gate(&kLogin)};
  tunnel.client("CONNECT a.test:22 HTTP/1.1\r\nHost: a.test\r\n" + kCredentials + "\r\n");
  ASSERT_EQ(tunnel.asks.size(), 1u);
  tunnel.reply(make_reply(Verdict::kAny, "a.test"));
  EXPECT_THAT(tunnel.to_client, StartsWith("HTTP/1.1 200 "));

  // Nobody behind it hears of the password.
  GateScript plain{Gate(&kLogin)};
  plain.client("GET http://a.test/ HTTP/1.1\r\nHost: a.test\r\n" + kCredentials + "\r\n");
  ASSERT_EQ(plain.asks.size(), 1u);
  plain.reply(make_reply(Verdict::kNeedsHttp, "a.test"));
  plain.reply(make_reply(Verdict::kConnected));
  EXPECT_EQ(plain.to_server, "GET / HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n");
}

TEST(GateLogin, Socks5SaysItByItsOwnMeans) {
  const std::string request =
      "\x05\x01\x00\x03\x06"
      "a.test"
      "\x00\x16"s;
  GateScript script{Gate(&kLogin)};
  script.client("\x05\x02\x00\x02"s);
  EXPECT_EQ(script.to_client, "\x05\x02");
  script.client("\x01\x07temenos\x06secret"s);
  EXPECT_EQ(script.to_client, "\x05\x02\x01\x00"s);
  EXPECT_TRUE(script.asks.empty());
  script.client(request);
  ASSERT_EQ(script.asks.size(), 1u);
  script.reply(make_reply(Verdict::kAny, "a.test"));
  EXPECT_EQ(script.to_client.substr(4, 2), "\x05\x00"s);

  GateScript wrong{Gate(&kLogin)};
  wrong.client("\x05\x01\x02"s + "\x01\x07temenos\x06secreT"s + request);
  EXPECT_EQ(wrong.to_client, "\x05\x02\x01\x01");
  EXPECT_TRUE(wrong.dropped);
  GateScript none{Gate(&kLogin)};
  none.client("\x05\x01\x00"s + request);
  EXPECT_EQ(none.to_client, "\x05\xff");
  EXPECT_TRUE(none.dropped);
  GateScript other{Gate(&kLogin)};
  other.client("\x05\x01\x02"s + request);  // instead of the login
  EXPECT_EQ(other.to_client, "\x05\x02\x01\x01");
  EXPECT_TRUE(wrong.asks.empty() && none.asks.empty() && other.asks.empty());
}

TEST(GateLogin, LocalhostIsTheOneLoopbackThatThereIs) {
  GateScript plain{Gate(&kLogin)};
  plain.client("GET http://LocalHost:8080/ HTTP/1.1\r\nHost: localhost:8080\r\n" + kCredentials +
               "\r\n");
  ASSERT_EQ(plain.asks.size(), 1u);
  EXPECT_EQ(plain.last_ask().family, Family::kV4);
  EXPECT_EQ(plain.last_ask().address[0], 127);
  plain.reply(make_reply(Verdict::kAny, "127.0.0.1", Why::kNone, true));
  EXPECT_EQ(plain.to_server, "GET / HTTP/1.1\r\nHost: localhost:8080\r\nConnection: close\r\n\r\n");
  GateScript refused{Gate(&kLogin)};
  refused.client("CONNECT localhost:22 HTTP/1.1\r\nHost: localhost\r\n" + kCredentials + "\r\n");
  refused.reply(make_reply(Verdict::kRefused, "127.0.0.1", Why::kSpecialAddress, true));
  EXPECT_THAT(refused.to_client, HasSubstr("--allow-host 127.0.0.1:22\n"));
  // A box with a router has a loopback of its own.
  GateScript router{Gate()};
  router.client("CONNECT localhost:22 HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_EQ(router.last_ask().family, Family::kName);
}

}  // namespace
}  // namespace temenos::front
