#include <gtest/gtest.h>

#include "policy/paths.h"
#include "temenos/allow/autoexec.h"
#include "temenos/allow/cooperative_enforcement.h"
#include "temenos/allow/home_bind.h"
#include "temenos/allow/host_network.h"
#include "temenos/allow/shared_write.h"
#include "temenos/policy_builder.h"

namespace temenos {
namespace {

TEST(Policy, DefaultsAreNarrow) {
  const auto policy = Policy::from_json("{}");
  ASSERT_TRUE(policy) << policy.error().to_string();
  EXPECT_EQ(*policy, *Policy::Builder().build());
  EXPECT_EQ(*policy, *Policy::from_toml(""));
  EXPECT_EQ((*policy)->network, NetworkMode::kFiltered);
  EXPECT_TRUE((*policy)->allow_hosts.empty());
  EXPECT_EQ((*policy)->enforcement, Enforcement::kRequired);
  EXPECT_EQ((*policy)->limits_mode, LimitsMode::kBestEffort);
  EXPECT_EQ((*policy)->project, ProjectAccess::kWrite);
  EXPECT_EQ((*policy)->allowed, Dangers());
}

constexpr std::string_view kFullJson = R"({
  "network": "filtered", "allow_hosts": ["b.com", "A.com:22", "b.com."],
  "mounts": [{"source": "/srv//data/./x/", "access": "write"},
             {"source": "/opt/tool", "target": "/a"}],
  "volumes": [{"target": "/vol/m", "memory": {"size_mb": 64}, "access": "write"},
              {"target": "/vol/d", "disk": {"host_dir": "/srv/v", "create": true, "allowed_root": "/srv"}}],
  "secret_files": [{"source": "/root/.token", "target": "/secrets/token"}],
  "env": {"PATH": "/usr/bin", "_x1": "a=\"b\"\n\\"},
  "limits": {"memory_mb": 64, "cpus": 1.5, "cpu_seconds": 10, "pids": 100, "disk_mb": 5,
             "output_mb": 1, "ttl_seconds": 3600, "idle_seconds": 600},
  "limits_mode": "required", "enforcement": "cooperative", "scratch": "memory", "project": "review",
  "platform": "ptrace", "base": "debian-12", "allow_danger": ["cooperative", "autoexec"]})";

constexpr std::string_view kFullToml = R"(
network = "filtered"
allow_hosts = ["b.com", "a.com:22"]
limits_mode = "required"
enforcement = "cooperative"
scratch = "memory"
project = "review"
platform = "ptrace"
base = "debian-12"
allow_danger = ["autoexec", "cooperative"]
env = { PATH = "/usr/bin", _x1 = "a=\"b\"\n\\" }
[limits]
memory_mb = 64
cpus = 1.5
cpu_seconds = 10
pids = 100
disk_mb = 5
output_mb = 1
ttl_seconds = 3600
idle_seconds = 600
[[mounts]]
source = "/opt/tool"
target = "/a"
[[mounts]]
source = "/srv/data/x"
access = "write"
[[volumes]]
target = "/vol/d"
disk = { host_dir = "/srv/v", create = true, allowed_root = "/srv" }
[[volumes]]
target = "/vol/m"
access = "write"
memory.size_mb = 64
[[secret_files]]
source = "/root/.token"
target = "/secrets/token"
)";

Policy full_policy() {
  return *Policy::Builder()
              .allow_host("b.com")
              .allow_host("a.com:22")
              .write("/srv/data/x")
              .mount({.source = "/opt/tool", .target = "/a"})
              .volume({.target = "/vol/m", .access = Access::kWrite, .volume = MemoryVolume{64}})
              .volume({.target = "/vol/d", .volume = DiskVolume{"/srv/v", true, "/srv"}})
              .secret_file("/root/.token", "/secrets/token")
              .env("PATH", "overwritten")
              .env("PATH", "/usr/bin")
              .env("_x1", "a=\"b\"\n\\")
              .limits({.memory_mb = 64,
                       .cpus = 1.5,
                       .cpu_seconds = 10,
                       .pids = 100,
                       .disk_mb = 5,
                       .output_mb = 1,
                       .ttl_seconds = 3600,
                       .idle_seconds = 600})
              .limits_mode(LimitsMode::kRequired)
              .enforcement_cooperative(allow::CooperativeEnforcement())
              .scratch(Scratch::kMemory)
              .project(ProjectAccess::kReview)
              .platform(Platform::kPtrace)
              .base("debian-12")
              .allow_autoexec(allow::Autoexec())
              .build();
}

