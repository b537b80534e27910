#include "box/host_probe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "box/scratch_tree.h"

namespace temenos::box {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class HostProbeTest : public ::testing::Test {
 protected:
  void SetUp() override {
    dirs_.cache = tree_.above();
    dirs_.libexec = tree_.path();
    unsetenv("TEMENOS_RUNSC");
    write_runsc("1");
  }
  void write_runsc(const std::string& version) {
    tree_.file(
        "runsc",
        "#!/bin/sh\necho asked >>" + tree_.above() +
            "/asked\ncase $1 in --version) echo 'runsc version " + version +
            "';; flags) for f in directfs file-access-mounts host-uds "
            "ignore-cgroups overlay2 panic-log qdisc; do printf '\\n  -%s\\n' $f; done;; esac\n");
    ASSERT_EQ(chmod((tree_.path() + "/runsc").c_str(), 0755), 0);
  }
  long asked() const {
    std::ifstream in(tree_.above() + "/asked");
    return std::count(std::istreambuf_iterator<char>(in), {}, '\n');
  }
  // Trials that end as told; kvm never works, as on most hosts.
  TryPlatform trials(int systrap_ms, int ptrace_ms) {
    return [=, this](const gvisor::Runsc&, const std::string& name) {
      ++tried_;
      const int ms = name == "systrap" ? systrap_ms : name == "ptrace" ? ptrace_ms : -1;
      return PlatformTrial{name, ms >= 0, ms, ms >= 0 ? "" : "no " + name, false};
    };
  }
  ScratchTree tree_;
  HostDirs dirs_;
  int tried_ = 0;
};

TEST_F(HostProbeTest, RunscIsAskedOnceAndAgainWhenItChanges) {
  EXPECT_EQ(probe_runsc(dirs_)->runsc.version, "1");
  const long once = asked();
  EXPECT_GT(once, 0);
  EXPECT_EQ(probe_runsc(dirs_)->runsc.version, "1");
  EXPECT_EQ(asked(), once);
  write_runsc("22");
  EXPECT_EQ(probe_runsc(dirs_)->runsc.version, "22");
}

TEST_F(HostProbeTest, ABrokenCacheIsNoCache) {
  ASSERT_TRUE(probe_runsc(dirs_));
  for (const char* text : {"", "{", "[]", "{\"key\":7}", "\xff"}) {
    std::ofstream(dirs_.cache + "/host.json") << text;
    const auto probe = probe_runsc(dirs_);
    ASSERT_TRUE(probe) << text;
    EXPECT_EQ(probe->runsc.version, "1");
  }
}

TEST_F(HostProbeTest, PreferenceUnlessAnotherIsClearlyFaster) {
  struct {
    int systrap, ptrace;
    const char* chosen;
  } const cases[] = {
      {1000, 900, "systrap"}, {1000, 500, "ptrace"}, {-1, 5000, "ptrace"}, {9, -1, "systrap"}};
  for (const auto& one : cases) {
    auto probe = probe_runsc(dirs_);
    ASSERT_TRUE(probe);
    probe->platforms.clear();
    const auto chosen =
        choose_platform(*probe, Platform::kAuto, dirs_, trials(one.systrap, one.ptrace));
    ASSERT_TRUE(chosen);
    EXPECT_EQ(*chosen, one.chosen);
  }
}

TEST_F(HostProbeTest, WhatWasTriedIsRemembered) {
  auto probe = probe_runsc(dirs_);
  ASSERT_TRUE(choose_platform(*probe, Platform::kAuto, dirs_, trials(10, 10)));
  const int once = tried_;
  auto again = probe_runsc(dirs_);
  EXPECT_EQ(*choose_platform(*again, Platform::kAuto, dirs_, trials(-1, -1)), "systrap");
  EXPECT_EQ(tried_, once);
}

TEST_F(HostProbeTest, ANamedPlatformIsNotTried) {
  auto probe = probe_runsc(dirs_);
  EXPECT_EQ(*choose_platform(*probe, Platform::kPtrace, dirs_, trials(1, 1)), "ptrace");
  EXPECT_EQ(*choose_platform(*probe, Platform::kKvm, dirs_, trials(1, 1)), "kvm");
  EXPECT_EQ(tried_, 0);
}

TEST_F(HostProbeTest, WhenNoneWorksTheReasonsAreSaidAndNothingIsRemembered) {
  auto probe = probe_runsc(dirs_);
  const auto none = choose_platform(*probe, Platform::kAuto, dirs_, trials(-1, -1));
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, Code::kUnsupported);
  EXPECT_THAT(none.error().to_string(), HasSubstr("no systrap"));
  EXPECT_THAT(none.error().to_string(), HasSubstr("no ptrace"));
  auto again = probe_runsc(dirs_);
  EXPECT_TRUE(again->platforms.empty());
  // A reason that is the same for all is said once.
  const auto same =
      choose_platform(*again, Platform::kAuto, dirs_, [](const auto&, const auto& name) {
        return PlatformTrial{name, false, 0, "the disk is full", false};
      });
  const std::string text = same.error().to_string();
  EXPECT_EQ(text.find("the disk is full"), text.rfind("the disk is full"));
}

TEST_F(HostProbeTest, ATrialThatWasGivenUpIsNotRemembered) {
  auto probe = probe_runsc(dirs_);
  const auto chosen =
      choose_platform(*probe, Platform::kAuto, dirs_, [](const auto&, const auto& name) {
        return PlatformTrial{name, false, 0, "given up", true};
      });
  EXPECT_FALSE(chosen);
  EXPECT_TRUE(probe_runsc(dirs_)->platforms.empty());
}

}  // namespace
}  // namespace temenos::box
