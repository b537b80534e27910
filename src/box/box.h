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
#include "box/autoexec_report.h"
#include "box/data_dir.h"
#include "box/host_dirs.h"
#include "box/host_probe.h"
#include "box/mounts.h"
#include "box/session_client.h"
#include "sys/process_sys.h"
#include "temenos/error.h"
#include "temenos/policy.h"

namespace temenos::box {

// HOME in a box on base `host`.
inline constexpr char kBoxHome[] = "/root";

struct StartOptions {
  std::string project_dir;  // mounted when not empty; absolute, no symlink in it
  std::string directory;    // where commands start when there is a project: it or below it
  std::string runsc;        // absolute
  std::string platform;     // "systrap", "ptrace", "kvm"
  unsigned start_timeout_s = 30;
  int cancel_fd = -1;  // borrowed; once it is readable, the start is given up
};

// Code::kNotBuilt for a policy that asks for a part of temenos that does not exist yet.
Result<void> refuse_what_is_not_built(const Policy& policy);

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
  // The directory of a command that names none: StartOptions::directory, the project, or, when
  // there is none, the home directory in the box.
  const std::string& default_directory() const { return default_directory_; }

  // Ends the box, waits until its last process is gone, looks at the writable mounts, and removes
  // what was the box's own. In this order: what is still alive could write after the look.
  Result<BoxEnd> stop();

  // The error of a call to session(), or, when that says that the box is gone, the reason why.
  Error explain(const Error& error);

 private:
  Box() = default;
  void end_processes();
  BoxEnd look_again() const;
  Result<void> claim(const Policy& policy);
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
// `cancel_fd` is as in StartOptions.
PlatformTrial try_platform(const HostDirs& dirs, const gvisor::Runsc& runsc,
                           const std::string& name, int cancel_fd = -1);

}  // namespace temenos::box
