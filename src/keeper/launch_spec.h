// All that a keeper needs to know to run one box: resolved, checked, plain data. The library makes
// it from a Policy; it travels as JSON in a sealed memory file, with the descriptors of Launch
// beside it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "temenos/error.h"
#include "temenos/policy.h"

namespace temenos::keeper {

struct BindSpec {
  std::string source;  // absolute, no symlink in it
  std::string target;  // absolute, in the box
  bool writable = false;
  // Below `source`, relative, existing when the box starts:
  std::vector<std::string> hidden;  // directories covered by an empty one (temenos' own)
  std::vector<std::string>
      protected_paths;  // read-only, and not to be renamed, nor any directory above

  bool operator==(const BindSpec&) const = default;
};

struct MemorySpec {
  std::string target;
  std::uint64_t size_mb = 0;

  bool operator==(const MemorySpec&) const = default;
};

// What the box may use. 0: no limit.
struct LimitSpec {
  std::string driver = "none";  // cgroup::driver_name()
  std::string group;            // its group's name (cgroup/make.h)
  bool required = false;        // no box without what the driver keeps
  std::int64_t memory_mb = 0;   // of the sandbox, gVisor's own use included
  std::int64_t cpu_thousandths = 0;
  std::int64_t cpu_seconds = 0;
  std::int64_t guest_tasks = 0;  // processes and threads of one user id in the box
  std::int64_t host_tasks = 0;   // of the sandbox on the host
  std::int64_t disk_mb = 0;      // of the box's own files, with scratch disk
  std::string note;              // what is not kept of this, for people; empty: all is

  bool operator==(const LimitSpec&) const = default;
};

struct LaunchSpec {
  std::string hostname;
  std::string platform;  // "systrap", "ptrace" or "kvm"
  // kNone: a network namespace with nothing in it. kFiltered: one that leads to a router
  // (netns/setup.h). kHost: the host's own.
  NetworkMode network = NetworkMode::kNone;
  bool proxy = false;  // of kHost: cooperative enforcement, by front and dialer as a proxy
  std::string runsc;   // paths of the programs: absolute, no symlink in them
  std::string init;
  std::string session;
  std::string scope;
  std::string netsetup;  // of kFiltered
  // Of kFiltered, and of a proxy.
  std::string dialer;
  std::string front;
  std::vector<std::string> allow_hosts;  // rules in canonical form
  std::string data_dir;  // owned by the caller, mode 0700; the box's files lie in its "box"
  // The box outlives its starter, and its files outlive the box. Else both go with the starter.
  bool durable = false;
  Scratch scratch = Scratch::kDisk;  // on disk it is "box" that the box writes in
  std::int64_t scratch_mb = 1024;    // what kMemory holds
  std::vector<BindSpec> binds;
  std::vector<MemorySpec> memory;
  LimitSpec limits;
  unsigned start_timeout_s = 30;
  std::int64_t ttl_s = 0;   // from ready on; 0: no end
  std::int64_t idle_s = 0;  // without an operation in session; 0: no end

  bool operator==(const LaunchSpec&) const = default;
};

std::string to_json(const LaunchSpec& spec);
Result<LaunchSpec> launch_spec_from_json(std::string_view text);

// The spec and the descriptors that make it certain what its paths mean.
struct Launch {
  LaunchSpec spec;
  UniqueFd data_dir;              // O_PATH
  UniqueFd client;                // the first client connection of the session
  std::vector<UniqueFd> sources;  // O_PATH, one per bind, in order
  UniqueFd listener;              // durable: where callers connect (SOCK_SEQPACKET, listening)
};

Result<void> send_launch(int socket, const Launch& launch);
Result<Launch> receive_launch(int socket);

}  // namespace temenos::keeper
