// The token for a dangerous choice: a home directory or an ancestor of one is bound into the box
// (keys, logins, shell start-up files), or a directory directly below / is bound writable.
#pragma once

namespace temenos::allow {

struct HomeBind {
  explicit HomeBind() = default;
};

}  // namespace temenos::allow
