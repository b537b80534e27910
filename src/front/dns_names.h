// What front answers to a DNS question: from what it knows, or by asking dialer. Nothing is looked
// up in the world for a box: a name's address is one of this box's own (egress/plan.h), allowed or
// not, and everything else about a name does not exist.
//
// Thread-safety: none. Memory: kMaxCached names.
#pragma once

#include <cstdint>
#include <list>
#include <optional>
#include <string>
#include <unordered_map>

#include "egress/dial_protocol.h"
#include "wire/dns_message.h"

namespace temenos::front {

class DnsNames {
 public:
  using Millis = std::int64_t;
  static constexpr std::size_t kMaxCached = 1'024;
  static constexpr Millis kKeepAllowed = 30'000;
  static constexpr Millis kKeepRefused = 1'000;  // it may be allowed in the next moment
  static constexpr std::uint32_t kTtlAllowed = 60;
  static constexpr std::uint32_t kTtlRefused = 1;  // the address will soon be another name's
  // Questions to dialer: a box may ask as often as it likes, and that costs dialer nothing.
  static constexpr double kAsksPerSecond = 500;
  static constexpr double kMaxBurst = 1'000;

  // The answer; or nullopt, and `request` is to be asked of dialer, whose reply goes to learn().
  std::optional<wire::DnsAnswer> answer(const wire::DnsQuestion& question, egress::Request& request,
                                        Millis now);
  wire::DnsAnswer learn(const wire::DnsQuestion& question, const egress::Reply& reply, Millis now);
  // dialer is another one: its list of rules may be, too.
  void forget();

 private:
  struct Known {
    std::uint32_t number = 0;
    bool allowed = false;
    Millis until = 0;
    std::list<std::string>::iterator age;
  };
  bool may_ask(Millis now);
  void keep(const std::string& name, std::uint32_t number, bool allowed, Millis now);

  std::unordered_map<std::string, Known> known_;
  std::list<std::string> ages_;  // oldest first
  double tokens_ = kMaxBurst;
  Millis filled_ = 0;
};

}  // namespace temenos::front