TEST(Policy, JsonTomlAndBuilderSayTheSame) {
  const auto json = Policy::from_json(kFullJson);
  ASSERT_TRUE(json) << json.error().to_string();
  const auto toml = Policy::from_toml(kFullToml);
  ASSERT_TRUE(toml) << toml.error().to_string();
  const Policy built = full_policy();
  EXPECT_EQ(*json, built) << json->to_json() << "\n" << built.to_json();
  EXPECT_EQ(*toml, built) << toml->to_json() << "\n" << built.to_json();
  EXPECT_EQ(*Policy::from_json(built.to_json()), built);
  EXPECT_EQ(*Policy::from_toml(built.to_toml()), built);
  EXPECT_EQ(built->mounts[1], (Mount{"/srv/data/x", "/srv/data/x", Access::kWrite}));
  ASSERT_EQ(built->allow_hosts.size(), 2u);
  EXPECT_EQ(built->allow_hosts[0].to_string(), "a.com:22");
}

const struct {
  std::string text, error;
} kRefused[] = {
    {"[]", "policy: expected a table of fields, got a list"},
    {"{", "policy: not valid JSON at line 1 column 2"},
    {R"({"netwrk":"none"})",
     "policy: netwrk: unknown field: the fields here are network, allow_hosts"},
    {R"({"protect_autoexec":false})", "policy: protect_autoexec: unknown field"},
    {R"({"network":"none","network":"host"})", "policy: network: the key occurs twice"},
    {R"({"network":"open"})",
     "policy: network: expected one of none, filtered, nat, host, got \"open\": use one of"},
    {R"({"network":null})", "policy: network: expected a string, got null"},
    {R"({"network":"none","allow_hosts":["a.com"]})",
     "policy: allow_hosts: only the network \"filtered\" has an allowlist, got \"none\""},
    {R"({"allow_hosts":"a.com"})", "policy: allow_hosts: expected a list, got a string"},
    {R"({"allow_hosts":["a.com",1]})", "policy: allow_hosts[1]: expected a string, got a number"},
    {R"({"allow_hosts":["a.com","b c"]})",
     "policy: allow_hosts[1]: \"b c\" is no allowlist entry: it has blanks"},
    {R"({"mounts":[{}]})", "policy: mounts[0].source: missing, expected a string"},
    {R"({"mounts":[{"source":"/a"},{"source":"rel"}]})",
     "policy: mounts[1].source: expected an absolute path, got \"rel\""},
    {R"({"mounts":[{"source":"/a","target":""}]})",
     "policy: mounts[0].target: expected an absolute path, got \"\""},
    {R"({"mounts":[{"source":"/a","target":"/b/../c"}]})",
     "policy: mounts[0].target: expected a path without \"..\", got \"/b/../c\""},
    {R"({"mounts":[{"source":"/a\u0000b"}]})",
     "policy: mounts[0].source: expected a path of UTF-8 text without control bytes"},
    {R"({"mounts":[{"source":"/a\u001b"}]})", "policy: mounts[0].source: expected a path of UTF-8"},
    {R"({"mounts":[{"source":"/)" + std::string(256, 'a') + R"("}]})",
     "policy: mounts[0].source: expected names of at most 255 bytes"},
    {R"({"mounts":[{"source":"/a","access":"rw"}]})",
     "policy: mounts[0].access: expected one of read, write, got \"rw\""},
    {R"({"mounts":[{"source":"/a","ro":true}]})", "policy: mounts[0].ro: unknown field"},
    {R"({"mounts":[{"source":"/a"},{"source":"/b","target":"/a/"}]})",
     "policy: mounts[1].target: \"/a\" is the target of mounts[0].target already"},
    {R"({"mounts":[{"source":"/a","target":"/"}]})",
     "policy: mounts[0].target: expected a place of your own in the box, got \"/\""},
    {R"({"mounts":[{"source":"/proc/1"}]})",
     "policy: mounts[0].source: \"/proc/1\" is the kernel's and is never bound"},
    {R"({"volumes":[{"target":"/v"}]})",
     "policy: volumes[0]: expected either \"disk\" or \"memory\", got neither"},
    {R"({"volumes":[{"target":"/v","disk":{"host_dir":"/a"},"memory":{"size_mb":1}}]})",
     "policy: volumes[0]: expected either \"disk\" or \"memory\", got both"},
    {R"({"volumes":[{"target":"/v","memory":{"size_mb":0}}]})",
     "policy: volumes[0].memory.size_mb: expected a whole number from 1 to"},
    {R"({"volumes":[{"target":"/v","memory":{}}]})",
     "policy: volumes[0].memory.size_mb: missing, expected a whole number"},
    {R"({"volumes":[{"target":"/v","disk":{"host_dir":"/srvx","allowed_root":"/srv"}}]})",
     "policy: volumes[0].disk.host_dir: expected a directory inside allowed_root (\"/srv\"), "
     "got"},
    {R"({"volumes":[{"target":"/v","disk":{"host_dir":"/a","create":1}}]})",
     "policy: volumes[0].disk.create: expected true or false, got a number"},
    {R"({"mounts":[{"source":"/v"}],"volumes":[{"target":"/v","memory":{"size_mb":1}}]})",
     "policy: volumes[0].target: \"/v\" is the target of mounts[0].target already"},
    {R"({"secret_files":[{"source":"/a"}]})", "policy: secret_files[0].target: missing"},
    {R"({"secret_files":[{"source":"/proc/kcore","target":"/s"}]})",
     "policy: secret_files[0].source: \"/proc/kcore\" is the kernel's"},
    {R"({"env":{"A-B":"x"}})", "policy: env: expected names of letters, digits and _"},
    {R"({"env":{"1A":"x"}})", "policy: env: expected names of letters, digits and _"},
    {R"({"env":{"":"x"}})", "policy: env: expected names of letters, digits and _"},
    {R"({"env":{"A":1}})", "policy: env.A: expected a string, got a number"},
    {R"({"env":{"A":"x\u0000"}})", "policy: env.A: expected UTF-8 text without NUL"},
    {R"({"env":{"A":")" + std::string(131072, 'x') + R"("}})",
     "policy: env.A: expected name and value of less than 128 KiB"},
    {R"({"limits":{"memory_mb":63}})",
     "policy: limits.memory_mb: expected a whole number from 64 to"},
    {R"({"limits":{"memory_mb":64.5}})", "policy: limits.memory_mb: expected a whole number, got"},
    {R"({"limits":{"cpus":0}})", "policy: limits.cpus: expected a number from 0.01 to 8192"},
    {R"({"limits":{"cpus":1e999}})",
     "policy: not valid JSON at line 1 column 24 (exponent overflow)"},
    {R"({"limits":{"cpu_seconds":0}})",
     "policy: limits.cpu_seconds: expected a whole number from 1"},
    {R"({"limits":{"pids":-1}})", "policy: limits.pids: expected a whole number from 1"},
    {R"({"limits":{"disk_mb":0}})", "policy: limits.disk_mb: expected a whole number from 1"},
    {R"({"limits":{"output_mb":0}})", "policy: limits.output_mb: expected a whole number from 1"},
    {R"({"limits":{"ttl_seconds":99999999999999}})",
     "policy: limits.ttl_seconds: expected a whole"},
    {R"({"limits":{"idle_seconds":0}})", "policy: limits.idle_seconds: expected a whole"},
    {R"({"limits":{"memory":64}})", "policy: limits.memory: unknown field"},
    {R"({"limits_mode":"hard"})", "policy: limits_mode: expected one of required, best-effort"},
    {R"({"enforcement":"soft"})", "policy: enforcement: expected one of required, cooperative"},
    {R"({"network":"none","enforcement":"cooperative","allow_danger":["cooperative"]})",
     "policy: enforcement: only the network \"filtered\" can be \"cooperative\", got \"none\": set "
     "network to"},
    {R"({"scratch":"tape"})", "policy: scratch: expected one of disk, memory, runsc"},
    {R"({"project":"none"})", "policy: project: expected one of read, review, write"},
    {R"({"platform":"gvisor"})", "policy: platform: expected one of auto, systrap, ptrace, kvm"},
    {R"({"base":"../x"})", "policy: base: expected \"host\" or the name of an image"},
    {R"({"base":""})", "policy: base: expected \"host\" or the name of an image"},
    {R"({"allow_danger":["everything"]})",
     "policy: allow_danger[0]: expected one of host-network, home-bind, shared-write"},
};

