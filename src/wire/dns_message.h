// DNS as a stub's server needs it: one question in, one answer out. Everything in the question is
// hostile; the caller takes it from a datagram, or from behind its two bytes of length in a stream.
//
// Thread-safety: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "wire/byte_cursor.h"
#include "wire/host_name.h"

namespace temenos::wire {

inline constexpr std::size_t kMaxDnsMessage = 65535;

enum class DnsType : std::uint16_t { kA = 1, kPtr = 12, kAaaa = 28, kAxfr = 252, kAny = 255 };
inline constexpr std::uint16_t kDnsInternet = 1;  // the class

enum class DnsRcode : std::uint8_t {
  kNoError = 0,
  kFormErr = 1,
  kServFail = 2,
  kNxDomain = 3,
  kNotImp = 4,
  kRefused = 5,
  kBadVers = 16,  // of EDNS
};

struct DnsQuestion {
  std::uint16_t id = 0;
  // kNoError: all below is there. Else it is malformed, or not understood, and this is the answer.
  DnsRcode error = DnsRcode::kNoError;
  // In lower case, without the last dot; empty for the root. Each label is of a-z, 0-9, - and _.
  std::string name;
  bool is_host = false;        // `name` is a host's in canonical form (wire/host_name.h)
  DnsType type = DnsType::kA;  // any 16 bits
  std::uint16_t of_class = 0;
  bool has_edns = false;
  std::size_t udp_size = 512;  // the largest answer in a datagram that the client takes
  std::uint8_t flags = 0;      // those that an answer repeats
  // As it came, with the case that the client looks for again in the answer; empty when malformed.
  std::vector<std::uint8_t> wire;
};
// nullopt: not to be answered at all, since it is no question: too short, or an answer.
std::optional<DnsQuestion> parse_dns_question(Bytes message);

struct DnsAnswer {
  DnsRcode rcode = DnsRcode::kNoError;
  std::uint32_t ttl = 0;  // seconds
  // At most one of these; without any, and with kNoError, there is no such record of that name.
  std::optional<AddressBlock> address;  // a whole one: A or AAAA
  std::string pointer;                  // a canonical name: PTR
};
// The message. One that is larger than `limit` (udp_size, kMaxDnsMessage) has no record and the bit
// that sends the client to TCP.
std::vector<std::uint8_t> build_dns_answer(const DnsQuestion& question, const DnsAnswer& answer,
                                           std::size_t limit);

// "1.2.0.192.in-addr.arpa" and the 32 digits below ip6.arpa; `name` in lower case.
std::optional<AddressBlock> parse_reverse_name(std::string_view name);

}  // namespace temenos::wire
