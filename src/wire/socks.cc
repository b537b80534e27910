#include "wire/socks.h"

#include <algorithm>

#include "codec/address.h"

namespace temenos::wire {
namespace {

constexpr std::uint8_t kLoginVersion = 1;
constexpr std::uint8_t kConnect = 1;

enum AddressType : std::uint8_t { kV4 = 1, kName = 3, kV6 = 4 };

SocksRequest bad(std::string_view why, SocksReply reply) {
  return {.progress = Progress::kMalformed, .reason = why, .reply = reply};
}

Host address_host(Bytes bytes) {
  AddressBlock block;
  block.v4 = bytes.size() == 4;
  block.prefix = block.v4 ? 32 : 128;
  std::copy(bytes.begin(), bytes.end(), block.bytes.begin());
  // By way of its text: an IPv4-mapped address is an IPv4 address from then on.
  return *parse_host(format_block(block));
}

}  // namespace

SocksGreeting read_socks_greeting(Bytes so_far) {
  const auto refuse = [](std::string_view why) {
    return SocksGreeting{.progress = Progress::kMalformed, .reason = why};
  };
  if (so_far.empty()) return {};
  if (so_far[0] == kSocks4) return refuse("SOCKS 4, which says no name: use SOCKS 5");
  if (so_far[0] != kSocks5) return refuse("not SOCKS 5");
  ByteCursor in(so_far.subspan(1));
  Bytes methods;
  if (so_far.size() > 1 && so_far[1] == 0) return refuse("a greeting without a method");
  if (!in.sized(1, methods)) return {};
  const auto offers = [&methods](SocksMethod method) {
    return std::find(methods.begin(), methods.end(), static_cast<std::uint8_t>(method)) !=
           methods.end();
  };
  return {.progress = Progress::kGood,
          .size = 2 + methods.size(),
          .can_do_without = offers(SocksMethod::kNone),
          .has_password = offers(SocksMethod::kPassword)};
}

std::array<std::uint8_t, 2> socks_method(SocksMethod method) {
  return {kSocks5, static_cast<std::uint8_t>(method)};
}

SocksLogin read_socks_login(Bytes so_far) {
  if (so_far.empty()) return {};
  if (so_far[0] != kLoginVersion) {
    return {.progress = Progress::kMalformed, .reason = "no user and password"};
  }
  ByteCursor in(so_far.subspan(1));
  Bytes user;
  Bytes password;
  if (!in.sized(1, user) || !in.sized(1, password)) return {};
  return {.progress = Progress::kGood,
          .size = 3 + user.size() + password.size(),
          .user = {reinterpret_cast<const char*>(user.data()), user.size()},
          .password = {reinterpret_cast<const char*>(password.data()), password.size()}};
}

std::array<std::uint8_t, 2> socks_login_reply(bool good) {
  return {kLoginVersion, static_cast<std::uint8_t>(good ? 0 : 1)};
}

SocksRequest read_socks_request(Bytes so_far) {
  // Each byte is judged as soon as it is there.
  if (!so_far.empty() && so_far[0] != kSocks5) return bad("not SOCKS 5", SocksReply::kFailure);
  if (so_far.size() > 1 && so_far[1] != kConnect) {
    return bad("another command than CONNECT", SocksReply::kCommand);
  }
  if (so_far.size() > 2 && so_far[2] != 0) {
    return bad("a reserved byte that is not 0", SocksReply::kFailure);
  }
  if (so_far.size() < 4) return {};
  ByteCursor in(so_far.subspan(4));
  Bytes address;
  bool whole = false;
  switch (so_far[3]) {
    case kV4:
      whole = in.piece(4, address);
      break;
    case kV6:
      whole = in.piece(16, address);
      break;
    case kName:
      whole = in.sized(1, address);
      break;
    default:
      return bad("an unknown type of address", SocksReply::kAddressType);
  }
  SocksRequest out;
  if (!whole || !in.number(2, out.port)) return {};
  if (so_far[3] == kName) {
    const std::string_view name(reinterpret_cast<const char*>(address.data()), address.size());
    auto host = parse_host(name);
#ifdef TEMENOS_PLANT_SOCKS
    if (!host) host = Host{.text = lower_ascii(name)};
#endif
    if (!host) {
      return bad("a name that is not in its canonical form", SocksReply::kNotAllowed);
    }
    out.host = *std::move(host);
  } else {
    out.host = address_host(address);
  }
  if (out.port == 0) return bad("port 0", SocksReply::kNotAllowed);
  out.progress = Progress::kGood;
  out.size = so_far.size() - in.rest().size();
  return out;
}

std::array<std::uint8_t, 10> socks_reply(SocksReply reply) {
  // The address that the connection has on the other side is nobody's business: all zero.
  return {kSocks5, static_cast<std::uint8_t>(reply), 0, kV4};
}

}  // namespace temenos::wire
