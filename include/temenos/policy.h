// What a box may do: a frozen value, complete and checked. Made by Policy::Builder
// (policy_builder.h), from JSON or from TOML, and derived only by restrict(), which can but narrow,
// and by with_allowlist().
// It trusts nothing of the text it is made from; it does no I/O, so what only the host can tell
// (where a symlink leads, whose home a directory is) is checked by the box layer.
//
// Thread-safety: immutable after construction.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "temenos/error.h"
#include "temenos/network.h"
#include "temenos/volume.h"

namespace temenos {

enum class LimitsMode { kRequired, kBestEffort };    // best effort: warn where the host cannot
enum class Enforcement { kRequired, kCooperative };  // of `filtered`
// Where the box writes, narrowest first. Of kMemory and kRunsc nothing survives the box; kRunsc is
// gVisor's own memory, which no size holds, for hosts where neither of the others can be had.
enum class Scratch { kMemory, kRunsc, kDisk };
enum class ProjectAccess { kRead, kReview, kWrite };  // narrowest first; review: copy-on-write
enum class Platform { kAuto, kSystrap, kPtrace, kKvm };

// Unset: no limit. The names are the units (MiB, seconds).
struct Limits {
  std::optional<std::int64_t> memory_mb;  // from 64: below it a cold start thrashes
  std::optional<double> cpus;             // from 0.01, kept to a thousandth
  std::optional<std::int64_t> cpu_seconds;
  std::optional<std::int64_t> pids;
  std::optional<std::int64_t> disk_mb;
  std::optional<std::int64_t> output_mb;
  std::optional<std::int64_t> ttl_seconds;   // age of a running box
  std::optional<std::int64_t> idle_seconds;  // without a command or file operation
  bool operator==(const Limits&) const = default;
};

// Which dangerous choices were named. Set by the tokens of temenos/allow/, or by "allow_danger".
struct Dangers {
  bool host_network = false;
  bool home_bind = false;
  bool shared_write = false;
  bool cooperative = false;
  bool autoexec = false;
  bool operator==(const Dangers&) const = default;
};

struct PolicyFields {
  NetworkMode network = NetworkMode::kFiltered;
  std::vector<HostRule> allow_hosts;     // by canonical form, no two equal
  std::vector<Mount> mounts;             // by target: an outer one comes before what lies in it
  std::vector<VolumeMount> volumes;      // by target
  std::vector<SecretFile> secret_files;  // by target; no target occurs twice in the three lists
  std::map<std::string, std::string> env;
  Limits limits;
  LimitsMode limits_mode = LimitsMode::kBestEffort;
  Enforcement enforcement = Enforcement::kRequired;
  Scratch scratch = Scratch::kDisk;
  ProjectAccess project = ProjectAccess::kWrite;
  Platform platform = Platform::kAuto;
  std::string base = "host";  // or the name of an image
  Dangers allowed;
  bool operator==(const PolicyFields&) const = default;
};

// What restrict() changes; unset stays as it is. Lists replace the parent's and only leave out.
struct Restriction {
  std::optional<NetworkMode> network;
  std::optional<std::vector<HostRule>> allow_hosts;  // each covered by a rule of the parent
  std::optional<std::vector<Mount>> mounts;          // of the parent's; write may become read
  std::optional<std::vector<VolumeMount>> volumes;   // the same; memory may become smaller
  std::optional<std::vector<SecretFile>> secret_files;
  std::optional<std::vector<std::string>> env;  // names that stay
  Limits limits;                                // what is set replaces the parent's, lower
  std::optional<LimitsMode> limits_mode;
  std::optional<Enforcement> enforcement;
  std::optional<Scratch> scratch;
  std::optional<ProjectAccess> project;
  std::optional<Dangers> allowed;
  // Where the project will be mounted; empty: there is none. Leaving out a mount that covers a part
  // of something larger would uncover it, so nothing can be left out while this is not known.
  std::optional<std::string> project_dir;
};

class Policy {
 public:
  class Builder;

  // At most 1 MiB. Unknown fields, wrong types, bad values and duplicate keys are kInvalidArgument,
  // dangerous choices that are not in "allow_danger" kPolicyViolation; both name the field by path.
  static Result<Policy> from_json(std::string_view text);
  static Result<Policy> from_toml(std::string_view text);
  // Complete, defaults too, so that a stored policy keeps its meaning. from_*(to_*()) is equal.
  std::string to_json() const;
  std::string to_toml() const;

  const PolicyFields& fields() const { return fields_; }
  const PolicyFields* operator->() const { return &fields_; }

  // The same policy, narrowed. Any widening is kPolicyViolation and names the field.
  Result<Policy> restrict(const Restriction& restriction) const;

  // The same policy with another allowlist, which may be wider: what the user of a box makes of it
  // by Box::allow_hosts() and deny_hosts(). Only with the network `filtered`.
  Result<Policy> with_allowlist(std::vector<HostRule> rules) const;

  bool operator==(const Policy&) const = default;

 private:
  explicit Policy(PolicyFields fields) : fields_(std::move(fields)) {}
  static Result<Policy> checked(PolicyFields fields);

  PolicyFields fields_;
};

}  // namespace temenos
