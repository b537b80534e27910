// The addresses that a box with a filtered network sees. They exist in its own two network
// namespaces only; on the host's side none of them is ever connected to (codec/address.h: special).
//
// 198.18.0.0/15 is set aside for tests of network devices (RFC 2544): no host of the internet has
// one. The IPv6 addresses are unique local (RFC 4193).
//
// Thread-safety: pure values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace temenos::egress {

inline constexpr int kBoxPrefix4 = 30;
inline constexpr std::string_view kRouter4 = "198.18.0.1";  // gateway, name server, proxy
inline constexpr std::string_view kBox4 = "198.18.0.2";
inline constexpr int kBoxPrefix6 = 126;  // names are not on the link: nobody would answer there
inline constexpr int kBoxRange6 = 64;    // all addresses of a box, those of its names too
inline constexpr std::string_view kRouter6 = "fd74:656d:656e:6f73::1";
inline constexpr std::string_view kBox6 = "fd74:656d:656e:6f73::2";
inline constexpr std::uint16_t kProxyPort = 3128;
// Beside a password of its own, where the proxy is on the host's loopback.
inline constexpr std::string_view kProxyUser = "temenos";
inline constexpr std::size_t kMaxProxyPassword = 64;

// No name's: asked for once at the start, to see that a refusal arrives.
inline constexpr std::string_view kSelfTest4 = "198.18.0.5";
inline constexpr std::uint16_t kSelfTestPort = 65535;

// Name number i has kFirstName4 + i, and kFirstName6 + i.
inline constexpr std::string_view kFirstName4 = "198.18.1.0";
inline constexpr std::string_view kFirstName6 = "fd74:656d:656e:6f73::1:0:0";
inline constexpr std::uint32_t kMaxNames = 32'768;  // allowed ones, each for the box's whole life
inline constexpr std::uint32_t kFirstRefused = 65'536;  // the pool that refused names share
inline constexpr std::uint32_t kMaxRefused = 256;

// The host's loopback, where a rule 127.0.0.1:PORT opens a port of it.
inline constexpr std::string_view kHostName = "host.temenos.internal";

// Large: each packet is copied through two kernels of which one is gVisor's.
inline constexpr std::uint32_t kMtu = 65'520;

}  // namespace temenos::egress
