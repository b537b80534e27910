// The token for a dangerous choice: where the network cannot be enforced, a proxy that the
// programs in the box are asked, not made, to use. It is not a boundary.
#pragma once

namespace temenos::allow {

struct CooperativeEnforcement {
  explicit CooperativeEnforcement() = default;
};

}  // namespace temenos::allow