TEST(Policy, TextNamesTheFieldAndTheRemedy) {
  for (const auto& row : kRefused) {
    const auto policy = Policy::from_json(row.text);
    ASSERT_FALSE(policy) << row.text.substr(0, 200);
    const std::string error = policy.error().to_string();
    EXPECT_TRUE(error.starts_with(row.error)) << row.text.substr(0, 200) << "\n" << error;
    EXPECT_FALSE(policy.error().hint.empty()) << error;
  }
}

TEST(Policy, TomlErrorsNameTheSameFields) {
  const auto policy = Policy::from_toml("[[mounts]]\nsource = \"/a\"\n[[mounts]]\nsource = 1\n");
  ASSERT_FALSE(policy);
  EXPECT_EQ(policy.error().to_string(),
            "policy: mounts[1].source: expected a string, got a number: give it a string");
}

TEST(Policy, DangersMustBeNamedInText) {
  const struct {
    std::string fields, danger, field;
  } rows[] = {
      {R"("network":"host")", "host-network", "network"},
      {R"("enforcement":"cooperative")", "cooperative", "enforcement"},
      {R"("mounts":[{"source":"/home","target":"/h"}])", "home-bind", "mounts[0].source"},
      {R"("mounts":[{"source":"/","target":"/h"}])", "home-bind", "mounts[0].source"},
      {R"("mounts":[{"source":"/srv","access":"write"}])", "home-bind", "mounts[0].source"},
      {R"("volumes":[{"target":"/v","access":"write","disk":{"host_dir":"/opt"}}])", "home-bind",
       "volumes[0].disk.host_dir"},
  };
  for (const auto& row : rows) {
    const auto refused = Policy::from_json("{" + row.fields + "}");
    ASSERT_FALSE(refused) << row.fields;
    EXPECT_EQ(refused.error().code, Code::kPolicyViolation);
    const std::string error = refused.error().to_string();
    EXPECT_TRUE(error.starts_with("policy: " + row.field + ": ")) << error;
    EXPECT_NE(error.find('"' + row.danger + '"'), std::string::npos) << error;
    const auto named =
        Policy::from_json("{" + row.fields + R"(,"allow_danger":[")" + row.danger + "\"]}");
    EXPECT_TRUE(named) << named.error().to_string();
  }
}

