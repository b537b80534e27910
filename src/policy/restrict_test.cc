#include <gtest/gtest.h>

#include "temenos/allow/autoexec.h"
#include "temenos/allow/cooperative_enforcement.h"
#include "temenos/allow/host_network.h"
#include "temenos/policy_builder.h"

namespace temenos {
namespace {

using Mounts = std::vector<Mount>;
using Volumes = std::vector<VolumeMount>;
using Secrets = std::vector<SecretFile>;
using Names = std::vector<std::string>;
using Rules = std::vector<HostRule>;

HostRule rule(std::string_view text) { return *HostRule::parse(text); }

Policy parent() {
  return *Policy::Builder()
              .allow_host("*.a.com")
              .allow_host("b.com:22")
              .write("/data/w")
              .read("/data/w/locked")
              .read("/data/r")
              .volume({.target = "/vol", .access = Access::kWrite, .volume = MemoryVolume{64}})
              .secret_file("/root/.token", "/secrets/token")
              .env("A", "1")
              .env("B", "2")
              .limits({.memory_mb = 512})
              .enforcement_cooperative(allow::CooperativeEnforcement())
              .scratch(Scratch::kMemory)
              .project(ProjectAccess::kReview)
              .build();
}

TEST(Restrict, NothingAskedChangesNothing) { EXPECT_EQ(*parent().restrict({}), parent()); }

TEST(Restrict, ANetworkThatIsNotFilteredHasNoProxy) {
  Restriction none;
  none.network = NetworkMode::kNone;
  none.allow_hosts.emplace();
  const auto child = parent().restrict(none);
  ASSERT_TRUE(child) << child.error().to_string();
  EXPECT_EQ((*child)->enforcement, Enforcement::kRequired);
}

TEST(Restrict, Narrows) {
  Restriction r;
  r.allow_hosts = Rules{rule("x.a.com"), rule("b.com:22")};
  r.mounts =
      Mounts{Mount{"/data/w", "/data/w", Access::kRead}, Mount{"/data/w/locked", "/data/w/locked"}};
  r.volumes = Volumes{VolumeMount{"/vol", Access::kRead, MemoryVolume{32}}};
  r.env = Names{"B"};
  r.limits = {.memory_mb = 256, .pids = 10};
  r.limits_mode = LimitsMode::kRequired;
  r.enforcement = Enforcement::kRequired;
  r.project = ProjectAccess::kRead;
  r.allowed = Dangers{};
  r.project_dir = "/home/u/p";
  const auto child = parent().restrict(r);
  ASSERT_TRUE(child) << child.error().to_string();
  const PolicyFields& f = child->fields();
  EXPECT_EQ(f.allow_hosts.size(), 2u);
  EXPECT_EQ(f.mounts.size(), 2u);
  EXPECT_EQ(f.mounts[0].access, Access::kRead);
  EXPECT_EQ(std::get<MemoryVolume>(f.volumes[0].volume).size_mb, 32);
  EXPECT_EQ(f.env, (std::map<std::string, std::string>{{"B", "2"}}));
  EXPECT_EQ(f.limits, (Limits{.memory_mb = 256, .pids = 10}));
  EXPECT_EQ(f.limits_mode, LimitsMode::kRequired);
  EXPECT_EQ(f.enforcement, Enforcement::kRequired);
  EXPECT_EQ(f.project, ProjectAccess::kRead);
  EXPECT_EQ(f.allowed, Dangers{});
  EXPECT_EQ(f.secret_files, parent()->secret_files);
}

template <typename F>
void expect_violation(const Policy& policy, std::string_view field, F change) {
  Restriction r;
  r.project_dir = "";
  change(r);
  const auto child = policy.restrict(r);
  ASSERT_FALSE(child) << field;
  EXPECT_EQ(child.error().code, Code::kPolicyViolation) << child.error().to_string();
  EXPECT_TRUE(child.error().to_string().starts_with(std::string(field) + ": "))
      << child.error().to_string();
  EXPECT_FALSE(child.error().hint.empty());
}

TEST(Restrict, RefusesEveryWideningByName) {
  const Policy p = parent();
  expect_violation(p, "network", [](auto& r) { r.network = NetworkMode::kNat; });
  expect_violation(p, "allow_hosts[1]",
                   [](auto& r) { r.allow_hosts = Rules{rule("x.a.com"), rule("a.com")}; });
  expect_violation(p, "allow_hosts[0]", [](auto& r) { r.allow_hosts = Rules{rule("b.com:*")}; });
  expect_violation(p, "mounts[0]",
                   [](auto& r) { r.mounts = Mounts{Mount{"/data/r", "/data/r", Access::kWrite}}; });
  expect_violation(p, "mounts[0]", [](auto& r) { r.mounts = Mounts{Mount{"/other", "/data/r"}}; });
  expect_violation(p, "mounts[0]",
                   [](auto& r) { r.mounts = Mounts{Mount{"/data/r", "/elsewhere"}}; });
  expect_violation(p, "volumes[0]", [](auto& r) {
    r.volumes = Volumes{VolumeMount{"/vol", Access::kRead, MemoryVolume{65}}};
  });
  expect_violation(p, "volumes[0]", [](auto& r) {
    r.volumes = Volumes{VolumeMount{"/vol", Access::kRead, DiskVolume{"/x"}}};
  });
  expect_violation(p, "secret_files[0]", [](auto& r) {
    r.secret_files = Secrets{SecretFile{"/root/.other", "/secrets/token"}};
  });
  expect_violation(p, "env.C", [](auto& r) { r.env = Names{"A", "C"}; });
  expect_violation(p, "limits.memory_mb", [](auto& r) { r.limits.memory_mb = 513; });
  expect_violation(p, "project", [](auto& r) { r.project = ProjectAccess::kWrite; });
  expect_violation(p, "scratch", [](auto& r) { r.scratch = Scratch::kDisk; });
  expect_violation(p, "allow_danger", [](auto& r) { r.allowed = Dangers{.autoexec = true}; });
  // The token goes, what needed it stays.
  expect_violation(p, "enforcement", [](auto& r) { r.allowed = Dangers{}; });

  const Policy strict =
      *Policy::Builder().limits_mode(LimitsMode::kRequired).network(NetworkMode::kNone).build();
  expect_violation(strict, "limits_mode", [](auto& r) { r.limits_mode = LimitsMode::kBestEffort; });
  expect_violation(strict, "enforcement",
                   [](auto& r) { r.enforcement = Enforcement::kCooperative; });
  expect_violation(strict, "network", [](auto& r) { r.network = NetworkMode::kFiltered; });
  expect_violation(strict, "allow_hosts[0]", [](auto& r) { r.allow_hosts = Rules{rule("a.com")}; });
}

TEST(Restrict, ScratchGoesFromDiskToRunscToMemory) {
  const auto with = [](Scratch scratch) { return *Policy::Builder().scratch(scratch).build(); };
  // runsc keeps as little as memory does, and has no size.
  const std::vector<Scratch> narrowest_first{Scratch::kMemory, Scratch::kRunsc, Scratch::kDisk};
  for (std::size_t parent = 0; parent < narrowest_first.size(); ++parent) {
    for (std::size_t child = 0; child < narrowest_first.size(); ++child) {
      const auto ask = [&](auto& r) { r.scratch = narrowest_first[child]; };
      if (child > parent) {
        expect_violation(with(narrowest_first[parent]), "scratch", ask);
        continue;
      }
      Restriction r;
      ask(r);
      EXPECT_EQ(*with(narrowest_first[parent]).restrict(r), with(narrowest_first[child]));
    }
  }
}

TEST(Restrict, EveryLimitIsCompared) {
  const Limits one{.memory_mb = 100,
                   .cpus = 1,
                   .cpu_seconds = 100,
                   .pids = 100,
                   .disk_mb = 100,
                   .output_mb = 100,
                   .ttl_seconds = 100,
                   .idle_seconds = 100};
  const Policy p = *Policy::Builder().limits(one).build();
  expect_violation(p, "limits.memory_mb", [](auto& r) { r.limits.memory_mb = 101; });
  expect_violation(p, "limits.cpus", [](auto& r) { r.limits.cpus = 1.0001; });
  expect_violation(p, "limits.cpu_seconds", [](auto& r) { r.limits.cpu_seconds = 101; });
  expect_violation(p, "limits.pids", [](auto& r) { r.limits.pids = 101; });
  expect_violation(p, "limits.disk_mb", [](auto& r) { r.limits.disk_mb = 101; });
  expect_violation(p, "limits.output_mb", [](auto& r) { r.limits.output_mb = 101; });
  expect_violation(p, "limits.ttl_seconds", [](auto& r) { r.limits.ttl_seconds = 101; });
  expect_violation(p, "limits.idle_seconds", [](auto& r) { r.limits.idle_seconds = 101; });
  EXPECT_EQ(*p.restrict({.limits = one}), p);
}

TEST(Restrict, LeavingOutAMountNeverUncoversMore) {
  const Policy p = parent();
  // /data/w/locked is a read bind inside the writable /data/w.
  expect_violation(p, "mounts",
                   [](auto& r) { r.mounts = Mounts{Mount{"/data/w", "/data/w", Access::kWrite}}; });
  // A read bind inside a project that may be writable.
  expect_violation(p, "mounts", [](auto& r) {
    r.mounts = Mounts{};
    r.project_dir = "/data";
  });
  expect_violation(p, "mounts", [](auto& r) {
    r.mounts = Mounts{};
    r.project_dir = std::nullopt;
  });
  expect_violation(p, "mounts", [](auto& r) {
    r.secret_files = Secrets{};
    r.project_dir = "/secrets/";
  });
  EXPECT_TRUE(p.restrict({.mounts = std::vector<Mount>{}, .project_dir = "/home/u/p"}));
}

TEST(Restrict, NetworkModesDown) {
  const Policy host = *Policy::Builder().network_host(allow::HostNetwork()).build();
  const Policy nat = *host.restrict({.network = NetworkMode::kNat});
  Restriction private_host{.network = NetworkMode::kFiltered};
  private_host.allow_hosts = Rules{rule("private:10.0.0.1")};
  EXPECT_TRUE(host.restrict(private_host));
  const auto refused = nat.restrict(private_host);  // nat reaches public addresses only
  ASSERT_FALSE(refused);
  EXPECT_TRUE(refused.error().to_string().starts_with("allow_hosts[0]: "));
  private_host.allow_hosts = Rules{rule("127.0.0.1:80")};
  EXPECT_FALSE(nat.restrict(private_host));
  private_host.allow_hosts = Rules{rule("a.com:*")};
  EXPECT_TRUE(nat.restrict(private_host));
  const auto none = parent().restrict({.network = NetworkMode::kNone});
  ASSERT_TRUE(none) << none.error().to_string();
  EXPECT_TRUE((*none)->allow_hosts.empty());
}

TEST(Restrict, AnotherAllowlistChangesNothingElse) {
  const auto wider = parent().with_allowlist({rule("z.com"), rule("a.com:1"), rule("z.com")});
  ASSERT_TRUE(wider) << wider.error().to_string();
  PolicyFields same = parent().fields();
  same.allow_hosts = {rule("a.com:1"), rule("z.com")};
  EXPECT_EQ(wider->fields(), same);
  EXPECT_TRUE(parent().with_allowlist({})->fields().allow_hosts.empty());
  const auto none = Policy::Builder().network(NetworkMode::kNone).build();
  EXPECT_FALSE(none->with_allowlist({rule("a.com")}));
  Rules many;
  for (int i = 0; i < 4097; ++i) many.push_back(rule("h" + std::to_string(i) + ".com"));
  EXPECT_FALSE(parent().with_allowlist(many));
}

}  // namespace
}  // namespace temenos
