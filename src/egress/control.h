// What keeper says to front and to dialer, and they to it, on their descriptor 3: SOCK_SEQPACKET,
// one fixed-size record a datagram, descriptors beside it. All of them are ours; no byte of a box
// is in it. Another size or type ends the process that receives it.
//
// Thread-safety: plain values.
#pragma once

#include <array>
#include <cstdint>

#include "base/unique_fd.h"

namespace temenos::egress {

inline constexpr int kControlFd = 3;
inline constexpr int kFirstLogFd = 4;  // dialer: the log's two segments (egress/log.h)
inline constexpr int kSecondLogFd = 5;
inline constexpr int kNamesFd = 6;  // dialer: the table of names (egress/names.h)
// front: kListenerCount sockets of the router, in the order of Listener
inline constexpr int kFirstListenerFd = 4;
// The only argument of a front that serves a proxy on the host's loopback: descriptor 4 is its
// listener, 5 a sealed file with the password. Who is refused is told of a box's flags, or not.
inline constexpr char kBoxProxy[] = "--box-proxy";
inline constexpr char kProxyAlone[] = "--proxy";

enum class ControlType : std::uint32_t {
  // keeper to front
  kDialer = 2,  // carries the socket to dialer; the old one, with all that waits for it, is over
  kPing = 1,    // answered by kPong
  // keeper to dialer
  kFront = 3,     // carries the socket to front; the old one is over
  kRules = 4,     // carries a sealed file with one rule in canonical form a line; replaces the list
  kResolver = 5,  // carries sealed files: resolv.conf and hosts of the host, as they are now
  kFlushLog = 6,  // all that is known by now is to be in the log; answered by kLogFlushed
  // Connections that the list does not allow any more are to end; answered by kEnded. `value` is
  // keeper's and not 0.
  kEndRefused = 7,
  // from both
  kJailed = 16,  // locked down; nothing of the box was read before
  // front to keeper
  kPong = 23,
  // dialer to keeper
  kRulesTaken = 17,  // `value` rules; or refused whole, the old ones hold: kRulesRefused
  kRulesRefused = 18,
  kSelfTested = 19,     // the box's own request was refused, by way of front
  kLogFlushed = 21,     // `value` connections and look-ups were refused since dialer began
  kWantsResolver = 20,  // before a look-up, when the last answer is some seconds old
  // front has said that they have: the `value` that was asked with. 0: front may have others.
  kEnded = 22,
};

enum class Listener : std::uint32_t {
  kTcp4,
  kTcp6,
  kDnsUdp4,
  kDnsUdp6,
  kDnsTcp4,
  kDnsTcp6,
  kProxy,  // none of the router's
};
inline constexpr std::uint32_t kListenerCount = 6;  // of the router
using Listeners = std::array<UniqueFd, kListenerCount>;

struct Control {
  ControlType type = ControlType::kJailed;
  std::uint32_t value = 0;
};
static_assert(sizeof(Control) == 8);

}  // namespace temenos::egress
