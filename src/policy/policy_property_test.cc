// Random policies: texts give them back, and no restriction of them is ever wider. `wider` is
// judged here by what a box could do (reach this host and port, see that path of the host), not by
// the rules that restrict.cc compares.
#include <gtest/gtest.h>

#include <random>

#include "temenos/policy.h"

namespace temenos {
namespace {

using Random = std::mt19937;

template <typename T>
T pick(Random& random, std::initializer_list<T> from) {
  return *(from.begin() + random() % from.size());
}
bool chance(Random& random, unsigned percent) { return random() % 100 < percent; }

const std::vector<std::string> kRules = {"a.com",
                                         "a.com:443",
                                         "a.com:*",
                                         "*.a.com",
                                         "x.a.com",
                                         "*.x.a.com:22",
                                         "x.a.com:22",
                                         "1.2.3.4",
                                         "1.2.0.0/16",
                                         "1.2.0.0/16:*",
                                         "private:10.0.0.0/8",
                                         "private:10.1.1.1",
                                         "private:a.com",
                                         "127.0.0.1:80",
                                         "[2001:db8::1]",
                                         "2001:db8::/32",
                                         "@npm"};
// Nested and side by side, so that covering happens.
const std::vector<std::string> kPlaces = {"/m", "/m/a", "/m/a/b", "/m/b",
                                          "/n", "/n/a", "/p",     "/p/a"};
const std::vector<std::string> kSources = {"/src", "/src/x", "/m", "/m/a", "/p/a"};

std::optional<std::int64_t> random_limit(Random& random) {
  if (chance(random, 50)) return std::nullopt;
  return pick<std::int64_t>(random, {64, 100, 1000});
}

Limits random_limits(Random& random) {
  Limits out{.memory_mb = random_limit(random),
             .cpu_seconds = random_limit(random),
             .pids = random_limit(random),
             .disk_mb = random_limit(random),
             .output_mb = random_limit(random),
             .ttl_seconds = random_limit(random),
             .idle_seconds = random_limit(random)};
  if (chance(random, 50)) out.cpus = static_cast<double>(10 + random() % 40000) / 1000;
  return out;
}

Dangers random_dangers(Random& random) {
  return {.host_network = chance(random, 60),
          .home_bind = true,
          .shared_write = chance(random, 50),
          .cooperative = chance(random, 60),
          .autoexec = chance(random, 50)};
}

std::string json_list(const std::vector<std::string>& items) {
  std::string out = "[";
  for (const auto& item : items) out += (out.size() > 1 ? "," : "") + item;
  return out + "]";
}

// As text, the way everything untrusted comes; the extra fields are set through it.
std::optional<Policy> random_policy(Random& random) {
  std::vector<std::string> hosts, mounts, volumes, secrets;
  const std::string network =
      pick<std::string>(random, {"none", "filtered", "filtered", "nat", "host"});
  for (auto n = random() % 5; network == "filtered" && n > 0; --n) {
    hosts.push_back('"' + kRules[random() % kRules.size()] + '"');
  }
  for (const std::string& place : kPlaces) {
    const std::string target = R"("target":")" + place + '"';
    const std::string access = chance(random, 50) ? R"(,"access":"write")" : R"(,"access":"read")";
    const std::string source = kSources[random() % kSources.size()];
    switch (random() % 8) {
      case 0:
      case 1:
        mounts.push_back("{" + target + access + R"(,"source":")" + source + "\"}");
        break;
      case 2:
        volumes.push_back("{" + target + access + R"(,"disk":{"host_dir":")" + source +
                          R"(","create":true}})");
        break;
      case 3:
        volumes.push_back("{" + target + access + R"(,"memory":{"size_mb":64}})");
        break;
      case 4:
        secrets.push_back("{" + target + R"(,"source":")" + source + "\"}");
        break;
      default:
        break;
    }
  }
  std::string text =
      R"({"network":")" + network + R"(","allow_hosts":)" + json_list(hosts) + R"(,"mounts":)" +
      json_list(mounts) + R"(,"volumes":)" + json_list(volumes) + R"(,"secret_files":)" +
      json_list(secrets) + R"(,"env":{"A":"\"\\\u0001é","B":"......"})" + R"(,"project":")" +
      pick<std::string>(random, {"read", "review", "write"}) + R"(","scratch":")" +
      pick<std::string>(random, {"disk", "memory", "runsc"}) + R"(","enforcement":")" +
      (network == "filtered" ? pick<std::string>(random, {"required", "cooperative"})
                             : "required") +
      R"(","limits_mode":")" + pick<std::string>(random, {"required", "best-effort"}) +
      R"(","allow_danger":)" + json_list({"\"home-bind\"", "\"host-network\"", "\"cooperative\""}) +
      "}";
  auto policy = Policy::from_json(text);
  if (!policy) {
    ADD_FAILURE() << policy.error().to_string() << "\n" << text;
    return std::nullopt;
  }
  auto limited = policy->restrict({.limits = random_limits(random)});
  if (!limited) {
    ADD_FAILURE() << limited.error().to_string();
    return std::nullopt;
  }
  return *limited;
}

