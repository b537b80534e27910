// SOCKS 5 (RFC 1928) as a server that connects by name or address, without authentication or with a
// user and a password (RFC 1929). What the client says is hostile. SOCKS 4 is named and refused.
//
// Thread-safety: pure functions.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "wire/byte_cursor.h"
#include "wire/host_name.h"
#include "wire/progress.h"

namespace temenos::wire {

// The first byte of either: nothing that HTTP can begin with.
inline constexpr std::uint8_t kSocks5 = 5;
inline constexpr std::uint8_t kSocks4 = 4;

enum class SocksReply : std::uint8_t {
  kSucceeded = 0,
  kFailure = 1,
  kNotAllowed = 2,
  kHostUnreachable = 4,
  kRefused = 5,
  kCommand = 7,
  kAddressType = 8,
};

struct SocksGreeting {
  Progress progress = Progress::kNeedMore;
  std::string_view reason;      // kMalformed; static text
  std::size_t size = 0;         // kGood: of these bytes the greeting
  bool can_do_without = false;  // kGood: the client offers to say no password
  bool has_password = false;    // kGood: it offers to say one
};
// All bytes from the connection's first one on.
SocksGreeting read_socks_greeting(Bytes so_far);
// The answer: how to go on.
enum class SocksMethod : std::uint8_t { kNone = 0, kPassword = 2, kNothingWillDo = 0xff };
std::array<std::uint8_t, 2> socks_method(SocksMethod method);

struct SocksLogin {
  Progress progress = Progress::kNeedMore;
  std::string_view reason;  // kMalformed; static text
  std::size_t size = 0;     // kGood
  std::string_view user;    // kGood; these two point into the bytes
  std::string_view password;
};
// All bytes behind the greeting, after kPassword.
SocksLogin read_socks_login(Bytes so_far);
std::array<std::uint8_t, 2> socks_login_reply(bool good);

struct SocksRequest {
  Progress progress = Progress::kNeedMore;
  std::string_view reason;                    // kMalformed; static text
  SocksReply reply = SocksReply::kSucceeded;  // kMalformed: what to answer before closing
  std::size_t size = 0;                       // kGood
  Host host;                                  // kGood
  std::uint16_t port = 0;                     // kGood: not 0
};
// All bytes behind the greeting, or the login.
SocksRequest read_socks_request(Bytes so_far);
std::array<std::uint8_t, 10> socks_reply(SocksReply reply);

}  // namespace temenos::wire
