// Policy::restrict: every field is either left alone or replaced by something proven narrower.
#include <algorithm>

#include "base/try.h"
#include "codec/field_path.h"
#include "policy/names.h"
#include "policy/paths.h"

namespace temenos {
namespace {

tl::unexpected<Error> widens(std::string_view field, std::string_view why) {
  return fail(Code::kPolicyViolation, std::string(field) + ": " + std::string(why),
              "a restriction only narrows; make a new policy for more");
}

// Enums whose narrower values come first.
template <typename E>
Result<void> lower(E& value, const std::optional<E>& wanted, std::string_view field) {
  if (!wanted) return {};
  if (*wanted > value) {
    return widens(field, in_quotes(enum_name(*wanted)) + " is more than the parent's " +
                             in_quotes(enum_name(value)));
  }
  value = *wanted;
  return {};
}

template <typename T>
Result<void> lower_limit(std::optional<T>& value, const std::optional<T>& wanted,
                         std::string_view field) {
  if (!wanted) return {};
  if (value && *wanted > *value) {
    return widens(field,
                  std::to_string(*wanted) + " is more than the parent's " + std::to_string(*value));
  }
  value = wanted;
  return {};
}

Result<void> lower_limits(Limits& limits, const Limits& wanted) {
  TRY(lower_limit(limits.memory_mb, wanted.memory_mb, "limits.memory_mb"));
  TRY(lower_limit(limits.cpus, wanted.cpus, "limits.cpus"));
  TRY(lower_limit(limits.cpu_seconds, wanted.cpu_seconds, "limits.cpu_seconds"));
  TRY(lower_limit(limits.pids, wanted.pids, "limits.pids"));
  TRY(lower_limit(limits.disk_mb, wanted.disk_mb, "limits.disk_mb"));
  TRY(lower_limit(limits.output_mb, wanted.output_mb, "limits.output_mb"));
  TRY(lower_limit(limits.ttl_seconds, wanted.ttl_seconds, "limits.ttl_seconds"));
  return lower_limit(limits.idle_seconds, wanted.idle_seconds, "limits.idle_seconds");
}

// What a parent of this mode lets a filtered child name.
Result<void> check_rule(const PolicyFields& parent, const HostRule& rule,
                        const std::string& field) {
  const auto& own = parent.allow_hosts;
  bool fine = false;
  switch (parent.network) {
    case NetworkMode::kNone:
      break;
    case NetworkMode::kFiltered:
      fine = std::any_of(own.begin(), own.end(), [&](const auto& r) { return r.covers(rule); });
      break;
    case NetworkMode::kNat:
      fine = !rule.allows_private() && !rule.is_host_loopback();
      break;
    case NetworkMode::kHost:
      fine = true;
      break;
  }
  if (fine) return {};
  return widens(field, in_quotes(rule.to_string()) + " is not covered by the parent's network");
}

Result<void> restrict_network(PolicyFields& f, const Restriction& r) {
  const PolicyFields parent = f;
  TRY(lower(f.network, r.network, "network"));
  if (f.network != NetworkMode::kFiltered) f.allow_hosts.clear();
  if (!r.allow_hosts) return {};
  f.allow_hosts = *r.allow_hosts;
  for (std::size_t i = 0; i < f.allow_hosts.size(); ++i) {
    TRY(check_rule(parent, f.allow_hosts[i], field_path("allow_hosts", i)));
  }
  return {};
}

bool narrows(const Mount& child, const Mount& parent) {
  return child.source == parent.source && child.access <= parent.access;
}

bool narrows(const VolumeMount& child, const VolumeMount& parent) {
  if (child.access > parent.access || child.volume.index() != parent.volume.index()) return false;
  if (const auto* memory = std::get_if<MemoryVolume>(&child.volume)) {
    return memory->size_mb <= std::get<MemoryVolume>(parent.volume).size_mb;
  }
  const auto& disk = std::get<DiskVolume>(child.volume);
  const auto& from = std::get<DiskVolume>(parent.volume);
  return disk.host_dir == from.host_dir && disk.allowed_root == from.allowed_root &&
         disk.create <= from.create;
}

bool narrows(const SecretFile& child, const SecretFile& parent) {
  return child.source == parent.source;
}

template <typename T>
Result<void> take_subset(std::vector<T>& list, const std::optional<std::vector<T>>& wanted,
                         std::string_view field) {
  if (!wanted) return {};
  for (std::size_t i = 0; i < wanted->size(); ++i) {
    const T& child = (*wanted)[i];
    const bool fine = std::any_of(list.begin(), list.end(), [&](const T& parent) {
      return child.target == parent.target && narrows(child, parent);
    });
    if (!fine) {
      return widens(
          field_path(field, i),
          in_quotes(child.target) + " is not the parent's, or has more than it has there");
    }
  }
  list = *wanted;
  return {};
}

std::vector<std::string> targets_of(const PolicyFields& f) {
  std::vector<std::string> out;
  for (const auto& mount : f.mounts) out.push_back(mount.target);
  for (const auto& volume : f.volumes) out.push_back(volume.target);
  for (const auto& secret : f.secret_files) out.push_back(secret.target);
  return out;
}

// A mount can stand for less access than what it covers: a read bind inside a writable project. So
// what covers a part of something that stays must stay as well.
Result<void> check_nothing_uncovered(const PolicyFields& parent, const PolicyFields& child,
                                     const std::optional<std::string>& project_dir) {
  const std::vector<std::string> kept = targets_of(child);
  std::vector<std::string> outer = kept;
  if (project_dir && !project_dir->empty()) {
    outer.push_back(TRY(normal_path(*project_dir, "project_dir")));
  }
  for (const std::string& target : targets_of(parent)) {
    if (std::find(kept.begin(), kept.end(), target) != kept.end()) continue;
    if (!project_dir) {
      return widens("mounts", in_quotes(target) +
                                  " cannot be left out while Restriction::project_dir "
                                  "is not set: it may cover a part of the project");
    }
    for (const std::string& around : outer) {
      if (!is_at_or_below(target, around)) continue;
      return widens("mounts", in_quotes(target) + " cannot be left out: it covers a part of " +
                                  in_quotes(around) + ", which stays");
    }
  }
  return {};
}

Result<void> restrict_env(std::map<std::string, std::string>& env, const Restriction& r) {
  if (!r.env) return {};
  std::map<std::string, std::string> kept;
  for (const std::string& name : *r.env) {
    const auto it = env.find(name);
    if (it == env.end()) return widens(field_path("env", name), "is not set in the parent");
    kept.insert(*it);
  }
  env = std::move(kept);
  return {};
}

Result<void> restrict_dangers(Dangers& dangers, const Restriction& r) {
  if (!r.allowed) return {};
  for (const auto& row : enum_names<Danger>) {
    if ((*r.allowed).*row.value && !(dangers.*row.value)) {
      return widens("allow_danger", in_quotes(row.name) + " is not named in the parent");
    }
  }
  dangers = *r.allowed;
  return {};
}

}  // namespace

Result<Policy> Policy::restrict(const Restriction& r) const {
  PolicyFields f = fields_;
  TRY(restrict_network(f, r));
  TRY(take_subset(f.mounts, r.mounts, "mounts"));
  TRY(take_subset(f.volumes, r.volumes, "volumes"));
  TRY(take_subset(f.secret_files, r.secret_files, "secret_files"));
  TRY(check_nothing_uncovered(fields_, f, r.project_dir));
  TRY(restrict_env(f.env, r));
  TRY(lower_limits(f.limits, r.limits));
  TRY(lower(f.project, r.project, "project"));
  TRY(lower(f.limits_mode, r.limits_mode, "limits_mode"));
  TRY(lower(f.enforcement, r.enforcement, "enforcement"));
  if (f.network != NetworkMode::kFiltered) f.enforcement = Enforcement::kRequired;
  TRY(lower(f.scratch, r.scratch, "scratch"));
  TRY(restrict_dangers(f.allowed, r));
  return checked(std::move(f));
}

Result<Policy> Policy::with_allowlist(std::vector<HostRule> rules) const {
  PolicyFields fields = fields_;
  fields.allow_hosts = std::move(rules);
  return checked(std::move(fields));
}

}  // namespace temenos