template <typename T>
std::optional<std::vector<T>> random_part(Random& random, std::vector<T> list) {
  if (chance(random, 30)) return std::nullopt;
  std::erase_if(list, [&](const T&) { return chance(random, 20); });
  if constexpr (!std::is_same_v<T, SecretFile>) {
    for (T& item : list) {
      if (chance(random, 40)) item.access = chance(random, 90) ? Access::kRead : Access::kWrite;
    }
  }
  if (!list.empty() && chance(random, 5)) list.back().target = "/new";
  return list;
}

Restriction random_restriction(Random& random, const PolicyFields& f) {
  Restriction r;
  if (chance(random, 40)) {
    r.network = pick(random, {NetworkMode::kNone, NetworkMode::kFiltered, NetworkMode::kFiltered,
                              NetworkMode::kNat, NetworkMode::kHost});
  }
  if (chance(random, 60)) {
    r.allow_hosts.emplace();
    for (auto n = random() % 3; n > 0; --n) {
      r.allow_hosts->push_back(*HostRule::parse(kRules[random() % kRules.size()]));
    }
  }
  // One refusal hides what else would be accepted: half of them ask for the network alone.
  if (chance(random, 50)) return r;
  r.mounts = random_part(random, f.mounts);
  r.volumes = random_part(random, f.volumes);
  r.secret_files = random_part(random, f.secret_files);
  if (chance(random, 30)) r.limits = random_limits(random);
  if (chance(random, 30))
    r.project = pick(random, {ProjectAccess::kRead, ProjectAccess::kReview, ProjectAccess::kWrite});
  if (chance(random, 20))
    r.scratch = pick(random, {Scratch::kDisk, Scratch::kMemory, Scratch::kRunsc});
  if (chance(random, 20))
    r.enforcement = pick(random, {Enforcement::kRequired, Enforcement::kCooperative});
  if (chance(random, 20))
    r.limits_mode = pick(random, {LimitsMode::kRequired, LimitsMode::kBestEffort});
  if (chance(random, 10)) r.allowed = random_dangers(random);
  if (chance(random, 20)) r.env = std::vector<std::string>{"A"};
  if (chance(random, 90)) r.project_dir = pick<std::string>(random, {"", "/p", "/m/a"});
  return r;
}

struct Destination {
  std::string name;  // empty: by address
  std::string address;
  int port;
  bool checked;  // TLS or HTTP whose name matches, as web ports ask for
};

bool rule_allows(const std::string& rule, const Destination& to) {
  std::string host = rule, port = "web";
  if (host.starts_with("private:"))
    host = host.substr(8);
  else if (to.address.starts_with("10.") || to.address == "127.0.0.1") {
    if (rule != "127.0.0.1:80") return false;
  }
  const bool v6 = host.find("::") != host.npos;
  const auto colon = host.rfind(':');
  if (!v6 && colon != host.npos) {
    port = host.substr(colon + 1);
    host = host.substr(0, colon);
  }
  if (port == "web" ? !(to.checked && (to.port == 80 || to.port == 443))
                    : port != "*" && port != std::to_string(to.port)) {
    return false;
  }
  if (host.starts_with("*.")) return to.name.ends_with(host.substr(1));
  if (host == "1.2.0.0/16") return to.name.empty() && to.address.starts_with("1.2.");
  if (host == "10.0.0.0/8") return to.name.empty() && to.address.starts_with("10.");
  if (host == "2001:db8::/32" || host == "[2001:db8::1]") {
    return to.name.empty() && to.address == "2001:db8::1";
  }
  return to.name.empty() ? host == to.address : host == to.name;
}

bool reaches(const PolicyFields& f, const Destination& to) {
  switch (f.network) {
    case NetworkMode::kNone:
      return false;
    case NetworkMode::kHost:
      return true;
    case NetworkMode::kNat:
      return !to.address.starts_with("10.") && to.address != "127.0.0.1";
    case NetworkMode::kFiltered:
      break;
  }
  for (const HostRule& rule : f.allow_hosts) {
    if (rule_allows(rule.to_string(), to)) return true;
  }
  return false;
}

struct Seen {
  std::string what;  // the host path that shows at a place, or "" for nothing of the host
  bool write = false;
};

