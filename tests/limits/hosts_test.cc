// Hosts that keep fewer limits, or none: what is refused, what is told, and where; nothing hangs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <ostream>
#include <string>

#include "cgroup/make.h"
#include "codec/json.h"
#include "tests/limits/limits_test.h"

namespace temenos::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// What is done to the host, in a mount namespace of its own, before "$@" runs.
struct Host {
  const char* name;
  const char* script;
};
void PrintTo(const Host& host, std::ostream* out) { *out << host.name; }
constexpr Host kAsItIs{"AsItIs", ""};
// Each of its mounts by itself: the older hierarchies have one each.
constexpr Host kReadOnly{
    "ReadOnly",
    "for m in $(awk '$5 ~ \"^/sys/fs/cgroup\" {print $5}' "
    "/proc/self/mountinfo); do mount -o remount,bind,ro $m || exit 99; done; "};
constexpr Host kNoCgroupfs{"NoCgroupfs", "mount -t tmpfs none /sys/fs/cgroup || exit 99; "};

class HostsTest : public LimitsTest, public ::testing::WithParamInterface<Host> {
 protected:
  void SetUp() override {
    LimitsTest::SetUp();
    if (*GetParam().script != '\0' && geteuid() != 0) {
      GTEST_SKIP() << "only root can change what it sees of the host";
    }
    cache_ = host_.dir("cache");
    warm_ = host_.dir("warm");
  }
  CliResult on_host(std::vector<std::string> argv, bool cold = true) {
    std::vector<std::string> words{"/bin/sh", "-c"};
    words.push_back(std::string(GetParam().script) + "exec \"$@\"");
    words.emplace_back("sh");
    words.insert(words.end(), argv.begin(), argv.end());
    if (*GetParam().script != '\0') {
      words.insert(words.begin(), {"/usr/bin/unshare", "--mount", "--propagation", "private"});
    }
    // What an earlier look has found is of another host.
    Program program(host_, std::move(words), {{"XDG_CACHE_HOME", cold ? cache_ : warm_}});
    return program.finish(static_cast<int>(patience(90).count()));
  }
  // temenos WORDS... on it.
  CliResult temenos(std::vector<std::string> words, bool cold = true) {
    words.insert(words.begin(), temenos_program());
    return on_host(std::move(words), cold);
  }
  // Of `doctor --json` there.
  boost::json::object limits() {
    const auto result = temenos({"doctor", "--json"});
    EXPECT_EQ(result.status, 0) << result.err;
    const auto document = parse_json(result.out, {});
    EXPECT_TRUE(document) << result.out;
    return document ? document->at("limits").as_object() : boost::json::object{};
  }
  std::string cache_;
  std::string warm_;  // of the host as it is
};
INSTANTIATE_TEST_SUITE_P(Each, HostsTest, ::testing::Values(kAsItIs, kReadOnly, kNoCgroupfs),
                         [](const auto& info) { return info.param.name; });

