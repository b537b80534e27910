// A data directory whose file system is full or read-only: what cannot be done says so at once and
// leaves nothing half-made, what needs no write works, and when the file system is well again all
// is there that had been written.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pwd.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <tuple>

#include "tests/crash/records.h"
#include "tests/integration/durable_box.h"

namespace temenos::testing {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

constexpr char kBox[] = "lasting";
constexpr char kOther[] = "other";
constexpr char kUser[] = "temenos-test";

std::size_t lines(const std::string& text) {
  return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
}

class DiskTrouble : public DurableBoxTest,
                    public ::testing::WithParamInterface<std::tuple<std::string, std::string>> {
 protected:
  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "only root can mount one; root's run is for users as well";
    const auto [type, who] = GetParam();
    disk_ = host_.dir("home/data");
    const std::string image = host_.path() + "/disk";
    const std::string mounting = type == "tmpfs"
                                     ? "mount -t tmpfs -o size=16m disk " + disk_
                                     : "truncate -s 32m " + image + " && mkfs.ext4 -q -m 0 " +
                                           image + " && mount -o loop " + image + " " + disk_;
    const std::string trouble = host_shell("(" + mounting + ") 2>&1");
    mounted_ = trouble.empty();
    if (!mounted_ && type == "tmpfs") FAIL() << trouble;
    if (!mounted_) GTEST_SKIP() << "no loop devices here: " << trouble;
    ASSERT_EQ(host_shell("rm -rf " + disk_ + "/lost+found"), "");
    if (who == "root") return;
    if (!become(kUser)) {
      // scripts/test has made both.
      if (getenv("TEMENOS_STAGE") != nullptr) FAIL() << "cannot become " << kUser;
      GTEST_SKIP() << "no account " << kUser << " that can run the programs";
    }
    const passwd* user = getpwnam(kUser);
    ASSERT_EQ(chown(disk_.c_str(), user->pw_uid, user->pw_gid), 0);
  }

  void TearDown() override {
    if (mounted_) {
      read_only(false);
      free_space();
      remove_all_boxes();
      EXPECT_EQ(host_shell("ls -A " + disk_ + "/temenos/* 2>/dev/null"), "");
      EXPECT_EQ(host_shell("umount " + disk_ + " 2>&1"), "") << "something still has it open";
      host_shell("rmdir " + disk_);
    }
    IntegrationTest::TearDown();
  }

  void read_only(bool on) {
    ASSERT_EQ(host_shell("mount -o remount," + std::string(on ? "ro " : "rw ") + disk_ + " 2>&1"),
              "");
  }
  // To the last byte, by a file beside the boxes.
  void fill() {
    host_shell("cat /dev/zero >" + disk_ + "/filler 2>/dev/null");
    for (int i = 0; i < 64; ++i)
      host_shell("echo x 2>/dev/null >" + disk_ + "/filler." + std::to_string(i));
  }
  void free_space() { host_shell("rm -f " + disk_ + "/filler*"); }

  // One line that says that the disk is the trouble, and what to do.
  static void expect_disk_named(const CliResult& result, const char* who, const char* trouble) {
    expect_told(result, who);
    EXPECT_THAT(result.err, HasSubstr(trouble)) << who;
  }

  std::string disk_;
  bool mounted_ = false;
};

TEST_P(DiskTrouble, FullDisk) {
  ASSERT_EQ(run_tool({"create", kOther}).status, 0);
  ASSERT_EQ(run_tool({"new", kBox}).status, 0);
  // The box itself fills it: its commands and file operations are told, and nothing is torn.
  Program writer = start_tool({"write", kBox, "/root/log", "/root/state"});
  ASSERT_TRUE(writer.wait_for("9\n"));
  fill();
  const auto wrote = writer.finish();
  expect_disk_named(wrote, "a file operation", "No space left on device");
  const auto command = run_tool({"exec", kBox, "sh", "-c", "head -c 9000 /dev/zero >/root/more"});
  EXPECT_NE(command.status, 0);
  EXPECT_THAT(command.err, HasSubstr("No space left on device"));
  // What needs no room works.
  EXPECT_EQ(run_tool({"exec", kBox, "echo", "alive"}).out, "alive\n");
  EXPECT_EQ(lines(run_tool({"list"}).out), 2u);
  const auto made = run_tool({"create", "third"});
  expect_disk_named(made, "create", "No space left on device");
  EXPECT_EQ(lines(run_tool({"list"}).out), 2u);
  EXPECT_EQ(host_shell("ls -A " + boxes_dir() + " | wc -l"), "2\n") << "half a box is left";
  EXPECT_EQ(run_tool({"stop", kBox}).status, 0);
  const auto started = run_tool({"start", kBox});
  if (started.status != 0) expect_disk_named(started, "start", "No space left on device");
  const auto removed = run_tool({"remove", kOther});
  EXPECT_EQ(removed.status, 0) << removed.err;

  free_space();
  const auto next =
      run_tool({"exec", kBox, "sh", "-c", "cd /root && cat log && echo = && cat state"});
  EXPECT_EQ(next.status, 0) << next.err;
  EXPECT_EQ(trouble_in_log(next.out.substr(0, next.out.find('=')), lines(wrote.out)), "");
  EXPECT_EQ(trouble_in_state(next.out.substr(next.out.find('=') + 2), lines(wrote.out)), "");
  EXPECT_EQ(run_tool({"exec", kBox, "sh", "-c", "echo more >/root/more && cat /root/more"}).out,
            "more\n");
  EXPECT_EQ(run_tool({"create", "third"}).status, 0);
  // And a live box goes, whatever room there is.
  fill();
  const auto live = run_tool({"remove", kBox});
  EXPECT_EQ(live.status, 0) << live.err;
}