// What a box sees at `path`: the innermost thing placed at or above it.
Seen seen_at(const PolicyFields& f, const std::string& project_dir, const std::string& path) {
  Seen out;
  std::size_t best = 0;
  const auto place = [&](const std::string& target, const std::string& source, bool write) {
    const bool inside = path == target || path.starts_with(target + "/");
    if (!inside || target.size() < best) return;
    best = target.size();
    out = {source.empty() ? "" : source + path.substr(target.size()), write};
  };
  if (!project_dir.empty()) place(project_dir, project_dir, f.project == ProjectAccess::kWrite);
  for (const auto& m : f.mounts) place(m.target, m.source, m.access == Access::kWrite);
  for (const auto& s : f.secret_files) place(s.target, s.source, false);
  for (const auto& v : f.volumes) {
    const auto* disk = std::get_if<DiskVolume>(&v.volume);
    place(v.target, disk ? disk->host_dir : "", v.access == Access::kWrite && disk);
  }
  return out;
}

template <typename T>
bool lower(const std::optional<T>& child, const std::optional<T>& parent) {
  return !parent || (child && *child <= *parent);
}

std::string wider(const PolicyFields& child, const PolicyFields& parent,
                  const std::optional<std::string>& project_dir) {
  for (const char* name : {"", "a.com", "x.a.com", "y.x.a.com", "b.com", "@npm"}) {
    for (const char* address :
         {"1.2.3.4", "1.2.9.9", "10.1.1.1", "127.0.0.1", "2001:db8::1", "8.8.8.8"}) {
      for (const int port : {22, 80, 443}) {
        for (const bool checked : {true, false}) {
          const Destination to{name, address, port, checked};
          if (reaches(child, to) && !reaches(parent, to)) return to.name + " " + to.address;
        }
      }
    }
  }
  for (const std::string& dir : {std::string(), std::string("/p"), std::string("/m/a")}) {
    if (project_dir && *project_dir != dir) continue;
    for (const std::string& place : kPlaces) {
      for (const std::string& path : {place, place + "/deep"}) {
        const Seen now = seen_at(child, dir, path), before = seen_at(parent, dir, path);
        if (now.what.empty()) continue;
        if (now.what != before.what || now.write > before.write) return "path " + path;
      }
    }
  }
  const Limits &c = child.limits, &p = parent.limits;
  if (!lower(c.memory_mb, p.memory_mb) || !lower(c.cpus, p.cpus) ||
      !lower(c.cpu_seconds, p.cpu_seconds) || !lower(c.pids, p.pids) ||
      !lower(c.disk_mb, p.disk_mb) || !lower(c.output_mb, p.output_mb) ||
      !lower(c.ttl_seconds, p.ttl_seconds) || !lower(c.idle_seconds, p.idle_seconds)) {
    return "limits";
  }
  if (child.limits_mode == LimitsMode::kBestEffort && parent.limits_mode == LimitsMode::kRequired) {
    return "limits_mode";
  }
  if (child.enforcement == Enforcement::kCooperative &&
      parent.enforcement == Enforcement::kRequired) {
    return "enforcement";
  }
  if (child.project > parent.project) return "project";
  if (child.scratch > parent.scratch) return "scratch";
  for (const auto& [name, value] : child.env) {
    if (!parent.env.contains(name) || parent.env.at(name) != value) return "env";
  }
  const Dangers &d = child.allowed, &e = parent.allowed;
  if (d.host_network > e.host_network || d.home_bind > e.home_bind || d.autoexec > e.autoexec ||
      d.shared_write > e.shared_write || d.cooperative > e.cooperative) {
    return "allowed";
  }
  return child.base == parent.base && child.platform == parent.platform ? "" : "base or platform";
}

TEST(PolicyProperty, TextsGiveThePolicyBack) {
  Random random(1);
  for (int i = 0; i < 500; ++i) {
    const auto policy = random_policy(random);
    ASSERT_TRUE(policy);
    const auto json = Policy::from_json(policy->to_json());
    ASSERT_TRUE(json) << json.error().to_string() << "\n" << policy->to_json();
    ASSERT_EQ(*json, *policy) << policy->to_json();
    const auto toml = Policy::from_toml(policy->to_toml());
    ASSERT_TRUE(toml) << toml.error().to_string() << "\n" << policy->to_toml();
    ASSERT_EQ(*toml, *policy) << policy->to_toml();
  }
}

TEST(PolicyProperty, NoRestrictionIsWider) {
  Random random(2);
  int accepted = 0, refused = 0;
  for (int i = 0; i < 1500; ++i) {
    const auto policy = random_policy(random);
    ASSERT_TRUE(policy);
    for (int j = 0; j < 5; ++j) {
      const Restriction r = random_restriction(random, policy->fields());
      const auto child = policy->restrict(r);
      if (!child) {
        ++refused;
        continue;
      }
      ++accepted;
      ASSERT_EQ(wider(child->fields(), policy->fields(), r.project_dir), "")
          << policy->to_toml() << "\n---\n"
          << child->to_toml();
    }
  }
  // Both outcomes must be common, or the property says little.
  EXPECT_GT(accepted, 500);
  EXPECT_GT(refused, 500);
}

}  // namespace
}  // namespace temenos
