#include "front/refusal.h"

#include "egress/plan.h"

namespace temenos::front {
namespace {

using egress::Why;

std::string at(std::string_view host, std::uint16_t port) {
  std::string out(host);
  if (host.find(':') != host.npos) out = "[" + out + "]";
  return out + ":" + std::to_string(port);
}

// The host's own loopback, as a box says it: the one special address that a rule opens.
constexpr std::string_view kLoopback = "127.0.0.1";
bool is_host_loopback(std::string_view host) {
  return host == kLoopback || host == egress::kHostName;
}

// After "egress refused: HOST:PORT ".
std::string reason(const Refused& refused) {
  switch (refused.why) {
    case Why::kPort:
      return "is not in the allowlist, which has the host for other ports";
    case Why::kUnknownAddress:
      return "is not an address that this box was given for a name";
    case Why::kSpecialAddress:
      if (is_host_loopback(refused.host)) return "is not in the allowlist";
      return "is a special address (loopback, link-local, metadata), which nothing opens";
    case Why::kHostAddress:
      return "is an address of the host itself, which nothing opens";
    case Why::kPrivateAddress:
      return "leads to a private address, and its rule does not say private:";
    case Why::kBadName:
      return "is no host name in canonical form";
    case Why::kForeignName:
      return "was connected to, and then " + std::string(refused.seen) + " was asked for";
    case Why::kNotTls:
      return "is in the allowlist for TLS with its name only";
    case Why::kNotHttp:
      return "is in the allowlist for HTTP/1 only";
    case Why::kSilent:
      return "got no whole request in time";
    case Why::kMalformed:
      return "got a request that can be read in more than one way";
    case Why::kNested:
      return "is no proxy: CONNECT inside of a connection goes nowhere";
    case Why::kTooMany:
      return refused.of_box ? "would be one connection or name too many for this box"
                            : "would be one connection or name too many for this proxy";
    case Why::kNoSuchName:
      return "has no address: the host's resolver knows no such name";
    case Why::kResolver:
      return "has no address: the host's resolver did not answer";
    case Why::kUnreachable:
      return "cannot be reached from the host";
    case Why::kNone:
    case Why::kNotAllowed:
    case Why::kSelfTest:
      break;
  }
  return "is not in the allowlist";
}

// What would allow it; empty where nothing does.
std::string remedy(const Refused& refused) {
  const bool is_loopback = is_host_loopback(refused.host);
  const bool is_web = (refused.port == 443 || refused.port == 80) && !is_loopback;
  std::string rule;
  switch (refused.why) {
    case Why::kSpecialAddress:
      if (!is_loopback) return {};
      [[fallthrough]];
    case Why::kNotAllowed:
    case Why::kPort:
      rule = is_web ? std::string(refused.host)
                    : at(is_loopback ? kLoopback : refused.host, refused.port);
      break;
    case Why::kNotTls:
    case Why::kNotHttp:
      rule = at(refused.host, refused.port);
      break;
    case Why::kPrivateAddress:
      rule = "private:" + at(refused.host, refused.port);
      break;
    case Why::kForeignName:
      return "Each name needs a connection of its own, to the address that its own look-up gave.\n";
    case Why::kUnknownAddress:
      return "Look the name up again, or use the address that the name server gives.\n";
    default:
      return {};
  }
  return (refused.of_box ? "To allow it, start the box with --allow-host "
                         : "To allow it, give this proxy the rule ") +
         rule + "\n";
}

std::string response(std::string_view status, std::string_view field, const std::string& text) {
  return "HTTP/1.1 " + std::string(status) + "\r\n" + std::string(field) +
         "Content-Type: text/plain; charset=utf-8\r\nContent-Length: " +
         std::to_string(text.size()) + "\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n" +
         text;
}

}  // namespace

std::string refusal_text(const Refused& refused) {
  std::string out = refused.failed ? "egress failed: " : "egress refused: ";
  if (refused.failed && refused.why == Why::kNone) {
    out += refused.of_box ? "the network of this box is being started again\n"
                          : "this proxy is being started again\n";
    return out;
  }
  if (!refused.host.empty()) out += at(refused.host, refused.port) + " ";
  out += refused.host.empty() ? "this proxy got a request that it does not understand"
                              : reason(refused);
  out += "\n";
  if (!refused.failed && !refused.host.empty()) out += remedy(refused);
  return out;
}

std::string http_refusal(const Refused& refused) {
  return response(refused.failed ? "502 Bad Gateway" : "403 Forbidden", "", refusal_text(refused));
}

std::string login_refusal() {
  return response("407 Proxy Authentication Required",
                  "Proxy-Authenticate: Basic realm=\"temenos\"\r\n",
                  "egress refused: this proxy serves those that know its password\n"
                  "It is in HTTP_PROXY and HTTPS_PROXY of the programs that it is for.\n");
}

std::string tls_refusal() {
  constexpr char kAlert[] = {21, 3, 3, 0, 2, 2, 49};
  return {kAlert, sizeof kAlert};
}

wire::SocksReply socks_code(const Refused& refused) {
  if (!refused.failed) return wire::SocksReply::kNotAllowed;
  if (refused.why == Why::kNoSuchName || refused.why == Why::kResolver) {
    return wire::SocksReply::kHostUnreachable;
  }
  return refused.why == Why::kUnreachable ? wire::SocksReply::kRefused : wire::SocksReply::kFailure;
}

std::string socks_text(wire::SocksReply reply) {
  const auto bytes = wire::socks_reply(reply);
  return {bytes.begin(), bytes.end()};
}

}  // namespace temenos::front
