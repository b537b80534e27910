// runsc as a person would use it, in the same place: a process of ours inside the namespaces of a
// live box, with that box's root, bundle, runsc and ids. Between temenos and what is measured here
// there is then no difference of mounts, ids or flags.
#pragma once

#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "sys/process_sys.h"
#include "temenos/error.h"
#include "tests/bench/net_server.h"

namespace temenos::bench {

class RunscInside {
 public:
  // `runsc_run` is the waiting `runsc run` of a live box; its end is the end of this.
  static Result<RunscInside> enter(pid_t runsc_run);
  RunscInside(RunscInside&&) = default;
  RunscInside& operator=(RunscInside&&) = delete;
  ~RunscInside();

  // As the live box's `runsc run` was told.
  std::string platform() const;

  // Milliseconds from the start of the process to its end, without our own messages.
  // `runsc exec` of a command in the live box itself:
  Result<double> exec_in_box(const std::vector<std::string>& argv);
  // A second sandbox of the box's own bundle, with the flags of the first: `runsc run --detach`,
  // then `runsc exec` of a command in it. The sum.
  Result<double> run_and_exec(const std::vector<std::string>& argv);
  // The same in two steps; the second gives the command's output.
  Result<void> run_second();
  Result<std::string> exec_in_second(const std::vector<std::string>& argv);
  // Ends that second sandbox.
  Result<double> remove();

  // From here on, a second sandbox has a network of its own, made like a filtered box's but for
  // what is at the other end: a plain namespace. Two listeners there, at the address kPeer.
  Result<std::vector<Listening>> enter_plain_network();
  static constexpr char kPeer[] = "198.18.0.1";

 private:
  RunscInside() = default;
  struct Done {
    double ms = 0;
    std::string output;
  };
  // `how`: what serve() of runsc_inside.cc does with it.
  Result<Done> command(char how, const std::vector<std::string>& words);
  std::vector<std::string> for_second(const std::vector<std::string>& words) const;

  std::vector<std::string> flags_;  // of the live box's `runsc run`, without its --root
  sys::Process process_;
  UniqueFd socket_;
};

}  // namespace temenos::bench
