#include "front/dns_names.h"

#include <algorithm>
#include <cstring>

#include "codec/address.h"
#include "egress/plan.h"

namespace temenos::front {
namespace {

using egress::Ask;
using egress::Family;
using egress::Verdict;
using wire::DnsAnswer;
using wire::DnsQuestion;
using wire::DnsRcode;
using wire::DnsType;

constexpr std::uint16_t kIncrementalTransfer = 251;
constexpr std::uint32_t kLastNumber = egress::kFirstRefused + egress::kMaxRefused;

// Name number `number` in the family of `type`.
AddressBlock address_of(std::uint32_t number, DnsType type) {
  const bool v4 = type == DnsType::kA;
  AddressBlock out = *parse_address(v4 ? egress::kFirstName4 : egress::kFirstName6);
  std::uint32_t carry = number;
  for (std::size_t i = v4 ? 4 : 16; i > 0 && carry > 0; --i) {
    carry += out.bytes[i - 1];
    out.bytes[i - 1] = static_cast<std::uint8_t>(carry);
    carry >>= 8;
  }
  return out;
}

DnsAnswer address_answer(std::uint32_t number, bool allowed, DnsType type) {
  return {.ttl = allowed ? DnsNames::kTtlAllowed : DnsNames::kTtlRefused,
          .address = address_of(number, type)};
}

bool is_localhost(std::string_view name) {
  return name == "localhost" || name.ends_with(".localhost");
}

DnsAnswer only(DnsRcode rcode) { return {.rcode = rcode}; }

}  // namespace

std::optional<DnsAnswer> DnsNames::answer(const DnsQuestion& question, egress::Request& request,
                                          Millis now) {
  if (question.error != DnsRcode::kNoError) return only(question.error);
  const auto type = question.type;
  if (question.of_class != wire::kDnsInternet || type == DnsType::kAny || type == DnsType::kAxfr ||
      static_cast<std::uint16_t>(type) == kIncrementalTransfer) {
    return only(DnsRcode::kRefused);
  }
  request = {};
  if (type == DnsType::kPtr) {
    const auto address = wire::parse_reverse_name(question.name);
    if (!address) return only(DnsRcode::kNxDomain);
    if (classify(*address) == AddressClass::kLoopback) {
      return DnsAnswer{.ttl = kTtlAllowed, .pointer = "localhost"};
    }
    request.ask = Ask::kReverse;
    request.family = address->v4 ? Family::kV4 : Family::kV6;
    std::copy(address->bytes.begin(), address->bytes.end(), request.address);
  } else if (type != DnsType::kA && type != DnsType::kAaaa) {
    return DnsAnswer{};
  } else if (is_localhost(question.name)) {
    return DnsAnswer{.ttl = kTtlAllowed,
                     .address = parse_address(type == DnsType::kA ? "127.0.0.1" : "::1")};
  } else if (!question.is_host) {
    return only(DnsRcode::kNxDomain);
  } else {
    const auto found = known_.find(question.name);
    if (found != known_.end() && now < found->second.until) {
      return address_answer(found->second.number, found->second.allowed, type);
    }
    request.ask = Ask::kResolve;
    request.family = Family::kName;
    request.name_size = static_cast<std::uint8_t>(question.name.size());
    std::memcpy(request.name, question.name.data(), question.name.size());
  }
  if (!may_ask(now)) return only(DnsRcode::kServFail);
  return std::nullopt;
}

DnsAnswer DnsNames::learn(const DnsQuestion& question, const egress::Reply& reply, Millis now) {
  if (question.type == DnsType::kPtr) {
    if (reply.verdict == Verdict::kFailed) return only(DnsRcode::kServFail);
    const std::size_t size = std::min<std::size_t>(reply.name_size, egress::kMaxNameBytes);
    if (reply.verdict != Verdict::kNamed || size == 0) return only(DnsRcode::kNxDomain);
    return {.ttl = kTtlRefused, .pointer = std::string(reply.name, size)};
  }
  if (reply.verdict != Verdict::kResolved || reply.number >= kLastNumber) {
    return only(DnsRcode::kServFail);
  }
  keep(question.name, reply.number, reply.allowed != 0, now);
  return address_answer(reply.number, reply.allowed != 0, question.type);
}

void DnsNames::forget() {
  known_.clear();
  ages_.clear();
}

bool DnsNames::may_ask(Millis now) {
  tokens_ =
      std::min(kMaxBurst, tokens_ + static_cast<double>(now - filled_) * kAsksPerSecond / 1'000);
  filled_ = now;
  if (tokens_ < 1) return false;
  tokens_ -= 1;
  return true;
}

void DnsNames::keep(const std::string& name, std::uint32_t number, bool allowed, Millis now) {
  auto [entry, is_new] = known_.try_emplace(name);
  if (!is_new) ages_.erase(entry->second.age);
  entry->second = {.number = number,
                   .allowed = allowed,
                   .until = now + (allowed ? kKeepAllowed : kKeepRefused),
                   .age = ages_.insert(ages_.end(), name)};
  if (known_.size() <= kMaxCached) return;
  known_.erase(ages_.front());
  ages_.pop_front();
}

}  // namespace temenos::front
