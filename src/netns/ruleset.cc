#include "netns/ruleset.h"

#include <linux/netlink.h>
#include <nftables/libnftables.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstdio>

#include "base/try.h"

namespace temenos::netns {
namespace {

std::string mac_text(const std::uint8_t (&mac)[6]) {
  char text[18];
  snprintf(text, sizeof text, "%02x:%02x:%02x:%02x:%02x:%02x", mac[0], mac[1], mac[2], mac[3],
           mac[4], mac[5]);
  return text;
}

// $NAME in `text` becomes what the plan has.
std::string filled_in(std::string text, const Plan& plan) {
  const std::pair<const char*, std::string> names[] = {
      {"$ROUTER4", plan.router4},
      {"$ROUTER6", plan.router6},
      {"$BOX4", plan.box4},
      {"$BOX6", plan.box6},
      {"$LINK", kRouterLink},
      {"$MACROUTER", mac_text(kRouterMac)},
      {"$MACBOX", mac_text(kBoxMac)},
      {"$MARK", std::to_string(kMark)},
      {"$TCPPORT", std::to_string(kTcpPort)},
  };
  for (const auto& [name, value] : names) {
    const std::string_view key(name);
    for (auto at = text.find(key); at != std::string::npos; at = text.find(key, at)) {
      text.replace(at, key.size(), value);
    }
  }
  return text;
}

// `ingress` sees each frame that comes out of the pair before anything else of the kernel does, and
// lets pass what an honest box sends: plain headers, its own addresses, no fragments, no
// multicast. The questions for the router's hardware address only in the one form that they have:
// each other sender would be an entry in a table that all namespaces of the host share.
//
// `output`: answers. The kernel's own reports of multicast groups are of no use to anybody.
//
// `prerouting`: what no rule before it takes is refused, by an answer, so that clients fall back at
// once. `lead` is filled later.
constexpr char kClosed[] = R"(
table netdev temenos {
  chain ingress {
    type filter hook ingress device "$LINK" priority 0; policy drop;
    ether saddr != $MACBOX drop
    arp operation request arp saddr ether $MACBOX arp saddr ip $BOX4 arp daddr ip $ROUTER4 accept
    ip6 saddr $BOX6 ip6 nexthdr icmpv6 icmpv6 type nd-neighbor-solicit accept
    ether daddr != $MACROUTER drop
    ip hdrlength != 5 drop
    ip frag-off & 0x3fff != 0 drop
    ip daddr { 0.0.0.0/8, 127.0.0.0/8, 224.0.0.0/4, 255.255.255.255 } drop
    ip saddr $BOX4 accept
    ip6 daddr { ::/127, ::ffff:0:0/96, fe80::/10, ff00::/8 } drop
    ip6 saddr $BOX6 ip6 nexthdr { tcp, udp, udplite, dccp, sctp } accept
    ip6 saddr $BOX6 ip6 nexthdr icmpv6 icmpv6 type echo-request accept
  }
}
table inet temenos {
  chain lead {
  }
  chain prerouting {
    type filter hook prerouting priority mangle; policy drop;
    iif != "$LINK" drop
    icmpv6 type nd-neighbor-solicit accept
    jump lead
    meta l4proto tcp reject with tcp reset
    reject with icmpx port-unreachable
  }
  chain input {
    type filter hook input priority filter; policy drop;
    meta mark $MARK meta l4proto { tcp, udp } accept
    icmpv6 type nd-neighbor-solicit accept
  }
  chain forward {
    type filter hook forward priority filter; policy drop;
  }
  chain output {
    type filter hook output priority filter; policy drop;
    oif != "$LINK" drop
    meta l4proto { tcp, udp } accept
    icmp type destination-unreachable accept
    icmpv6 type { destination-unreachable, nd-neighbor-advert } accept
  }
}
)";

constexpr char kNeedsNft[] =
    "the kernel needs nf_tables: sudo modprobe -a nf_tables nft_reject_inet";

constexpr char kLead[] = R"(
add rule inet temenos lead meta nfproto ipv4 tcp dport 53 tproxy ip to $ROUTER4:53 meta mark set $MARK accept
add rule inet temenos lead meta nfproto ipv6 tcp dport 53 tproxy ip6 to [$ROUTER6]:53 meta mark set $MARK accept
add rule inet temenos lead meta nfproto ipv4 meta l4proto tcp tproxy ip to $ROUTER4:$TCPPORT meta mark set $MARK accept
add rule inet temenos lead meta nfproto ipv6 meta l4proto tcp tproxy ip6 to [$ROUTER6]:$TCPPORT meta mark set $MARK accept
add rule inet temenos lead meta nfproto ipv4 udp dport 53 tproxy ip to $ROUTER4:53 meta mark set $MARK accept
add rule inet temenos lead meta nfproto ipv6 udp dport 53 tproxy ip6 to [$ROUTER6]:53 meta mark set $MARK accept
)";

}  // namespace

void Ruleset::Free::operator()(nft_ctx* context) const { nft_ctx_free(context); }

Result<Ruleset> Ruleset::open() {
  // libnftables ends the process that cannot have one.
  const UniqueFd socket(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_NETFILTER));
  if (!socket) return fail_errno(errno, "the kernel does not take the rules of nft", kNeedsNft);
  Ruleset out;
  out.context_.reset(nft_ctx_new(NFT_CTX_DEFAULT));
  if (!out.context_) return fail(Code::kInternal, "libnftables does not start");
  // Its messages are answers of ours, not lines on some terminal.
  if (nft_ctx_buffer_error(out.context_.get()) != 0 ||
      nft_ctx_buffer_output(out.context_.get()) != 0) {
    return fail(Code::kExhausted, "libnftables has no memory");
  }
  return out;
}

Result<void> Ruleset::close_everything(const Plan& plan) {
  return run(filled_in(kClosed, plan), "the rules of nft", kNeedsNft);
}

// In one transaction: each costs a wait of the kernel's.
Result<void> Ruleset::load(const Plan& plan) {
  return run(filled_in(std::string(kClosed) + kLead, plan),
             "the rules of nft that lead to the proxy",
             "the kernel needs TPROXY: sudo modprobe nft_tproxy");
}

Result<void> Ruleset::run(const std::string& text, const char* what, const char* hint) {
  if (nft_run_cmd_from_buffer(context_.get(), text.c_str()) == 0) return {};
  std::string why(nft_ctx_get_error_buffer(context_.get()));
  // The first line says it; the rest shows the rule.
  why = why.substr(0, why.find('\n'));
  return fail(Code::kUnsupported, "the kernel does not take " + std::string(what) + ": " + why,
              hint);
}

}  // namespace temenos::netns