TEST(Policy, TokensNameTheDangersInCode) {
  auto refused = Policy::Builder().network(NetworkMode::kHost).build();
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kPolicyViolation);
  EXPECT_TRUE(Policy::Builder().network_host(allow::HostNetwork()).build());
  EXPECT_FALSE(Policy::Builder().write("/home/").build());
  const auto home = Policy::Builder()
                        .write("/home")
                        .allow_home_bind(allow::HomeBind())
                        .allow_shared_write(allow::SharedWrite())
                        .allow_autoexec(allow::Autoexec())
                        .build();
  ASSERT_TRUE(home) << home.error().to_string();
  EXPECT_EQ((*home)->allowed, (Dangers{.home_bind = true, .shared_write = true, .autoexec = true}));
  EXPECT_EQ(*Policy::from_toml(home->to_toml()), *home);
}

TEST(Policy, SystemDirectoriesAreNeverWritable) {
  for (const char* source : {"/", "/usr", "/etc/ssh", "/boot", "/lib64", "/run/user/0"}) {
    EXPECT_TRUE(check_source(source, Access::kRead, true, "f")) << source;
    const auto refused = check_source(source, Access::kWrite, true, "f");
    ASSERT_FALSE(refused) << source;
    EXPECT_EQ(refused.error().code, Code::kPolicyViolation);
  }
  for (const char* source : {"/proc", "/sys/fs/cgroup", "/dev/mem"}) {
    EXPECT_FALSE(check_source(source, Access::kRead, true, "f")) << source;
  }
  EXPECT_TRUE(check_source("/etcetera/x", Access::kWrite, false, "f"));
}

