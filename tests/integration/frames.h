// Ethernet frames as a box may send them, built by hand.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace temenos::testing {

inline std::string be16(unsigned value) {
  return {static_cast<char>(value >> 8), static_cast<char>(value)};
}

inline std::string address_bytes(const std::string& text) {
  std::array<char, 16> bytes{};
  const int family = text.find(':') == std::string::npos ? AF_INET : AF_INET6;
  if (inet_pton(family, text.c_str(), bytes.data()) != 1) return "";
  return std::string(bytes.data(), family == AF_INET ? 4 : 16);
}

// RFC 1071.
inline std::uint16_t checksum(std::string_view bytes) {
  std::uint32_t sum = 0;
  for (std::size_t i = 0; i < bytes.size(); i += 2) {
    const auto high = static_cast<std::uint8_t>(bytes[i]);
    const auto low = i + 1 < bytes.size() ? static_cast<std::uint8_t>(bytes[i + 1]) : 0;
    sum += static_cast<std::uint32_t>(high << 8 | low);
  }
  while ((sum >> 16) != 0) sum = (sum & 0xffff) + (sum >> 16);
  return static_cast<std::uint16_t>(~sum);
}

struct Ends {
  std::string from, to;  // addresses as text
  std::uint16_t from_port = 0, to_port = 0;
};

// The sum over a payload of IPv4 or IPv6, put at `at`.
inline std::string with_sum(const Ends& ends, unsigned protocol, std::string payload,
                            std::size_t at) {
  const std::string pseudo = address_bytes(ends.from) + address_bytes(ends.to) +
                             be16(static_cast<unsigned>(payload.size())) + be16(protocol);
  const std::string sum = be16(checksum(pseudo + payload));
  return payload.replace(at, 2, sum);
}

inline std::string tcp_syn(const Ends& ends) {
  std::string header = be16(ends.from_port) + be16(ends.to_port) + std::string("\0\0\0\1", 4) +
                       std::string(4, '\0') + std::string("\x50\x02\xff\xff", 4) +
                       std::string(4, '\0');
  return with_sum(ends, IPPROTO_TCP, std::move(header), 16);
}

inline std::string udp(const Ends& ends, std::string_view data) {
  std::string header = be16(ends.from_port) + be16(ends.to_port) +
                       be16(static_cast<unsigned>(8 + data.size())) + std::string(2, '\0');
  return with_sum(ends, IPPROTO_UDP, header.append(data), 6);
}

struct Ip4 {
  unsigned fragment = 0;  // flags and offset
  std::string options;    // a multiple of four bytes
  unsigned protocol = IPPROTO_TCP;
};
inline std::string ip4(const Ends& ends, const Ip4& ip, const std::string& payload) {
  const auto words = static_cast<unsigned>(5 + ip.options.size() / 4);
  std::string header = be16(0x4000 | words << 8) +
                       be16(static_cast<unsigned>(words * 4 + payload.size())) + be16(7) +
                       be16(ip.fragment) + be16(64 << 8 | ip.protocol) + be16(0) +
                       address_bytes(ends.from) + address_bytes(ends.to) + ip.options;
  const std::string sum = be16(checksum(header));
  return header.replace(10, 2, sum) + payload;
}

inline std::string ip6(const Ends& ends, unsigned next, const std::string& payload) {
  return std::string("\x60\0\0\0", 4) + be16(static_cast<unsigned>(payload.size())) +
         be16(next << 8 | 255) + address_bytes(ends.from) + address_bytes(ends.to) + payload;
}

inline std::string ethernet(std::string_view to, std::string_view from, unsigned type,
                            const std::string& payload) {
  std::string frame = std::string(to) + std::string(from) + be16(type) + payload;
  if (frame.size() < 60) frame.resize(60, '\0');
  return frame;
}

}  // namespace temenos::testing
