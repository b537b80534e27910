// The helper: PID 1 of the namespaces that a box's sandbox runs in.
//
// It is forked by the keeper into fresh user, mount, PID, IPC, UTS, cgroup and (unless the box has
// the host's) network namespaces, builds the tree, starts runsc under the seccomp filter, and from
// then on only reaps and answers the filter's requests. As PID 1 its death takes every process of
// the sandbox with it, and it is reaped only after the last of them is gone: that is what "the box
// is gone" means everywhere in temenos. It trusts the keeper; it shares a user namespace with the
// sandbox and so is worth no more than that.
#pragma once

#include <optional>
#include <vector>

#include "base/unique_fd.h"
#include "keeper/id_plan.h"
#include "keeper/launch_spec.h"
#include "keeper/sources.h"

namespace temenos::keeper {

struct HelperStart {
  int control = -1;       // SOCK_SEQPACKET to the keeper
  int init_socket = -1;   // becomes the box's fd 0
  int lock = -1;          // on the data dir, an open file description of its own (flock(2))
  std::vector<int> join;  // what runsc writes "0" into, to be in the box's groups
  int meter = -1;         // for the process that counts the box's files; -1: none does
  Launch* launch = nullptr;
  const IdPlan* plan = nullptr;
  int netsetup = -1;               // the program (O_PATH); -1: the box's network is not filtered
  std::optional<Sources> sources;  // cloned by the keeper when it is root
};

// The helper's whole life; returns its exit status.
int helper_main(HelperStart start);

}  // namespace temenos::keeper
