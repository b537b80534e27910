#include "wire/socks.h"

#include <gtest/gtest.h>

#include <string>

namespace temenos::wire {
namespace {

using namespace std::string_literals;

Bytes bytes(const std::string& text) {
  return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}

// What the shortest prefix that decides says; all that follows must not change it.
std::string greeting(const std::string& text) {
  for (std::size_t n = 0; n <= text.size(); ++n) {
    const SocksGreeting said = read_socks_greeting(bytes(text).first(n));
    if (said.progress == Progress::kNeedMore) continue;
    const SocksGreeting whole = read_socks_greeting(bytes(text));
    EXPECT_EQ(whole.progress, said.progress);
    EXPECT_EQ(whole.size, said.size);
    if (said.progress == Progress::kMalformed) return std::string(said.reason);
    EXPECT_EQ(said.size, n);
    return std::to_string(said.size) + (said.can_do_without ? " open" : " closed") +
           (said.has_password ? " password" : "");
  }
  return "more";
}

std::string request(const std::string& text) {
  for (std::size_t n = 0; n <= text.size(); ++n) {
    const SocksRequest said = read_socks_request(bytes(text).first(n));
    if (said.progress == Progress::kNeedMore) continue;
    const SocksRequest whole = read_socks_request(bytes(text));
    EXPECT_EQ(whole.progress, said.progress);
    EXPECT_EQ(whole.size, said.size);
    if (said.progress == Progress::kMalformed) {
      EXPECT_NE(said.reply, SocksReply::kSucceeded);
      return std::to_string(static_cast<int>(said.reply)) + " " + std::string(said.reason);
    }
    EXPECT_EQ(said.size, n);
    return format_authority(said.host, said.port) + (said.host.address ? " address" : " name");
  }
  return "more";
}

TEST(SocksGreeting, IsRead) {
  EXPECT_EQ(greeting("\5\1\0"s), "3 open");
  EXPECT_EQ(greeting("\5\2\2\0more"s), "4 open password");
  EXPECT_EQ(greeting("\5\1\2"s), "3 closed password");
  EXPECT_EQ(greeting("\5\2\0"s), "more");
  EXPECT_EQ(greeting(""), "more");
  EXPECT_EQ(greeting("\5"), "more");
  EXPECT_EQ(greeting("\5\xff" + std::string(255, '\1')), "257 closed");
  EXPECT_EQ(greeting("\5\0"s), "a greeting without a method");
  EXPECT_EQ(greeting("\4\1\0\x50\0\0\0\1\0"s), "SOCKS 4, which says no name: use SOCKS 5");
  EXPECT_EQ(greeting("GET"), "not SOCKS 5");
  EXPECT_EQ(socks_method(SocksMethod::kNone), (std::array<std::uint8_t, 2>{5, 0}));
  EXPECT_EQ(socks_method(SocksMethod::kPassword), (std::array<std::uint8_t, 2>{5, 2}));
  EXPECT_EQ(socks_method(SocksMethod::kNothingWillDo), (std::array<std::uint8_t, 2>{5, 255}));
}

std::string login(const std::string& text) {
  for (std::size_t n = 0; n <= text.size(); ++n) {
    const SocksLogin said = read_socks_login(bytes(text).first(n));
    if (said.progress == Progress::kNeedMore) continue;
    const SocksLogin whole = read_socks_login(bytes(text));
    EXPECT_EQ(whole.progress, said.progress);
    EXPECT_EQ(whole.size, said.size);
    if (said.progress == Progress::kMalformed) return std::string(said.reason);
    EXPECT_EQ(said.size, n);
    return std::string(said.user) + "/" + std::string(said.password);
  }
  return "more";
}

TEST(SocksLogin, IsRead) {
  EXPECT_EQ(login("\1\4user\6secretmore"), "user/secret");
  EXPECT_EQ(login("\1\0\0"s), "/");
  EXPECT_EQ(login("\1\1\0\1\0"s), "\0/\0"s);
  const std::string longest(255, 'x');
  EXPECT_EQ(login("\1\xff" + longest + "\xff" + longest), longest + "/" + longest);
  for (const std::string& part : {""s, "\1"s, "\1\0"s, "\1\4use"s, "\1\1a"s, "\1\1a\2b"s}) {
    EXPECT_EQ(login(part), "more");
  }
  EXPECT_EQ(login("\5\1\0"s), "no user and password");
  EXPECT_EQ(socks_login_reply(true), (std::array<std::uint8_t, 2>{1, 0}));
  EXPECT_EQ(socks_login_reply(false), (std::array<std::uint8_t, 2>{1, 1}));
}

TEST(SocksRequest, IsRead) {
  EXPECT_EQ(request("\5\1\0\3\x09"s + "A.Example\1\xbb"), "a.example:443 name");
  EXPECT_EQ(request("\5\1\0\3\x09"s + "192.0.2.1\0\x50more"s), "192.0.2.1:80 address");
  EXPECT_EQ(request("\5\1\0\3\3::1\0\x50"s), "[::1]:80 address");
  EXPECT_EQ(request("\5\1\0\1\xc0\0\2\1\0\x50"s), "192.0.2.1:80 address");
  EXPECT_EQ(request("\5\1\0\1\0\0\0\0\0\x50"s), "0.0.0.0:80 address");
  EXPECT_EQ(request("\5\1\0\4\x20\1\x0d\xb8\0\0\0\0\0\0\0\0\0\0\0\1\xff\xff"s),
            "[2001:db8::1]:65535 address");
  EXPECT_EQ(request("\5\1\0\4\0\0\0\0\0\0\0\0\0\0\xff\xff\xc0\0\2\1\0\x50"s),
            "192.0.2.1:80 address");
  for (const std::string& part : {""s, "\5"s, "\5\1"s, "\5\1\0"s, "\5\1\0\3"s, "\5\1\0\3\2a"s,
                                  "\5\1\0\3\1a\0"s, "\5\1\0\1\1\1\1\1\1"s}) {
    EXPECT_EQ(request(part), "more");
  }
}

TEST(SocksRequest, IsRefused) {
  EXPECT_EQ(request("\4"), "1 not SOCKS 5");
  EXPECT_EQ(request("\5\2"), "7 another command than CONNECT");
  EXPECT_EQ(request("\5\3"), "7 another command than CONNECT");
  EXPECT_EQ(request("\5\1\1"), "1 a reserved byte that is not 0");
  EXPECT_EQ(request("\5\1\0\2"s), "8 an unknown type of address");
  EXPECT_EQ(request("\5\1\0\1\1\1\1\1\0\0"s), "2 port 0");
  for (const std::string& name : {""s, "a."s, "."s, "a b"s, "a\0"s, "\xc3\xbc"s, "1"s, "0x7f.1"s,
                                  "a:80"s, "[::1]"s, std::string(254, 'a')}) {
    EXPECT_EQ(request("\5\1\0\3"s + static_cast<char>(name.size()) + name + "\0\x50"s),
              "2 a name that is not in its canonical form")
        << name;
  }
}

TEST(SocksReply, IsWritten) {
  EXPECT_EQ(socks_reply(SocksReply::kSucceeded),
            (std::array<std::uint8_t, 10>{5, 0, 0, 1, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(socks_reply(SocksReply::kNotAllowed)[1], 2);
}

}  // namespace
}  // namespace temenos::wire
