// The allowlist of a filtered network, usable alone: what would happen to a destination, and which
// rule says so. It is the engine that decides for boxes. Nothing is looked up or connected to: the
// addresses of an allowed name are judged when a box connects to it.
//
// Thread-safety: immutable; copies share it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "temenos/error.h"
#include "temenos/network.h"

namespace temenos {

namespace egress {
class Judge;
}

class HostAllowlist {
 public:
  // Allows nothing.
  HostAllowlist();
  // Entries as in a policy; kInvalidArgument names the first bad one.
  static Result<HostAllowlist> parse(std::span<const std::string> entries);
  explicit HostAllowlist(std::span<const HostRule> rules);

  enum class Needs { kAnyProtocol, kTls, kHttp };
  struct Answer {
    std::string host;  // in canonical form
    std::uint16_t port = 0;
    bool allowed = false;
    Needs needs = Needs::kAnyProtocol;  // kTls, kHttp: only with this host in it
    bool allows_private = false;        // a name may resolve to a private address
    std::string rule;                   // that decided; of a preset "@npm (registry.npmjs.org)"
    std::string why;                    // refused: a word ("not_allowed", "port", ...)
  };
  // HOST, HOST:PORT, [V6]:PORT; without a port 443. kInvalidArgument: it is no destination.
  Result<Answer> check(std::string_view destination) const;
  // The answer as a sentence, with what would change a refusal.
  Result<std::string> explain(std::string_view destination) const;

 private:
  std::shared_ptr<const egress::Judge> judge_;
};

}  // namespace temenos