TEST(Policy, TargetsKeepClearOfTheBox) {
  for (const char* target :
       {"/", "/proc", "/proc/x", "/sys", "/dev", "/dev/null", "/dev/shm", "/usr", "/usr/local/x",
        "/etc/passwd", "/bin", "/lib64/x", "/run", "/run/temenos", "/run/temenos/x", "/tmp", "/var",
        "/var/run/temenos"}) {
    EXPECT_FALSE(check_target(target, "f")) << target;
  }
  for (const char* target : {"/tmp/x", "/run/x", "/dev/shm/x", "/run/temenosx", "/library",
                             "/procx", "/home/u/p", "/var/lib/x", "/work"}) {
    EXPECT_TRUE(check_target(target, "f")) << target;
  }
}

TEST(Policy, BuilderReportsTheFirstBadHost) {
  const auto policy =
      Policy::Builder().allow_host("a.com").allow_host("a b").allow_host("*").build();
  ASSERT_FALSE(policy);
  EXPECT_TRUE(policy.error().to_string().starts_with("allow_hosts: \"a b\" is no allowlist entry"))
      << policy.error().to_string();
}

TEST(Policy, ListsAreBounded) {
  Policy::Builder builder;
  for (int i = 0; i < 257; ++i) builder.read("/data/" + std::to_string(i));
  const auto policy = builder.build();
  ASSERT_FALSE(policy);
  EXPECT_EQ(policy.error().to_string(),
            "mounts: expected at most 256 entries, got \"257\": shorten the list");
}

// What a builder could make larger than a text may be would not come back from its own text.
TEST(Policy, FitsItsOwnText) {
  Policy::Builder builder;
  for (int i = 0; i < 4; ++i) {
    builder.env("A" + std::to_string(i), std::string(100000, '\x01'));
  }
  const auto policy = builder.build();
  ASSERT_FALSE(policy);
  EXPECT_TRUE(policy.error().to_string().starts_with("the policy is longer than 1048576 bytes"))
      << policy.error().to_string();
  const auto large = Policy::Builder().env("A", std::string(100000, '.')).build();
  ASSERT_TRUE(large);
  EXPECT_EQ(*Policy::from_toml(large->to_toml()), *large);
}

TEST(Policy, CpusAreKeptToAThousandth) {
  const auto policy = Policy::Builder().limits({.cpus = 1.0 / 3}).build();
  ASSERT_TRUE(policy);
  EXPECT_EQ((*policy)->limits.cpus, 0.333);
  for (const double bad : {0.0, -1.0, 0.001, 1e9, std::numeric_limits<double>::quiet_NaN()}) {
    EXPECT_FALSE(Policy::Builder().limits({.cpus = bad}).build()) << bad;
  }
}

}  // namespace
}  // namespace temenos
