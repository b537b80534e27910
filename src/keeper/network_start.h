// Has temenos-netsetup make the network of a box (netns/setup.h), while helper builds the tree.
#pragma once

#include "base/unique_fd.h"
#include "sys/process_sys.h"
#include "temenos/error.h"

namespace temenos::keeper {

// Becomes temenos-netsetup (`program`: O_PATH), which answers on `socket`; returns only on failure,
// an errno. In a child after fork, as root of the user namespace that owns its network namespace.
int become_netsetup(int program, int socket);
// The error for such an errno.
Error no_netsetup(int err);
// Its hint names what does without an enforced network, last.
Error no_enforcement(Error error);

class NetworkStart {
 public:
  NetworkStart() = default;
  ~NetworkStart();
  NetworkStart(const NetworkStart&) = delete;
  NetworkStart& operator=(const NetworkStart&) = delete;

  // In the box's network namespace, as root of the user namespace that owns it. `program`: O_PATH.
  Result<void> begin(int program);
  // Waits for its end and passes the listeners on, as a Message of kind kNetwork.
  Result<void> finish(int control);

 private:
  UniqueFd socket_;
  sys::Process process_;
};

}  // namespace temenos::keeper
