// The OCI bundle (config.json of the OCI runtime specification 1.2) that runsc starts a box from.
//
// It says what the box's processes see. It is no boundary: what must hold is held by the mounts
// that the host kernel made before and by the processes outside (ARCHITECTURE.md, "decoration").
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace temenos::gvisor {

struct OciMount {
  std::string target;
  std::string type;  // "bind", "tmpfs", "proc", "sysfs", "cgroup"
  std::string source;
  std::vector<std::string> options;
};

struct OciConfig {
  std::string root;
  std::vector<std::string> args;
  std::string hostname;
  std::vector<OciMount> mounts;  // in the order in which they are made
  std::int64_t tasks = 0;        // RLIMIT_NPROC of what init starts; 0: none
  // Whose links gVisor's own network stack takes over (--network=sandbox); empty: nobody's.
  std::string network_namespace;
};

std::string oci_config_json(const OciConfig& config);

}  // namespace temenos::gvisor
