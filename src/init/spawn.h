// Starts one process the cheap way: clone with CLONE_VM and CLONE_VFORK, because inside the sentry
// each system call and each copied page table counts. The caller has one thread and stands still
// until exec.
#pragma once

#include <sys/resource.h>
#include <sys/types.h>

#include <string>
#include <string_view>
#include <vector>

#include "wire/box_protocol.h"

namespace temenos::init {

struct SpawnRequest {
  const box_wire::Exec* exec = nullptr;
  int stdio[3] = {-1, -1, -1};  // become 0, 1, 2; all above 2
  bool terminal = false;        // descriptor 0 becomes the controlling terminal
  int group_dir = -1;           // with `group_file`, where the child writes its pid before it execs
  const char* group_file = nullptr;
  const rlimit* descriptors = nullptr;  // RLIMIT_NOFILE to go back to, or null
};

struct SpawnFailure {
  box_wire::Stage stage = box_wire::Stage::kSpawn;
  int error = 0;
};

// The child leads a session of its own, has default signal actions, an empty mask and descriptors
// 0, 1, 2 only. The program is looked up in the PATH of the exec's own environment, as execvp(3)
// does, a script without a #! line included. Returns its pid, or -1 and `failure`.
pid_t spawn(const SpawnRequest& request, SpawnFailure& failure);

// Where `program` may be, in order. For spawn() and its test.
std::vector<std::string> program_candidates(std::string_view program,
                                            const std::vector<std::string_view>& env);

}  // namespace temenos::init
