// A box: what the library offers to run untrusted code in.
//
// Starting one starts its keeper, which starts everything else (ARCHITECTURE.md, "Processes"). The
// box lives as long as this object: when it is destroyed, or its process dies, the box ends and
// leaves nothing. It trusts the policy and the caller; it trusts nothing that comes out of the box.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "box/data_dir.h"
#include "box/host_dirs.h"
#include "box/host_probe.h"
#include "box/mounts.h"
#include "box/session_client.h"
#include "sys/process_sys.h"
#include "temenos/error.h"
#include "temenos/policy.h"

namespace temenos::box {

struct StartOptions {
  std::string project_dir;  // mounted when not empty; absolute, no symlink in it
  std::string runsc;        // absolute
  std::string platform;     // "systrap", "ptrace", "kvm"
  unsigned start_timeout_s = 30;
};

// Files that host programs run by themselves and that appeared while a box could write there.
struct NewAutoexec {
  std::string path;  // on the host
  std::string reason;
};

class Box {
 public:
  // Refuses what is not built yet or cannot be held here, and then leaves nothing behind.
  static Result<Box> start(const Policy& policy, const HostDirs& dirs, const StartOptions& options);

  Box(Box&&) = default;
  Box& operator=(Box&&) = delete;
  ~Box();

  SessionClient& session() { return *session_; }
  const std::vector<std::string>& warnings() const { return warnings_; }
  // The environment of a command, as "K=V": the box's defaults, then the policy's, then `extra`.
  std::vector<std::string> environment(const std::map<std::string, std::string>& extra = {}) const;
  // The directory of a command that names none: the project, else the home directory in the box.
  const std::string& default_directory() const { return default_directory_; }

  // Looks at the writable mounts again.
  Result<std::vector<NewAutoexec>> new_autoexec() const;

  // Ends the box and waits until its last process and file is gone.
  Result<void> stop();

  // The error of a call to session(), or, when that says that the box is gone, the reason why.
  Error explain(const Error& error);

 private:
  Box() = default;
  Result<void> launch(const Policy& policy, const HostDirs& dirs, const StartOptions& options);

  HostDirs dirs_;
  DataDir data_;
  Mounts mounts_;
  std::vector<std::string> warnings_;
  std::map<std::string, std::string> env_;
  std::string default_directory_;
  UniqueFd control_;
  sys::Process keeper_;
  std::unique_ptr<SessionClient> session_;
};

// Tries a platform with a small workload: 50 processes and data through the socket (host_probe.h).
PlatformTrial try_platform(const HostDirs& dirs, const gvisor::Runsc& runsc,
                           const std::string& name);

}  // namespace temenos::box
