// The processes of a live box, looked at from the host: each has the rights that it needs and no
// more.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <climits>
#include <filesystem>
#include <sstream>

#include "base/host_ids.h"
#include "leak/leak.h"

namespace temenos::leak {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string proc(pid_t pid, const std::string& name) {
  return "/proc/" + std::to_string(pid) + "/" + name;
}

// A line of /proc/PID/status, without its name and blanks before the first word.
std::string status(pid_t pid, const std::string& name) {
  std::istringstream lines(read_text(proc(pid, "status")));
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(name + ":")) continue;
    const auto at = line.find_first_not_of(" \t", name.size() + 1);
    return at == std::string::npos ? "" : line.substr(at);
  }
  return "none";
}

unsigned long long number(const std::string& text, int base = 10) {
  return strtoull(text.c_str(), nullptr, base);
}

std::string link_of(const std::string& path) {
  char target[PATH_MAX];
  const ssize_t n = readlink(path.c_str(), target, sizeof target);
  return std::string(target, n > 0 ? static_cast<std::size_t>(n) : 0);
}

class Processes : public ::testing::TestWithParam<std::string> {
 protected:
  Processes()
      : box_(host_, run(GetParam(), {"-i"}, {"sh", "-c", "echo ready; exec cat"})),
        all_(descendants(box_.pid())) {}

  void SetUp() override { ASSERT_TRUE(box_.ready()) << box_.stderr_text(); }

  std::vector<pid_t> named(const std::string& prefix) const {
    std::vector<pid_t> out;
    for (const auto& [pid, name] : all_) {
      if (name.starts_with(prefix)) out.push_back(pid);
    }
    return out;
  }
  // Processes whose parent is `pid`.
  std::vector<pid_t> children(pid_t parent) const {
    std::vector<pid_t> out;
    for (const auto& [pid, name] : all_) {
      if (number(status(pid, "PPid")) == static_cast<unsigned>(parent)) out.push_back(pid);
    }
    return out;
  }

  const bool root_ = geteuid() == 0;
  const TestHost host_;
  RunningBox box_;
  const std::map<pid_t, std::string> all_;
};

// Of another user namespace than this process, and its map does not reach the host's root.
void expect_own_user_namespace(pid_t pid) {
  std::istringstream map(read_text(proc(pid, "uid_map")));
  unsigned long inside = 0;
  unsigned long outside = 0;
  unsigned long count = 0;
  int lines = 0;
  for (; map >> inside >> outside >> count; ++lines) {
    // As this process sees it: the ids of the host.
    EXPECT_GT(outside, 0u);
    EXPECT_LE(count, 65536u);
  }
  EXPECT_GT(lines, 0);
  if (geteuid() == 0) {
    EXPECT_NE(link_of(proc(pid, "ns/user")), link_of("/proc/self/ns/user"));
  }
}

TEST_P(Processes, TheSessionCanDoNothing) {
  const auto sessions = named("temenos-session");
  ASSERT_EQ(sessions.size(), 1u);
  const pid_t pid = sessions[0];
  EXPECT_EQ(status(pid, "Seccomp"), "2");
  EXPECT_EQ(status(pid, "NoNewPrivs"), "1");
  for (const char* set : {"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"}) {
    EXPECT_EQ(number(status(pid, set), 16), 0u) << set;
  }
  const std::string uid = root_ ? std::to_string(kSessionId) : std::to_string(geteuid());
  const std::string gid = root_ ? std::to_string(kSessionId) : std::to_string(getegid());
  EXPECT_THAT(status(pid, "Uid"), StartsWith(uid + "\t" + uid + "\t" + uid + "\t" + uid));
  EXPECT_THAT(status(pid, "Gid"), StartsWith(gid + "\t" + gid + "\t" + gid + "\t" + gid));
  if (root_) EXPECT_EQ(status(pid, "Groups"), "");
  EXPECT_EQ(status(pid, "Threads"), "1");
  const std::string limits = read_text(proc(pid, "limits"));
  for (const char* line : {"Max processes             0                    0",
                           // Of the logs of jobs that it is handed.
                           "Max file size             67108864             67108864",
                           "Max core file size        0                    0"}) {
    EXPECT_THAT(limits, HasSubstr(line));
  }
  if (!root_) return;  // the rest of an undumpable process is root's to see
  EXPECT_TRUE(std::filesystem::is_empty(proc(pid, "root/")));
  for (const char* ns : {"net", "mnt", "user", "ipc", "uts"}) {
    EXPECT_NE(link_of(proc(pid, std::string("ns/") + ns)),
              link_of(std::string("/proc/self/ns/") + ns))
        << ns;
  }
  int sockets = 0;
  for (const auto& fd : std::filesystem::directory_iterator(proc(pid, "fd"))) {
    const std::string target = link_of(fd.path().string());
    EXPECT_THAT(target, AnyOf(StartsWith("socket:["), "/dev/null")) << fd.path();
    sockets += target.starts_with("socket:[") ? 1 : 0;
  }
  EXPECT_EQ(sockets, 3) << "init, keeper, one client";
  EXPECT_EQ(read_text(proc(pid, "environ")), "");
}

