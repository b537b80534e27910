// The token for a dangerous choice: the box shares the host's network, unfiltered.
#pragma once

namespace temenos::allow {

struct HostNetwork {
  explicit HostNetwork() = default;
};

}  // namespace temenos::allow
