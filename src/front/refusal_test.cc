#include "front/refusal.h"

#include <gtest/gtest.h>

namespace temenos::front {
namespace {

using egress::Why;

// Each rule that is proposed would open just that.
TEST(Refusal, SaysWhatWouldAllowIt) {
  struct Row {
    Why why;
    std::string_view host;
    std::uint16_t port;
    std::string_view rule;  // empty: nothing does
  };
  const Row rows[] = {
      {Why::kNotAllowed, "a.test", 443, "a.test"},
      {Why::kNotAllowed, "a.test", 22, "a.test:22"},
      {Why::kPort, "a.test", 443, "a.test"},
      {Why::kPort, "a.test", 22, "a.test:22"},
      {Why::kNotTls, "a.test", 443, "a.test:443"},
      {Why::kNotHttp, "a.test", 80, "a.test:80"},
      {Why::kNotAllowed, "2001:db8::1", 22, "[2001:db8::1]:22"},
      {Why::kPrivateAddress, "10.0.0.1", 22, "private:10.0.0.1:22"},
      {Why::kSpecialAddress, "127.0.0.1", 80, "127.0.0.1:80"},
      {Why::kPort, "host.temenos.internal", 5432, "127.0.0.1:5432"},
      {Why::kSpecialAddress, "169.254.169.254", 80, ""},
      {Why::kHostAddress, "192.0.2.1", 80, ""},
      {Why::kTooMany, "a.test", 80, ""},
  };
  for (const Row& row : rows) {
    const std::string text = refusal_text({.why = row.why, .host = row.host, .port = row.port});
    EXPECT_TRUE(text.starts_with("egress refused: ")) << text;
    EXPECT_TRUE(text.ends_with("\n")) << text;
    const std::string remedy = "--allow-host " + std::string(row.rule) + "\n";
    EXPECT_EQ(text.ends_with(remedy), !row.rule.empty()) << text;
    EXPECT_EQ(text.find("--allow-host") == text.npos, row.rule.empty()) << text;
  }
}

// Who uses a proxy without a box has no flags.
TEST(Refusal, OfAProxyAloneSpeaksOfRules) {
  EXPECT_EQ(refusal_text({.why = Why::kNotAllowed, .of_box = false, .host = "a.test", .port = 22}),
            "egress refused: a.test:22 is not in the allowlist\n"
            "To allow it, give this proxy the rule a.test:22\n");
  for (const Why why : {Why::kTooMany, Why::kNone}) {
    const std::string text = refusal_text(
        {.why = why, .failed = why == Why::kNone, .of_box = false, .host = "a.test", .port = 22});
    EXPECT_NE(text.find("this proxy"), text.npos) << text;
    EXPECT_EQ(text.find("box"), text.npos) << text;
  }
}

TEST(Refusal, OfWhoHasNoPassword) {
  const std::string text = login_refusal();
  EXPECT_TRUE(
      text.starts_with("HTTP/1.1 407 Proxy Authentication Required\r\n"
                       "Proxy-Authenticate: Basic realm=\"temenos\"\r\n"))
      << text;
  EXPECT_NE(text.find("\r\n\r\negress refused: "), text.npos) << text;
}

TEST(Refusal, AFailureIsNoRefusal) {
  const Refused failed{.why = Why::kUnreachable, .failed = true, .host = "a.test", .port = 80};
  EXPECT_EQ(refusal_text(failed), "egress failed: a.test:80 cannot be reached from the host\n");
  EXPECT_TRUE(http_refusal(failed).starts_with("HTTP/1.1 502 "));
  EXPECT_EQ(socks_code(failed), wire::SocksReply::kRefused);
}

}  // namespace
}  // namespace temenos::front