// The three say the same: doctor, a box that requires limits, and one that does not.
TEST_P(HostsTest, WhatIsLackingIsToldAndRefusedWhereItIsRequired) {
  const auto found = limits();
  const bool memory = found.at("memory").as_bool();
  const bool cpu = found.at("cpu").as_bool();
  const bool pids = found.at("pids").as_bool();
  const std::string driver(found.at("driver").as_string());
  if (*GetParam().script != '\0') {
    EXPECT_EQ(driver, "none");
    EXPECT_FALSE(memory || cpu);
  }
  for (const auto& trial : found.at("tried").as_array()) {
    const auto& tried = trial.as_object();
    if (tried.at("memory").as_bool() && tried.at("cpu").as_bool()) continue;
    EXPECT_FALSE(tried.at("why").as_string().empty()) << tried.at("name").as_string();
    EXPECT_FALSE(tried.at("fix").as_string().empty()) << tried.at("name").as_string();
  }
  const auto required =
      temenos({"run", "--no-net", "--limits", "required", "--memory", "256", "--cpus", "1", "--cpu",
               "100", "--pids", "100", "--", "echo", "ran"});
  const auto effort = temenos({"run", "--no-net", "--memory", "256", "--", "echo", "ran"});
  EXPECT_EQ(effort.status, 0) << effort.err;
  EXPECT_EQ(effort.out, "ran\n");
  if (memory && cpu && pids) {
    EXPECT_EQ(required.out, "ran\n") << required.err;
    EXPECT_EQ(effort.limits_warning, "");
    return;
  }
  EXPECT_EQ(required.status, 125);
  EXPECT_EQ(required.out, "");
  EXPECT_THAT(required.err, HasSubstr("limits are required"));
  EXPECT_THAT(required.err, HasSubstr(memory ? "CPU" : "memory"));
  EXPECT_EQ(required.err.find('\n'), required.err.size() - 1) << "not one line: " << required.err;
  if (!memory) {
    const auto& warning = effort.limits_warning + effort.err;
    EXPECT_THAT(warning, HasSubstr("no limit of memory"));
    EXPECT_EQ(std::count(warning.begin(), warning.end(), '\n'), 1) << "told once: " << warning;
  }
}

// A look that says that all is well, and a host that is another now.
TEST_P(HostsTest, AGroupThatCannotBeMadeIsToldOrRefused) {
  if (*GetParam().script == '\0') GTEST_SKIP() << "nothing has changed on this one";
  ASSERT_EQ(
      host_.temenos({"run", "--no-net", "--", "true"}, "", "", {{"XDG_CACHE_HOME", warm_}}).status,
      0);
  const auto effort = temenos({"run", "--no-net", "--", "echo", "ran"}, false);
  EXPECT_EQ(effort.status, 0) << effort.err;
  EXPECT_EQ(effort.out, "ran\n");
  EXPECT_THAT(effort.limits_warning + effort.err, HasSubstr("no limit of memory"));
  const auto required =
      temenos({"run", "--no-net", "--limits", "required", "--", "echo", "ran"}, false);
  EXPECT_EQ(required.status, 125);
  EXPECT_EQ(required.out, "");
  EXPECT_THAT(required.err, HasSubstr("limits are required"));
}

// Also of a box with a name: in its audit log.
TEST_P(HostsTest, TheAuditLogHasTheWarning) {
  const bool memory = limits().at("memory").as_bool();
  const auto made = on_host({guest("box_tool"), "new", "told"});
  ASSERT_EQ(made.status, 0) << made.err;
  if (memory) {
    EXPECT_THAT(audit("told"), Not(HasSubstr("no limit of")));
  } else {
    EXPECT_THAT(audit("told"), HasSubstr("no limit of memory"));
  }
  EXPECT_EQ(on_host({guest("box_tool"), "stop", "told"}).status, 0);
}

