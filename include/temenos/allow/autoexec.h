// The token for a dangerous choice: files that host programs run by themselves (git hooks, editor
// tasks, .envrc) stay writable in the live project.
#pragma once

namespace temenos::allow {

struct Autoexec {
  explicit Autoexec() = default;
};

}  // namespace temenos::allow
