// The token for a dangerous choice: a directory that another live box can write is bound writable:
// the two boxes can then reach each other through it.
#pragma once

namespace temenos::allow {

struct SharedWrite {
  explicit SharedWrite() = default;
};

}  // namespace temenos::allow
