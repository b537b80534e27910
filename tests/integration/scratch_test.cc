// Where a box writes: on disk, in memory, in gVisor's own memory. What the box sees is the same;
// what the host's data directory must be able to do is not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ostream>

#include "tests/integration/program.h"

namespace temenos::testing {
namespace {

using ::testing::HasSubstr;

struct Kind {
  std::string platform;
  std::string scratch;
};

void PrintTo(const Kind& kind, std::ostream* out) { *out << kind.platform << " " << kind.scratch; }

std::vector<Kind> kinds() {
  std::vector<Kind> out;
  for (const auto& platform : platforms()) {
    for (const char* scratch : {"disk", "memory", "runsc"}) out.push_back({platform, scratch});
  }
  return out;
}
std::string name_of(const ::testing::TestParamInfo<Kind>& info) {
  return info.param.platform + "_" + info.param.scratch;
}

class ScratchTest : public IntegrationTest, public ::testing::WithParamInterface<Kind> {
 protected:
  std::vector<std::string> flags(std::vector<std::string> more = {}) const {
    more.insert(more.begin(), {"--platform", GetParam().platform, "--scratch", GetParam().scratch});
    return more;
  }
};
INSTANTIATE_TEST_SUITE_P(Of, ScratchTest, ::testing::ValuesIn(kinds()), name_of);

// Files, directories that are there from the start, modes, owners, names: as on any system.
TEST_P(ScratchTest, IsAnOrdinaryRoot) {
  const auto result = run(flags(),
                          "set -e; cd /root; stat -c %a .; echo text >f; mkdir -p d/e; mv d d2; "
                          "ln -s f l; ln f h; cat l h; rm f; chmod 4755 h; stat -c %a h; "
                          "mkdir /new; mv /var/mail /new/mail; rmdir /home/user; mkdir /home/user; "
                          "touch /home/user/x; rm -r /srv; mkdir /srv; ls -A /srv; "
                          "stat -c %a /var/tmp; test -x /usr/bin/env; cat /etc/hostname");
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.out, "700\ntext\ntext\n4755\n1777\ntemenos\n");
}

TEST_P(ScratchTest, BaseIsReadOnlyByTheHost) {
  const auto result =
      run(flags(), "for f in /usr/x /usr/bin/x /etc/x /etc/ssl/x; do touch $f 2>&1; done; true");
  std::size_t refused = 0;
  for (auto at = result.out.find("Read-only file system"); at != std::string::npos;
       at = result.out.find("Read-only file system", at + 1)) {
    ++refused;
  }
  EXPECT_EQ(refused, 4u) << result.out;
}

TEST_P(ScratchTest, BindsAndMountPointsAreTheSame) {
  const auto shared = host_.dir("shared");
  host_.file("shared/in", "in\n");
  const auto result = run(flags({"--write", shared, "--volume", shared + ":/a/b/c:ro"}),
                          "cat /a/b/c/in; echo out >" + shared + "/out; touch /a/b/c/x");
  EXPECT_EQ(result.out, "in\n");
  EXPECT_THAT(result.err, HasSubstr("Read-only file system"));
  EXPECT_EQ(host_shell("cat '" + shared + "/out'"), "out\n");
}

TEST_P(ScratchTest, WhatWasWrittenIsGone) {
  EXPECT_EQ(run(flags(), "echo mark >/root/mark; cat /root/mark").out, "mark\n");
  EXPECT_EQ(run(flags(), "ls -A /root").out, "");
  EXPECT_EQ(host_shell("ls -A '" + host_.path() + "/home/data/temenos/run'"), "");
}

// While the box runs nothing of it lies in the data dir.
TEST_P(ScratchTest, OnlyDiskWritesOnDisk) {
  Program program(host_, argv(flags({"-i"}), "echo secret >/root/mark-here; echo up; read line"));
  ASSERT_TRUE(program.wait_for("up\n"));
  const std::string found =
      host_shell("find '" + host_.path() + "/home/data' -name mark-here 2>/dev/null");
  EXPECT_EQ(found.empty(), GetParam().scratch != "disk") << found;
  program.close_in();
  (void)program.finish();
}

class SizedTest : public IntegrationTest, public ::testing::WithParamInterface<std::string> {};
INSTANTIATE_TEST_SUITE_P(On, SizedTest, ::testing::ValuesIn(platforms()),
                         [](const auto& info) { return info.param; });

TEST_P(SizedTest, MemoryHoldsWhatDiskMbSays) {
  const std::vector<std::string> flags{"--platform", GetParam(), "--scratch",
                                       "memory",     "--disk",   "8"};
  // Bytes, and names: both are memory of the host.
  const auto full = run(flags,
                        "head -c 4M /dev/zero >~/fits && echo fits; head -c 8M /dev/zero >~/big; "
                        "echo $?; wc -c <~/big");
  EXPECT_THAT(full.out, HasSubstr("fits\n1\n"));
  EXPECT_THAT(full.err, HasSubstr("No space left on device"));
  const auto names = run(flags, "i=0; while : >~/$i; do i=$((i+1)); done");
  EXPECT_EQ(names.status, 2) << names.err;  // the shell's, for a redirection that failed
  EXPECT_THAT(names.err, HasSubstr("No space left on device"));
}

TEST_P(SizedTest, WithoutASizeItIsTheDefault) {
  const auto result = run({"--platform", GetParam(), "--scratch", "memory"},
                          "df -m --output=size / | tail -1 | tr -d ' '");
  EXPECT_EQ(result.out, "1024\n");
}

class ScratchFlagsTest : public IntegrationTest {};

TEST_F(ScratchFlagsTest, ASizeThatNothingHoldsIsRefused) {
  expect_error(run({"--scratch", "runsc", "--disk", "10"}, "true"), 125,
               {"limits.disk_mb cannot be kept with scratch runsc", "--scratch memory"});
  expect_error(run({"--scratch", "tape"}, "true"), 2, {"not one of disk, memory, runsc"});
}

}  // namespace
}  // namespace temenos::testing
