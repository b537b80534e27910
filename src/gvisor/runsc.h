// Finding gVisor's runsc and asking what it can do.
//
// What it trusts: the runsc binary itself. What it does not do: start boxes (keeper/) or choose a
// platform (box/host_probe.h). A version is never judged by its number; only by the flags that it
// knows, so newer and older builds work as long as they can what we need.
#pragma once

#include <string>
#include <vector>

#include "temenos/error.h"

namespace temenos::gvisor {

struct Runsc {
  std::string path;      // absolute, symlinks resolved
  std::string version;   // as the binary says it
  std::string identity;  // changes whenever the file does; keys caches
  std::vector<std::string>
      missing_flags;  // needed ones that it does not know; empty when it will do
};

// The flags that a runsc must know.
const std::vector<std::string>& needed_flags();

// Where runsc lies: `configured` when not empty, else `libexec_dir`/runsc.
Result<std::string> find_runsc(const std::string& configured, const std::string& libexec_dir);

// device:inode:size:mtime of the file.
Result<std::string> runsc_identity(const std::string& path);

// Runs the binary twice (about 20 ms); callers cache the answer by identity.
Result<Runsc> inspect_runsc(const std::string& path);

// The error for a runsc that cannot run a box.
Error unusable_runsc(const Runsc& runsc);

}  // namespace temenos::gvisor
