// Policy::checked: the one place where a policy's fields are judged and brought to canonical form.
#include <algorithm>
#include <cmath>
#include <map>

#include "base/text.h"
#include "base/try.h"
#include "codec/field_path.h"
#include "policy/names.h"
#include "policy/paths.h"

namespace temenos {
namespace {

constexpr std::size_t kMaxHosts = 4096;
constexpr std::size_t kMaxMounts = 256;  // mounts, volumes and secret files each
constexpr std::size_t kMaxEnv = 1024;
constexpr std::size_t kMaxEnvText = 128 * 1024 - 1;  // MAX_ARG_STRLEN of the kernel, less its NUL
constexpr std::size_t kMaxBase = 64;
constexpr std::int64_t kMaxNumber = std::int64_t{1} << 40;
constexpr std::int64_t kMinMemoryMb = 64;
constexpr double kMinCpus = 0.01;  // the kernel's smallest quota, 1 ms in 100 ms
constexpr double kMaxCpus = 8192;

std::string item(std::string_view list, std::size_t index, std::string_view member = {}) {
  const std::string path = field_path(list, index);
  return member.empty() ? path : field_path(path, member);
}

Result<void> check_count(std::size_t count, std::size_t max, const std::string& field) {
  if (count <= max) return {};
  return bad_field(field, "at most " + std::to_string(max) + " entries", std::to_string(count),
                   "shorten the list");
}

tl::unexpected<Error> unnamed_danger(std::string_view field, std::string_view what, Danger danger,
                                     std::string_view token) {
  const std::string word(enum_name(danger));
  return fail(Code::kPolicyViolation,
              std::string(field) + ": " + std::string(what) + " needs the danger \"" + word +
                  "\" to be named",
              "add \"" + word + "\" to allow_danger (C++: allow::" + std::string(token) +
                  "), or choose something narrower");
}

// No two things at one place, in whichever list they stand.
class Targets {
 public:
  Result<void> add(std::string& target, const std::string& field) {
    target = TRY(normal_path(target, field));
    TRY(check_target(target, field));
    const auto [it, fresh] = seen_.emplace(target, field);
    if (fresh) return {};
    return fail(Code::kInvalidArgument,
                field + ": " + in_quotes(target) + " is the target of " + it->second + " already",
                "give each its own target");
  }

