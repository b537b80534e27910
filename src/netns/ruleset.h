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
  // Nothing comes in but what the box may send, nothing is forwarded, all of it is refused.
  Result<void> close_everything(const Plan& plan);
  // TCP and DNS go to the listeners.
  Result<void> lead_to_listeners(const Plan& plan);

 private:
  struct Free {
    void operator()(nft_ctx* context) const;
  };
  Result<void> run(const std::string& text, const char* what, const char* hint);
  std::unique_ptr<nft_ctx, Free> context_;
};

}  // namespace temenos::netns