// Without a group of the box the kernel's count of the whole machine says so. The limit is that of
// a group around all of it; that can be made where the older hierarchy is.
TEST_P(HostsTest, WantOfMemoryIsToldWithoutAnyGroupToo) {
  if (GetParam().name != std::string_view(kNoCgroupfs.name)) GTEST_SKIP() << "groups are seen here";
  const std::string group = "/sys/fs/cgroup/memory/temenos-around-" + std::to_string(getpid());
  if (mkdir(group.c_str(), 0755) != 0) GTEST_SKIP() << "no memory group of cgroup v1 here";
  std::ofstream(group + "/memory.limit_in_bytes") << "200M";
  const std::string temenos = temenos_program();
  Program program(host_,
                  {"/usr/bin/unshare", "--mount", "--propagation", "private", "/bin/sh", "-c",
                   "echo $$ >" + group + "/cgroup.procs && " + GetParam().script + "exec \"$@\"",
                   "sh", temenos, "run", "--no-net", "--volume", guest("use_up") + ":/use/up:ro",
                   "--", "/use/up", "memory", "400"},
                  {{"XDG_CACHE_HOME", cache_}});
  const auto result = program.finish(static_cast<int>(patience(90).count()));
  EXPECT_EQ(result.status, 137) << result.err;
  EXPECT_THAT(result.err, HasSubstr("out of memory"));
  EXPECT_THAT(result.err, HasSubstr("/proc/vmstat"));
  wait_for_descendants(static_cast<int>(patience(30).count()));
  for (int n = 0; n < 1000 && rmdir(group.c_str()) != 0 && errno == EBUSY; ++n) usleep(10'000);
  EXPECT_FALSE(std::filesystem::exists(group));
}

// A trial that is given up in the middle has made a group; it takes it away.
TEST_F(LimitsTest, AnInterruptedTrialLeavesNoGroup) {
  const auto parents = cgroup::group_parents();
  if (parents.empty()) GTEST_SKIP() << "no groups are made here without systemd";
  const auto is_ours = [](const std::filesystem::path& group) {
    std::ifstream members(group / "cgroup.procs");
    return std::any_of(std::istream_iterator<pid_t>(members), {}, is_descendant);
  };
  // Its name, once something of ours is in it: whatever runs beside this test may make trials too.
  const auto our_trial = [&] {
    for (const auto& parent : parents) {
      std::error_code error;
      for (const auto& entry : std::filesystem::directory_iterator(parent, error)) {
        const std::string name = entry.path().filename();
        if (name.starts_with("temenos-trial-") && is_ours(entry.path())) return name;
      }
    }
    return std::string();
  };
  int met = 0;
  for (int n = 0; n < 20 && met < 3; ++n) {
    Program program(host_, {temenos_program(), "run", "--no-net", "--", "true"},
                    {{"XDG_CACHE_HOME", host_.dir("cache" + std::to_string(n))}});
    std::string mine;
    if (!program.wait_until([&] { return !(mine = our_trial()).empty(); })) continue;
    program.send(SIGINT);
    met += program.finish(10).status == 128 + SIGINT;
    for (const auto& parent : parents) {
      EXPECT_FALSE(std::filesystem::exists(parent + "/" + mine)) << parent << ' ' << mine;
    }
  }
  EXPECT_GE(met, 1);
}

// A machine with systemd whose bus takes calls and answers none: it is asked once.
TEST_F(LimitsTest, ABusThatHangsIsAskedOnceAndAgainForABoxThatRequiresLimits) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can change what it sees of the host";
  const UniqueFd bus(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string path = host_.path() + "/bus";
  ASSERT_LT(path.size(), sizeof address.sun_path);
  memcpy(address.sun_path, path.c_str(), path.size() + 1);
  ASSERT_EQ(bind(bus.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(listen(bus.get(), 16), 0);
  std::vector<UniqueFd> callers;
  const auto calls = [&] {
    for (;;) {
      UniqueFd caller(accept4(bus.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (!caller) return callers.size();
      callers.push_back(std::move(caller));
    }
  };
  // Process 1 is called systemd, and only the unified hierarchy is mounted.
  const std::string script =
      "echo systemd >/proc/$$/comm; for m in $(awk '/ - cgroup / {print $5}' /proc/self/mountinfo);"
      "do umount $m; done; mount -t tmpfs none /run; mkdir -p /run/systemd/system /run/dbus;"
      ": >/run/dbus/system_bus_socket; mount --bind " +
      path + " /run/dbus/system_bus_socket; \"$@\"";
  const auto temenos = [&](std::vector<std::string> words) {
    words.insert(words.begin(),
                 {"/usr/bin/unshare", "--mount", "--propagation", "private", "--pid", "--fork",
                  "--mount-proc", "/bin/sh", "-c", script, "sh", temenos_program()});
    Program program(host_, std::move(words), {{"XDG_CACHE_HOME", host_.dir("cache")}});
    return program.finish(static_cast<int>(patience(90).count()));
  };
  for (int n = 0; n < 2; ++n) {
    const auto effort = temenos({"run", "--no-net", "--", "echo", "ran"});
    EXPECT_EQ(effort.out, "ran\n") << effort.err;
    EXPECT_THAT(effort.limits_warning, HasSubstr("systemd does not answer"));
    EXPECT_THAT(effort.limits_warning, HasSubstr("'temenos doctor' asks it again"));
    EXPECT_EQ(calls(), 1u) << effort.limits_warning;
  }
  const auto required = temenos({"run", "--no-net", "--limits", "required", "--", "echo", "ran"});
  EXPECT_EQ(required.status, 125);
  EXPECT_THAT(required.err, HasSubstr("limits are required"));
  EXPECT_EQ(calls(), 2u);
  EXPECT_THAT(temenos({"doctor"}).out, HasSubstr("systemd does not answer"));
  EXPECT_EQ(calls(), 3u);
}

// The default is taken from what temenos itself may have, not from the machine.
TEST_F(LimitsTest, InAGroupWithLessABoxHasItsShareOfThat) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can make a group around it";
  const std::vector<std::string> words{
      temenos_program(),   "run",          "--no-net", "--", "sed", "-n",
      "s/^MemTotal: *//p", "/proc/meminfo"};
  std::vector<std::string> argv{"/bin/sh", "-ec"};
  const std::string group = "/sys/fs/cgroup/memory/temenos-around-" + std::to_string(getpid());
  const bool v1 = mkdir(group.c_str(), 0755) == 0;
  if (v1) {
    std::ofstream(group + "/memory.limit_in_bytes") << "1G";
    argv.push_back("echo $$ >" + group + "/cgroup.procs; exec \"$@\"");
  } else if (access("/run/systemd/system", F_OK) == 0) {
    argv.emplace_back("exec systemd-run -q --scope -p MemoryMax=1G -- \"$@\"");
  } else {
    GTEST_SKIP() << "no memory group can be made here";
  }
  argv.emplace_back("sh");
  argv.insert(argv.end(), words.begin(), words.end());
  Program program(host_, std::move(argv));
  const auto result = program.finish(static_cast<int>(patience(90).count()));
  EXPECT_EQ(result.status, 0) << result.err;
  const long kb = atol(result.out.c_str());
  if (result.limits_warning.empty()) {
    EXPECT_GT(kb, 700 * 1024) << result.out;
    EXPECT_LE(kb, 768 * 1024) << result.out;
  }
  wait_for_descendants(static_cast<int>(patience(30).count()));
  for (int n = 0; v1 && n < 1000 && rmdir(group.c_str()) != 0 && errno == EBUSY; ++n)
    usleep(10'000);
}

// One part of a host is gone since it was looked at, by a script like Host's.
class LessThanSeen : public LimitsTest {
 protected:
  CliResult run_without(const std::string& script, std::vector<std::string> words) {
    words.insert(words.begin(),
                 {"/usr/bin/unshare", "--mount", "--propagation", "private", "/bin/sh", "-ec",
                  script + "; exec \"$@\"", "sh", temenos_program(), "run", "--no-net"});
    Program program(host_, std::move(words), cache());
    return program.finish(static_cast<int>(patience(90).count()));
  }
  // Of its own: what is seen is of a host that nobody else has.
  Variables cache() const { return {{"XDG_CACHE_HOME", host_.dir("cache")}}; }
  void look_at_the_whole_host() const {
    ASSERT_EQ(host_.temenos({"run", "--no-net", "--", "true"}, "", "", cache()).status, 0);
  }
  // Empty: the hierarchies of these controllers are mounted, each by itself, and can be hidden.
  static std::string lacking(const std::string& controller) {
    if (geteuid() != 0) return "only root can change what it sees of the host";
    return access(("/sys/fs/cgroup/" + controller + "/cgroup.procs").c_str(), F_OK) == 0
               ? ""
               : "no cgroup v1 here";
  }
};

TEST_F(LessThanSeen, WithoutMemoryItIsToldOrRefused) {
  if (const auto why = lacking("memory"); !why.empty()) GTEST_SKIP() << why;
  look_at_the_whole_host();
  const std::string script = "umount /sys/fs/cgroup/memory";
  const auto required =
      run_without(script, {"--limits", "required", "--memory", "128", "--", "echo", "ran"});
  EXPECT_EQ(required.status, 125);
  EXPECT_EQ(required.out, "");
  EXPECT_THAT(required.err, HasSubstr("there is none of memory"));
  const auto effort = run_without(script, {"--memory", "128", "--", "echo", "ran"});
  EXPECT_EQ(effort.out, "ran\n") << effort.err;
  EXPECT_THAT(effort.limits_warning, HasSubstr("no limit of memory holds"));
  // What had been seen was forgotten with the first that did not get it, and looked for anew.
  EXPECT_THAT(effort.limits_warning, HasSubstr("mount the hierarchies"));
}

// A share that nobody keeps is no reason to look at the time late.
TEST_F(LessThanSeen, WithoutAQuotaCpuTimeIsStillLookedAtInTime) {
  if (const auto why = lacking("cpu"); !why.empty()) GTEST_SKIP() << why;
  look_at_the_whole_host();
  const auto begin = std::chrono::steady_clock::now();
  const auto result =
      run_without("umount /sys/fs/cgroup/cpu",
                  {"--cpus", "0.05", "--cpu", "1", "--volume", guest("use_up") + ":/use/up:ro",
                   "--", "/use/up", "burn", "1", "0"});
  EXPECT_EQ(result.status, 125);
  EXPECT_THAT(result.err, HasSubstr("used up its CPU time"));
  EXPECT_THAT(result.limits_warning, HasSubstr("no limit of CPU holds"));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, patience(12));
}

// Numbers that no kernel takes are no limit, and take no other limit with them.
TEST_F(LimitsTest, NumbersThatNoHostHas) {
  const auto all = host_.temenos({"run", "--no-net", "--memory", "1099511627776", "--cpus", "8192",
                                  "--cpu", "1099511627776", "--", "echo", "ran"});
  EXPECT_EQ(all.out, "ran\n") << all.err;
  // Where nothing ends it, the next would stay.
  if (!all.limits_warning.empty()) GTEST_SKIP() << all.limits_warning;
  for (const char* pids : {"600000", "1099511627776"}) {
    SCOPED_TRACE(pids);
    const auto result =
        host_.temenos({"run", "--no-net", "--memory", "128", "--pids", pids, "--volume",
                       guest("use_up") + ":/use/up:ro", "--", "/use/up", "memory", "400"});
    EXPECT_EQ(result.status, 137) << result.err;
  }
}

// Root of a machine with systemd, and the bus is not there: no other driver may be taken where
// systemd rules, and that is told.
TEST_F(LessThanSeen, WithoutTheBusOfSystemdItIsToldOrRefused) {
  if (access("/run/systemd/system", F_OK) != 0) GTEST_SKIP() << "no systemd runs here";
  if (geteuid() != 0) GTEST_SKIP() << "only root can change what it sees of the host";
  const std::string script = "mount -t tmpfs none /run/dbus";
  const auto effort = run_without(script, {"--", "echo", "ran"});
  EXPECT_EQ(effort.out, "ran\n") << effort.err;
  EXPECT_THAT(effort.limits_warning, HasSubstr("no limit of memory"));
  EXPECT_THAT(effort.limits_warning, HasSubstr("system bus"));
  const auto required = run_without(script, {"--limits", "required", "--", "echo", "ran"});
  EXPECT_EQ(required.status, 125);
  EXPECT_THAT(required.err, HasSubstr("limits are required"));
}

}  // namespace
}  // namespace temenos::testing