TEST_P(Processes, TheKeeperCanOnlyCleanUp) {
  const auto keepers = named("temenos-keeper");
  ASSERT_GE(keepers.size(), 1u);
  const pid_t keeper = keepers[0];
  EXPECT_EQ(number(status(keeper, "PPid")), static_cast<unsigned>(box_.pid()));
  EXPECT_EQ(status(keeper, "Threads"), "1");
  // As capabilities(7) numbers them.
  constexpr unsigned long long kCleanUp =
      (1ull << 1) /* DAC_OVERRIDE */ | (1ull << 3) /* FOWNER */ | (1ull << 5) /* KILL */ |
      (1ull << 6) /* SETGID */ | (1ull << 7) /* SETUID */ | (1ull << 8) /* SETPCAP */;
  for (const char* set : {"CapInh", "CapPrm", "CapEff", "CapAmb"}) {
    EXPECT_EQ(number(status(keeper, set), 16) & ~(root_ ? kCleanUp : 0), 0u) << set;
  }
  if (root_) {
    EXPECT_EQ(number(status(keeper, "CapBnd"), 16) & ~kCleanUp, 0u);
    EXPECT_EQ(status(keeper, "NoNewPrivs"), "1");
  }
  for (const auto& fd : std::filesystem::directory_iterator(proc(keeper, "fd"))) {
    // The data directory, its lock and sockets, the kernel's counter of kills for want of memory,
    // timers; no socket to init, no file of a bind.
    EXPECT_THAT(link_of(fd.path().string()),
                AnyOf(StartsWith("socket:["), "/dev/null", StartsWith("anon_inode:[pidfd]"),
                      StartsWith("pidfd:"), StartsWith("anon_inode:[timerfd]"),
                      StartsWith("anon_inode:[signalfd]"), StartsWith("anon_inode:[eventfd]"),
                      StartsWith("/sys/fs/cgroup/"), "/proc/vmstat",
                      StartsWith(host_.path() + "/home/data/")))
        << fd.path();
  }
}

TEST_P(Processes, WhatRunsTheBoxIsNobodyOnTheHost) {
  const pid_t keeper = named("temenos-keeper").at(0);
  const pid_t session = named("temenos-session").at(0);
  int seen = 0;
  for (const auto& [pid, name] : all_) {
    if (pid == keeper || pid == session) continue;
    SCOPED_TRACE(name + " " + std::to_string(pid));
    expect_own_user_namespace(pid);
    if (root_) {
      const unsigned long long uid = number(status(pid, "Uid"));
      EXPECT_GE(uid, kBoxIdBase);
      EXPECT_LT(uid, kBoxIdBase + kBoxIdCount);
      for (const char* ns : {"net", "mnt", "pid", "ipc", "uts", "cgroup"}) {
        EXPECT_NE(link_of(proc(pid, std::string("ns/") + ns)),
                  link_of(std::string("/proc/self/ns/") + ns))
            << ns;
      }
    }
    EXPECT_EQ(read_text(proc(pid, "environ")).find("XDG_"), std::string::npos);
    ++seen;
  }
  // The helper, and runsc's gofer and sandbox at least.
  EXPECT_GE(seen, 3);
}

TEST_P(Processes, RunscIsUnderTheFilter) {
  int runsc = 0;
  for (const auto& [pid, name] : all_) {
    if (name.starts_with("temenos")) continue;
    ++runsc;
    EXPECT_EQ(status(pid, "Seccomp"), "2") << name;
    EXPECT_GE(number(status(pid, "Seccomp_filters")), 1u) << name;
    EXPECT_EQ(status(pid, "NoNewPrivs"), "1") << name;
  }
  EXPECT_GE(runsc, 2);
}

INSTANTIATE_TEST_SUITE_P(On, Processes, ::testing::ValuesIn(testing::platforms()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace temenos::leak
