// Which processes belong to which exec, and how to end them all. In a box each exec has a group in
// the sentry's pids cgroup, held by a directory descriptor whose mount init has taken away, so that
// guests do not see it. A guest can still mount the hierarchy anew and move; so whatever is in no
// exec's group is a fugitive and dies with the next tree that is killed, and the last resort, the
// box, is session's. Without that cgroup (init run on a host, in tests) trees are found by a walk
// of /proc: children of the leader, processes of its session, and orphans that no other exec
// accounts for.
//
// Thread-safety: none. Not contained here: nothing that init does is a boundary.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/unique_fd.h"

namespace temenos::init {

class ProcessTrees {
 public:
  // `group_root`: a directory of a pids hierarchy that is ours alone, or nothing: walk /proc.
  explicit ProcessTrees(UniqueFd group_root);
  // As PID 1: opens /sys/fs/cgroup/pids and unmounts it and what it lies on. Else, or when there is
  // none: takes orphans over (PR_SET_CHILD_SUBREAPER) and walks.
  static UniqueFd take_pids_cgroup();

  bool grouped() const { return static_cast<bool>(root_); }
  // False when the group could not be made (errno).
  bool add(std::uint32_t id);
  // For the child: where it writes its pid; null when not grouped. Relative to group_dir().
  const char* group_file(std::uint32_t id) const;
  int group_dir() const { return root_.get(); }
  void set_leader(std::uint32_t id, pid_t leader);

  std::vector<pid_t> members(std::uint32_t id);
  void signal(std::uint32_t id, int signal);
  // One round of SIGKILL over the tree and all fugitives; true when for certain nothing was left to
  // kill. Without groups that needs all children reaped: call it from where that is done.
  bool kill_round(std::uint32_t id);
  // Not for PID 1, whose own end does that: one round of SIGKILL over all that descends from this
  // process, whatever became of its exec.
  void kill_all();
  // The exec is over. What lives on is given back and stays known, so that no other exec is blamed
  // for it.
  std::vector<pid_t> finish(std::uint32_t id);
  // Some process was reaped: groups of finished execs may be empty now.
  void sweep();

 private:
  struct Tree {
    std::string name;  // of its group
    std::string procs;
    pid_t leader = 0;
    bool finished = false;
    bool frozen = false;  // pids.max is 0
    std::vector<pid_t> left;
  };
  struct Found {
    std::vector<pid_t> pids;
    bool certain = true;  // nobody can have been missed
  };
  Found walk(const Tree& tree) const;
  void collect(int parent, const char* name, int depth, bool skip_trees, Found& found) const;
  Found find(const Tree& tree) const;
  bool try_remove(const Tree& tree) const;

  UniqueFd root_;
  std::unordered_map<std::uint32_t, Tree> trees_;
};

}  // namespace temenos::init
