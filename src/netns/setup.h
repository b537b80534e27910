// The network of one box, made by temenos-netsetup in a moment and then left alone.
//
//   box (the caller's netns)                router (made here)
//   lo                                      lo
//   eth0 box4, box6  ────── veth pair ───── box  router4, router6
//   default routes to the router            no route but to the box; forwards nothing
//
// nft in router lets TCP and DNS of the box reach the listeners (TPROXY: any address, any port),
// refuses all else at once, and forwards nothing. The listeners are all that keeps router alive.
//
// What it trusts: its plan. The box may send any frame: what does not carry the box's own addresses
// and a plain header is dropped where it comes out of the pair (ruleset.cc).
// Thread-safety: none; one call a process. Caller: root of the user namespace that owns its netns.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "base/unique_fd.h"
#include "temenos/error.h"

namespace temenos::netns {

struct Plan {
  std::string router4, box4;  // addresses as text
  int prefix4 = 0;
  std::string router6, box6;
  int prefix6 = 0;
  std::uint32_t mtu = 0;
};

// TCP of IPv4 and IPv6, DNS over UDP of both, DNS over TCP of both. All non-blocking.
inline constexpr std::size_t kListeners = 6;
using Listeners = std::array<UniqueFd, kListeners>;

// How far it came; doctor tells by it what a host lacks.
enum class Step : std::uint32_t { kNamespaces = 1, kLinks, kNft, kTproxy, kListeners, kDone };

struct Failure {
  Step step = Step::kNamespaces;
  Error error;
};

// Nothing, or what failed. The calling process is in router afterwards.
struct SetUp {
  bool ok = false;
  Failure failure;
  Listeners listeners;
};
SetUp set_up(const Plan& plan);

// What the parts of it agree about.
inline constexpr unsigned kLinkIndex = 100;  // of both ends: new namespaces may have tunnels
inline constexpr char kRouterLink[] = "box";
inline constexpr char kBoxLink[] = "eth0";
// Each pair is alone in its two namespaces, so all have the same.
inline constexpr std::uint8_t kRouterMac[6] = {0x02, 0x74, 0x65, 0x6d, 0x00, 0x01};
inline constexpr std::uint8_t kBoxMac[6] = {0x02, 0x74, 0x65, 0x6d, 0x00, 0x02};
inline constexpr std::uint32_t kMark = 1;  // of what TPROXY took; a box's own does not come across
inline constexpr std::uint8_t kTable = 100;
inline constexpr std::uint16_t kTcpPort = 1024;  // where the listeners really are; no one sees it
inline constexpr std::uint16_t kDnsPort = 53;    // an answer comes from the port that is bound

}  // namespace temenos::netns