TEST_P(DiskTrouble, KilledOnAFullDisk) {
  ASSERT_EQ(run_tool({"new", kBox}).status, 0);
  for (const auto victim : {&BoxProcesses::keeper, &BoxProcesses::sandbox, &BoxProcesses::helper}) {
    Program writer = start_tool({"write", kBox, "/root/log", "/root/state"});
    ASSERT_TRUE(writer.wait_for("3\n"));
    const Generation old(processes(kBox));
    fill();
    ASSERT_EQ(kill(old.processes().*victim, SIGKILL), 0);
    const auto wrote = writer.finish();
    expect_told(wrote, "a file operation");
    const auto started = run_tool({"start", kBox});
    if (started.status != 0) expect_disk_named(started, "start", "No space left on device");
    EXPECT_EQ(old.wait_for_end(10), "");
    free_space();
    const auto next = run_tool({"exec", kBox, "sh", "-c", "cat /root/log; rm /root/*"});
    EXPECT_EQ(next.status, 0) << next.err;
    EXPECT_EQ(trouble_in_log(next.out, lines(wrote.out)), "");
  }
}

TEST_P(DiskTrouble, ReadOnly) {
  ASSERT_EQ(run_tool({"new", kBox}).status, 0);
  ASSERT_EQ(run_tool({"exec", kBox, "sh", "-c", "echo kept >/root/file"}).status, 0);
  ASSERT_EQ(run_tool({"stop", kBox}).status, 0);
  ASSERT_TRUE(wait_for_descendants(30));
  read_only(true);
  EXPECT_EQ(lines(run_tool({"list"}).out), 1u);
  expect_disk_named(run_tool({"create", kOther}), "create", "Read-only file system");
  expect_disk_named(run_tool({"start", kBox}), "start", "Read-only file system");
  expect_disk_named(run_tool({"exec", kBox, "true"}), "exec", "Read-only file system");
  expect_disk_named(run_tool({"remove", kBox}), "remove", "Read-only file system");
  const auto stopped = run_tool({"stop", kBox});
  EXPECT_EQ(stopped.status, 0) << stopped.err;
  EXPECT_EQ(lines(run_tool({"list"}).out), 1u);
  read_only(false);
  EXPECT_EQ(run_tool({"exec", kBox, "cat", "/root/file"}).out, "kept\n");
}

// Below a live box, which then can still be used for what needs no write, and be stopped.
TEST_P(DiskTrouble, TurnsReadOnly) {
  ASSERT_EQ(run_tool({"new", kBox}).status, 0);
  ASSERT_EQ(run_tool({"exec", kBox, "sh", "-c", "echo kept >/root/file"}).status, 0);
  // The sentry holds what was written open for writing, and then the kernel does not remount.
  ASSERT_EQ(run_tool({"stop", kBox}).status, 0);
  ASSERT_EQ(run_tool({"start", kBox}).status, 0);
  read_only(true);
  EXPECT_EQ(run_tool({"exec", kBox, "cat", "/root/file"}).out, "kept\n");
  const auto wrote = run_tool({"exec", kBox, "sh", "-c", "echo x >/root/other"});
  EXPECT_NE(wrote.status, 0);
  EXPECT_THAT(wrote.err, HasSubstr("Read-only file system"));
  const auto operation = run_tool({"write", kBox, "/root/log", "/root/state"});
  expect_disk_named(operation, "a file operation", "Read-only file system");
  const auto stopped = run_tool({"stop", kBox});
  EXPECT_EQ(stopped.status, 0) << stopped.err;
  read_only(false);
  EXPECT_EQ(run_tool({"exec", kBox, "sh", "-c", "cat /root/file; ls /root"}).out, "kept\nfile\n");
}

// The file system breaks below a writer, and the kernel lets nobody write there any more.
TEST_P(DiskTrouble, Breaks) {
  if (std::get<0>(GetParam()) != "ext4") GTEST_SKIP() << "only ext4 breaks on request";
  ASSERT_EQ(host_shell("mount -o remount,errors=remount-ro " + disk_ + " 2>&1"), "");
  ASSERT_EQ(run_tool({"new", kBox}).status, 0);
  Program writer = start_tool({"write", kBox, "/root/log", "/root/state"});
  ASSERT_TRUE(writer.wait_for("3\n"));
  ASSERT_EQ(host_shell("echo 1 2>&1 >/sys/fs/ext4/$(basename $(findmnt -no SOURCE " + disk_ +
                       "))/trigger_fs_error"),
            "");
  expect_told(writer.finish(), "a file operation");
  const auto stopped = run_tool({"stop", kBox});
  EXPECT_EQ(stopped.status, 0) << stopped.err;
  const auto started = run_tool({"start", kBox});
  expect_told(started, "the next start");
  ASSERT_TRUE(wait_for_descendants(30));
  ASSERT_EQ(host_shell("umount " + disk_ + " 2>&1"), "");
  // Whatever a broken file system has lost: what is left of the box works, or can be removed.
  host_shell("e2fsck -fy " + host_.path() + "/disk 2>&1");
  ASSERT_EQ(host_shell("mount -o loop " + host_.path() + "/disk " + disk_ + " 2>&1"), "");
  EXPECT_EQ(run_tool({"exec", kBox, "echo", "works"}).out, "works\n");
}

std::string name_of(const ::testing::TestParamInfo<DiskTrouble::ParamType>& info) {
  return std::get<0>(info.param) + "_" + std::get<1>(info.param);
}
INSTANTIATE_TEST_SUITE_P(, DiskTrouble,
                         ::testing::Combine(::testing::Values("tmpfs", "ext4"),
                                            ::testing::Values("root", "user")),
                         name_of);

}  // namespace
}  // namespace temenos::testing
