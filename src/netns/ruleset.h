// The nft rules of router. libnftables keeps state of its own in the process; temenos-netsetup ends
// soon after.
#pragma once

#include <memory>
#include <string>

#include "netns/setup.h"
#include "temenos/error.h"

struct nft_ctx;

namespace temenos::netns {

class Ruleset {
 public:
  static Result<Ruleset> open();
  // All rules, or none: nothing comes in but what the box may send, nothing is forwarded, TCP and
  // DNS go to the listeners, the rest is refused.
  Result<void> load(const Plan& plan);
  // Those without the listeners, to find out why load() failed.
  Result<void> close_everything(const Plan& plan);

 private:
  struct Free {
    void operator()(nft_ctx* context) const;
  };
  Result<void> run(const std::string& text, const char* what, const char* hint);
  std::unique_ptr<nft_ctx, Free> context_;
};

}  // namespace temenos::netns