 private:
  std::map<std::string, std::string> seen_;
};

Result<void> check_network(PolicyFields& f) {
  if (f.network == NetworkMode::kHost && !f.allowed.host_network) {
    return unnamed_danger("network", "\"host\"", &Dangers::host_network, "HostNetwork");
  }
  if (f.enforcement == Enforcement::kCooperative && !f.allowed.cooperative) {
    return unnamed_danger("enforcement", "\"cooperative\"", &Dangers::cooperative,
                          "CooperativeEnforcement");
  }
  // Who asks for it counts on a proxy, which no other network has.
  if (f.enforcement == Enforcement::kCooperative && f.network != NetworkMode::kFiltered) {
    return fail(Code::kInvalidArgument,
                "enforcement: only the network \"filtered\" can be \"cooperative\", got \"" +
                    std::string(enum_name(f.network)) + "\"",
                "set network to \"filtered\", or leave enforcement out");
  }
  if (f.network != NetworkMode::kFiltered && !f.allow_hosts.empty()) {
    return fail(Code::kInvalidArgument,
                "allow_hosts: only the network \"filtered\" has an allowlist, got \"" +
                    std::string(enum_name(f.network)) + "\"",
                "set network to \"filtered\", or leave allow_hosts out");
  }
  TRY(check_count(f.allow_hosts.size(), kMaxHosts, "allow_hosts"));
  std::map<std::string, HostRule> sorted;
  for (HostRule& rule : f.allow_hosts) sorted.emplace(rule.to_string(), std::move(rule));
  f.allow_hosts.clear();
  for (auto& [text, rule] : sorted) f.allow_hosts.push_back(std::move(rule));
  return {};
}

Result<void> check_mounts(PolicyFields& f, Targets& targets) {
  TRY(check_count(f.mounts.size(), kMaxMounts, "mounts"));
  for (std::size_t i = 0; i < f.mounts.size(); ++i) {
    Mount& mount = f.mounts[i];
    mount.source = TRY(normal_path(mount.source, item("mounts", i, "source")));
    TRY(check_source(mount.source, mount.access, f.allowed.home_bind, item("mounts", i, "source")));
    if (mount.target.empty()) mount.target = mount.source;
    TRY(targets.add(mount.target, item("mounts", i, "target")));
  }
  return {};
}

Result<void> check_disk(DiskVolume& disk, Access access, bool home_bind, const std::string& path) {
  const std::string field = field_path(path, "host_dir");
  disk.host_dir = TRY(normal_path(disk.host_dir, field));
  TRY(check_source(disk.host_dir, access, home_bind, field));
  if (disk.allowed_root.empty()) return {};
  disk.allowed_root = TRY(normal_path(disk.allowed_root, field_path(path, "allowed_root")));
  if (is_at_or_below(disk.host_dir, disk.allowed_root)) return {};
  return bad_field(field, "a directory inside allowed_root (" + in_quotes(disk.allowed_root) + ")",
                   disk.host_dir, "choose a directory inside, or another allowed_root");
}

Result<void> check_range(std::optional<std::int64_t> value, std::int64_t min, std::int64_t max,
                         const std::string& field) {
  if (!value || (*value >= min && *value <= max)) return {};
  const std::string expected =
      "a whole number from " + std::to_string(min) + " to " + std::to_string(max);
  return bad_field(field, expected, std::to_string(*value), "choose one in that range");
}

Result<void> check_volumes(PolicyFields& f, Targets& targets) {
  TRY(check_count(f.volumes.size(), kMaxMounts, "volumes"));
  for (std::size_t i = 0; i < f.volumes.size(); ++i) {
    VolumeMount& volume = f.volumes[i];
    TRY(targets.add(volume.target, item("volumes", i, "target")));
    if (auto* disk = std::get_if<DiskVolume>(&volume.volume)) {
      TRY(check_disk(*disk, volume.access, f.allowed.home_bind, item("volumes", i, "disk")));
    } else {
      const std::string field = field_path(item("volumes", i, "memory"), "size_mb");
      TRY(check_range(std::get<MemoryVolume>(volume.volume).size_mb, 1, kMaxNumber, field));
    }
  }
  return {};
}

Result<void> check_secret_files(PolicyFields& f, Targets& targets) {
  TRY(check_count(f.secret_files.size(), kMaxMounts, "secret_files"));
  for (std::size_t i = 0; i < f.secret_files.size(); ++i) {
    SecretFile& secret = f.secret_files[i];
    const std::string field = item("secret_files", i, "source");
    secret.source = TRY(normal_path(secret.source, field));
    // Kernel files are no secrets; all else is one file, and named.
    TRY(check_source(secret.source, Access::kRead, true, field));
    TRY(targets.add(secret.target, item("secret_files", i, "target")));
  }
  return {};
}

Result<void> check_env(const PolicyFields& f) {
  TRY(check_count(f.env.size(), kMaxEnv, "env"));
  for (const auto& [name, value] : f.env) {
    const auto in_word = [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
    };
    if (name.empty() || (name[0] >= '0' && name[0] <= '9') ||
        !std::all_of(name.begin(), name.end(), in_word)) {
      return bad_field("env", "names of letters, digits and _ that begin with no digit", name,
                       "rename the variable");
    }
    const std::string field = field_path("env", name);
    if (name.size() + 1 + value.size() > kMaxEnvText) {
      return bad_field(field, "name and value of less than 128 KiB",
                       std::to_string(value.size()) + " bytes", "pass it in a file");
    }
    if (value.find('\0') != value.npos || !is_valid_utf8(value)) {
      return bad_field(field, "UTF-8 text without NUL", value, "pass bytes in a file");
    }
  }
  return {};
}

Result<void> check_limits(Limits& limits) {
  TRY(check_range(limits.memory_mb, kMinMemoryMb, kMaxNumber, "limits.memory_mb"));
  TRY(check_range(limits.cpu_seconds, 1, kMaxNumber, "limits.cpu_seconds"));
  TRY(check_range(limits.pids, 1, kMaxNumber, "limits.pids"));
  TRY(check_range(limits.disk_mb, 1, kMaxNumber, "limits.disk_mb"));
  TRY(check_range(limits.output_mb, 1, kMaxNumber, "limits.output_mb"));
  TRY(check_range(limits.ttl_seconds, 1, kMaxNumber, "limits.ttl_seconds"));
  TRY(check_range(limits.idle_seconds, 1, kMaxNumber, "limits.idle_seconds"));
  if (!limits.cpus) return {};
  // Negated, so that NaN is refused.
  if (!(*limits.cpus >= kMinCpus && *limits.cpus <= kMaxCpus)) {
    return bad_field("limits.cpus", "a number from 0.01 to 8192", std::to_string(*limits.cpus),
                     "choose one in that range, as 1.5");
  }
  limits.cpus = std::round(*limits.cpus * 1000) / 1000;
  return {};
}

Result<void> check_base(const std::string& base) {
  const auto in_name = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-';
  };
  if (!base.empty() && base.size() <= kMaxBase && std::all_of(base.begin(), base.end(), in_name) &&
      base[0] != '.' && base[0] != '-') {
    return {};
  }
  return bad_field("base", "\"host\" or the name of an image (a-z 0-9 . _ -)", base,
                   "`temenos image ls` lists the images");
}

template <typename T>
void sort_by_target(std::vector<T>& list) {
  std::sort(list.begin(), list.end(), [](const T& a, const T& b) { return a.target < b.target; });
}

}  // namespace

Result<Policy> Policy::checked(PolicyFields fields) {
  TRY(check_network(fields));
  Targets targets;
  TRY(check_mounts(fields, targets));
  TRY(check_volumes(fields, targets));
  TRY(check_secret_files(fields, targets));
  TRY(check_env(fields));
  TRY(check_limits(fields.limits));
  TRY(check_base(fields.base));
  sort_by_target(fields.mounts);
  sort_by_target(fields.volumes);
  sort_by_target(fields.secret_files);
  Policy policy(std::move(fields));
  if (std::max(policy.to_json().size(), policy.to_toml().size()) > TextLimits().max_bytes) {
    return fail(
        Code::kInvalidArgument,
        "the policy is longer than " + std::to_string(TextLimits().max_bytes) + " bytes as a text",
        "pass large values in files");
  }
  return policy;
}

}  // namespace temenos
