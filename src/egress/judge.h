// The engine that every path of a box's network asks: may a connection go to this name or address
// and this port, what has to be seen of it before, and which rule says so. The list in use by
// dialer, `check` and `explain` of HostAllowlist are this one.
//
// What it does not do: look names up. The addresses of an allowed name are judged when they are
// known (egress/address_check.h).
//
// One rule decides. Among those that match, any protocol goes before TLS or HTTP only, and then
// `private:` before none.
//
// Thread-safety: immutable once made.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "egress/dial_protocol.h"
#include "temenos/error.h"
#include "temenos/network.h"

namespace temenos::egress {

enum class Need { kAny, kTls, kHttp };

struct Decision {
  bool allowed = false;
  Why why = Why::kNotAllowed;  // kNone when allowed
  Need need = Need::kAny;
  bool allows_private = false;
  bool host_loopback = false;  // connect to 127.0.0.1 of the host
  std::string rule;            // in canonical form; of a preset "@npm (registry.npmjs.org)"
};

class Judge {
 public:
  // Refuses everything.
  Judge() = default;
  // Presets become their rules here.
  static Judge of(std::span<const HostRule> rules);
  // One rule in canonical form a line, as keeper hands it to dialer; else kInvalidArgument.
  static Result<Judge> parse(std::string_view lines);

  // `name` in canonical form (wire/host_name.h).
  Decision judge_name(std::string_view name, std::uint16_t port) const;
  // An address that is not one of the box's own synthetic ones. Whether it is the host's is asked
  // when it is connected to.
  Decision judge_address(const AddressBlock& address, std::uint16_t port) const;

  // Some rule names it, whatever the port: then it gets an address of its own.
  bool names(std::string_view name) const;
  // The names that are written out in the rules.
  std::vector<std::string> exact_names() const;
  std::size_t rules() const { return rules_; }

 private:
  struct Entry {
    HostRule::Ports ports = HostRule::Ports::kWeb;
    std::uint16_t port = 0;
    bool allows_private = false;
    std::string text;
  };
  class Choice;
  struct Hash : std::hash<std::string_view> {
    using is_transparent = void;
  };
  using ByName = std::unordered_map<std::string, std::vector<Entry>, Hash, std::equal_to<>>;

  void add(const HostRule& rule, std::string text);
  // Calls `use` with the entries of each rule that names `name`.
  template <typename F>
  void each_of_name(std::string_view name, F use) const;

  ByName names_;
  ByName below_;  // *.NAME
  std::vector<std::pair<AddressBlock, Entry>> blocks_;
  std::vector<Entry> loopback_;  // 127.0.0.1:PORT
  std::size_t rules_ = 0;
};

// As many as a policy may have, each of them as long as one can be.
inline constexpr std::size_t kMaxRules = 4096;
inline constexpr std::size_t kMaxRuleText =
    std::string_view("private:*.").size() + kMaxNameBytes + std::string_view(":65535").size();
inline constexpr std::size_t kMaxRulesText = kMaxRules * (kMaxRuleText + 1);

}  // namespace temenos::egress
