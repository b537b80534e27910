// What holds for every policy that a text gave, whichever notation it was in.
#pragma once

#include <cstdlib>

#include "temenos/policy.h"

namespace temenos {

inline void require(bool holds) {
  if (!holds) std::abort();
}

inline void require_normal(const std::string& path) {
  require(!path.empty() && path.size() <= 4095 && path[0] == '/');
  const std::string closed = path + "/";
  for (const char* odd : {"//", "/./", "/../"}) {
    require(path == "/" || closed.find(odd) == closed.npos);
  }
}

inline void require_sound(const Result<Policy>& policy) {
  if (!policy) {
    require(!policy.error().what.empty() && !policy.error().hint.empty());
    // Errors quote the text, but do not carry it away.
    require(policy.error().to_string().size() < 8192);
    return;
  }
  const PolicyFields& f = policy->fields();
  require(f.network != NetworkMode::kHost || f.allowed.host_network);
  require(f.enforcement != Enforcement::kCooperative ||
          (f.allowed.cooperative && f.network == NetworkMode::kFiltered));
  for (const Mount& mount : f.mounts) {
    require_normal(mount.source);
    require_normal(mount.target);
    require(mount.target != "/" && !mount.target.starts_with("/etc/"));
  }
  for (const VolumeMount& volume : f.volumes) require_normal(volume.target);
  for (const SecretFile& secret : f.secret_files) require_normal(secret.target);
  const auto json = Policy::from_json(policy->to_json());
  require(json && *json == *policy);
  const auto toml = Policy::from_toml(policy->to_toml());
  require(toml && *toml == *policy);
  const auto same = policy->restrict({});
  require(same && *same == *policy);
}

}  // namespace temenos
