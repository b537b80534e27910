// The limit of disk: whatever a box writes, in whichever way, ends at its limit by name, and the
// file system of the host does not become full. With a project quota the command is told and the
// box lives; where the kernel cannot keep the limit, temenos watches and ends the box.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <fstream>
#include <ostream>
#include <sstream>
#include <thread>

#include "sys/file_sys.h"
#include "sys/quota_sys.h"
#include "tests/limits/limits_test.h"

namespace temenos::testing {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

constexpr char kBox[] = "writer";
constexpr std::int64_t kRoomMb = 100;
constexpr std::uint64_t kMiB = 1 << 20;
constexpr std::uint64_t kRoom = kRoomMb * kMiB;

// What the data directory lies on. `mount`: a shell command with $disk and $image.
struct Disk {
  const char* name;
  const char* mount;  // empty: on what the tests run on
  const char* needs = "";
  bool quota = false;
};
void PrintTo(const Disk& disk, std::ostream* out) { *out << disk.name; }
#define TEMENOS_MAKE "truncate -s 1g $image && mkfs."
constexpr Disk kHere{"Here", ""};
constexpr Disk kExt4{"Ext4", TEMENOS_MAKE
                     "ext4 -q -m 0 -N 200000 $image && "
                     "mount -o loop $image $disk"};
constexpr Disk kTmpfs{"Tmpfs", "mount -t tmpfs -o size=1g disk $disk"};
constexpr Disk kXfs{"Xfs", TEMENOS_MAKE "xfs -q $image && mount -o loop $image $disk", "mkfs.xfs"};
constexpr Disk kBtrfs{"Btrfs",
                      TEMENOS_MAKE "btrfs -q $image >/dev/null 2>&1 && mount -o loop $image $disk",
                      "mkfs.btrfs"};
constexpr Disk kQuota{"Quota",
                      TEMENOS_MAKE
                      "ext4 -q -m 0 -N 200000 -O quota,project -E quotatype=prjquota "
                      "$image && mount -o loop,prjquota $image $disk",
                      "", true};
constexpr Disk kXfsQuota{"XfsQuota",
                         TEMENOS_MAKE "xfs -q $image && mount -o loop,prjquota $image $disk",
                         "mkfs.xfs", true};

class DiskTest : public LimitsTest {
 protected:
  // Before the manager looks at it.
  void mount(const Disk& disk) {
    disk_ = host_.dir("home/data");
    mount_ = disk.mount;
    if (*disk.mount == '\0') return;
    if (geteuid() != 0) GTEST_SKIP() << "only root can mount one";
    if (*disk.needs != '\0' && host_shell(std::string("command -v ") + disk.needs).empty()) {
      GTEST_SKIP() << disk.needs << " is not installed";
    }
    const std::string image = host_.path() + "/image";
    const std::string trouble =
        host_shell("disk=" + disk_ + " image=" + image + "; (" + disk.mount + ") 2>&1");
    mounted_ = trouble.empty();
    if (!mounted_) GTEST_SKIP() << "this kernel has no such file system: " << trouble;
    host_shell("rm -f " + image + "; rm -rf " + disk_ + "/lost+found");
  }
  void TearDown() override {
    if (mounted_) {
      for (const auto& box : manager().list().value_or(std::vector<BoxInfo>{})) {
        remove(box.name.name);
      }
      wait_for_descendants(static_cast<int>(patience(30).count()));
      EXPECT_EQ(host_shell("ls -A " + disk_ + "/temenos/* 2>/dev/null"), "");
      EXPECT_EQ(host_shell("umount " + disk_ + " 2>&1"), "") << "something still has it open";
    }
    // What was there lay on the mount.
    if (*mount_ != '\0') host_shell("rmdir " + disk_);
    LimitsTest::TearDown();
  }

  static Result<Policy> policy(std::int64_t disk_mb, const std::string& platform = "systrap") {
    return Policy::Builder()
        .network(NetworkMode::kNone)
        .platform(platform == "ptrace" ? Platform::kPtrace : Platform::kSystrap)
        .limits({.disk_mb = disk_mb})
        .mount({.source = guest("fill_disk"), .target = "/use/fill"})
        .build();
  }
  Box start(const std::string& name, std::int64_t disk_mb,
            const std::string& platform = "systrap") {
    auto box = manager().create({"", name}, *policy(disk_mb, platform));
    EXPECT_TRUE(box) << box.error().to_string();
    const auto started = box->start();
    EXPECT_TRUE(started) << started.error().to_string();
    return std::move(*box);
  }
  static ExecRequest fill(std::vector<std::string> words) {
    words.insert(words.begin(), "/use/fill");
    return command(std::move(words));
  }
  std::uint64_t free_bytes() const {
    struct statvfs st{};
    return statvfs(disk_.c_str(), &st) == 0 ? st.f_bavail * st.f_frsize : 0;
  }
  static void expect_ended(Box& box, const Result<ExecResult>& result, const char* words) {
    ASSERT_FALSE(result) << text_of(result);
    EXPECT_EQ(result.error().code, Code::kBoxDied);
    EXPECT_EQ(box.end_reason(), "disk_limit");
    EXPECT_THAT(result.error().to_string(), HasSubstr("the box reached its limit of disk space"));
    EXPECT_THAT(result.error().to_string(), HasSubstr(words));
    EXPECT_THAT(result.error().hint, HasSubstr("--disk"));
    EXPECT_FALSE(box.is_alive());
  }
  // Another limit in the record that lies in its data dir.
  void change_limit(std::int64_t from, std::int64_t to) {
    const std::string path = data_dir(kBox) + "/temenos-box.json";
    std::stringstream text;
    text << std::ifstream(path).rdbuf();
    std::string record = text.str();
    const std::string old = R"(disk_mb\":)" + std::to_string(from);
    ASSERT_NE(record.find(old), std::string::npos) << record;
    record.replace(record.find(old), old.size(), R"(disk_mb\":)" + std::to_string(to));
    std::ofstream(path) << record;
  }

  std::string disk_;
  const char* mount_ = "";
  bool mounted_ = false;
};

class EachDisk : public DiskTest, public ::testing::WithParamInterface<Disk> {
 protected:
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(mount(GetParam()));
    if (IsSkipped()) return;
    LimitsTest::SetUp();
  }
  bool quota() const { return GetParam().quota; }
  void expect_limited(Box& box, const Result<ExecResult>& result, const char* words) {
    if (!quota()) return expect_ended(box, result, words);
    ASSERT_TRUE(result) << text_of(result);
    EXPECT_NE(result->exit_code, 0);
    EXPECT_THAT(text_of(result), AnyOf(HasSubstr("Disk quota exceeded"), HasSubstr("No space"),
                                       HasSubstr("Bus error")));
    EXPECT_EQ(output(box, "echo alive"), "alive\n");
  }
  void expect_end_of_ten_times();
};
INSTANTIATE_TEST_SUITE_P(Each, EachDisk, ::testing::Values(kHere, kExt4, kQuota, kXfsQuota),
                         [](const auto& info) { return info.param.name; });

void EachDisk::expect_end_of_ten_times() {
  Box box = start(kBox, kRoomMb);
  const auto result = box.exec(fill({"file", "/root/file", "2000"}));
  // All that is missing is the box's.
  if (mounted_) EXPECT_GT(free_bytes(), 0u) << "the host's file system is full";
  expect_limited(box, result, "100 MiB");
  const auto stats = box.stats();
  if (!quota()) return;
  ASSERT_TRUE(stats);
  EXPECT_TRUE(stats->disk_held);
  EXPECT_LE(*stats->disk_bytes, kRoom);
  EXPECT_GT(*stats->disk_bytes, kRoom - 2 * kMiB);
}

TEST_P(EachDisk, TenTimesWhatItMayWriteEndsAtTheLimit) { expect_end_of_ten_times(); }

// Those whose free space is told in another way; the rest is the same for all.
class OtherDisk : public EachDisk {};
INSTANTIATE_TEST_SUITE_P(Each, OtherDisk, ::testing::Values(kTmpfs, kXfs, kBtrfs),
                         [](const auto& info) { return info.param.name; });
TEST_P(OtherDisk, TenTimesWhatItMayWriteEndsAtTheLimit) { expect_end_of_ten_times(); }

TEST_P(EachDisk, SoDoesAUserNamespaceInIt) {
  Box box = start(kBox, kRoomMb);
  const auto result =
      box.exec(command({"unshare", "-Urm", "sh", "-c",
                        "mount -t tmpfs tmpfs /mnt && exec /use/fill file /root/file 2000"}));
  expect_limited(box, result, "100 MiB");
}

TEST_P(EachDisk, FilesThatHaveNoNameCount) {
  for (const char* way : {"deleted", "many", "mapped"}) {
    SCOPED_TRACE(way);
    Box box = start(kBox, kRoomMb);
    const auto result = box.exec(fill({way, "/root/file", "900"}));
    if (quota() && result && result->signal == "SIGBUS") {
      EXPECT_EQ(output(box, "echo alive"), "alive\n");
    } else {
      expect_limited(box, result, "100 MiB");
    }
    remove(kBox);
  }
}

// Of files that take nothing there may be one for each 4 KiB: no file system runs out of inodes.
TEST_P(EachDisk, EmptyFilesCount) {
  Box box = start(kBox, 8);
  const auto result = box.exec(fill({"empty", "/root", "100000"}));
  expect_limited(box, result, "2048 files");
}

TEST_P(EachDisk, WhatIsThereCountsInTheNextLife) {
  Box box = start(kBox, kRoomMb);
  ASSERT_EQ(output(box, "/use/fill file /root/first 60"), "done\n");
  ASSERT_TRUE(box.stop());
  const auto result = box.exec(fill({"file", "/root/second", "900"}));
  expect_limited(box, result, "100 MiB");
  if (quota()) {
    EXPECT_EQ(output(box, "rm /root/second && /use/fill file /root/third 30"), "done\n");
  }
}

TEST_P(EachDisk, ALowerLimitThanItsFilesAreIsRefused) {
  Box box = start(kBox, kRoomMb);
  ASSERT_EQ(output(box, "/use/fill file /root/first 60"), "done\n");
  ASSERT_TRUE(box.stop());
  change_limit(kRoomMb, 40);
  Box lowered = again(kBox);
  const auto refused = lowered.start();
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().to_string(), HasSubstr("the box's files take 6"));
  EXPECT_THAT(refused.error().to_string(), HasSubstr("limits.disk_mb allows 40 MiB"));
  EXPECT_THAT(refused.error().hint, HasSubstr("temenos-box.json, or remove the box"));
  change_limit(40, 80);
  Box raised = again(kBox);
  EXPECT_EQ(output(raised, "/use/fill file /root/more 10"), "done\n");
}

// What is no use of the disk is not taken for one.
TEST_P(EachDisk, WhatTakesNothingDoesNotCount) {
  Box box = start(kBox, kRoomMb);
  EXPECT_EQ(output(box, "/use/fill sparse /root/sparse 100000 && /use/fill names /root/n 40 30"),
            "done\ndone\n");
  for (int n = 0; n < 10; ++n) {
    EXPECT_EQ(output(box, "/use/fill file /root/again 50 && rm /root/again"), "done\n");
  }
  EXPECT_EQ(output(box, "/use/fill file /tmp/elsewhere 150 && rm /tmp/elsewhere"), "done\n");
  EXPECT_TRUE(box.is_alive());
}

TEST_P(EachDisk, EachBoxHasItsOwnLimit) {
  std::vector<Box> boxes;
  for (const char* name : {"one", "two", "three"}) boxes.push_back(start(name, 40));
  for (auto& box : boxes) EXPECT_EQ(output(box, "/use/fill file /root/file 30"), "done\n");
  // So much that keeper has its turn meanwhile, on a busy machine too.
  const auto result = boxes[1].exec(fill({"file", "/root/more", "2000"}));
  expect_limited(boxes[1], result, "40 MiB");
  for (const int other : {0, 2}) EXPECT_EQ(output(boxes[other], "echo alive"), "alive\n");
}

TEST_P(EachDisk, WhatHoldsItIsSaid) {
  Box box = start(kBox, kRoomMb);
  ASSERT_EQ(output(box, "/use/fill file /root/file 20"), "done\n");
  const auto holds = [&] { return box.stats().value_or(BoxStats{}); };
  // Counted every few seconds when nothing is near its limit.
  const auto end = std::chrono::steady_clock::now() + patience(30);
  while (holds().disk_bytes.value_or(0) < 20 * kMiB && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  EXPECT_GE(holds().disk_bytes.value_or(0), 20 * kMiB);
  // xfs reserves more for a file that grows.
  EXPECT_LT(holds().disk_bytes.value_or(0), 45 * kMiB);
  if (*GetParam().mount == '\0') return;  // who knows what that is
  EXPECT_EQ(holds().disk_held, quota());
  EXPECT_EQ(holds().disk_watched, !quota());
  const auto doctor = host_.temenos({"doctor", "--json"}, "", "", {{"TEMENOS_RUNSC", "/none"}});
  EXPECT_THAT(doctor.out, HasSubstr(quota() ? R"("held_by":"project_quota","why":"")"
                                            : R"("held_by":"watch","why":")"));
  if (!quota()) EXPECT_THAT(holds().trouble, HasSubstr("the limit of disk is watched"));
}

class Quota : public DiskTest, public ::testing::WithParamInterface<Disk> {
 protected:
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(mount(GetParam()));
    if (!IsSkipped()) LimitsTest::SetUp();
  }
};
INSTANTIATE_TEST_SUITE_P(Each, Quota, ::testing::Values(kQuota, kXfsQuota),
                         [](const auto& info) { return info.param.name; });

TEST_P(Quota, IsGoneWithTheBox) {
  Box box = start(kBox, kRoomMb);
  struct stat st{};
  ASSERT_EQ(stat(data_dir(kBox).c_str(), &st), 0);
  const UniqueFd root(open(disk_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  const auto id = 0x80000000 | static_cast<std::uint32_t>(st.st_ino);
  auto quota = sys::project_quota(root.get(), id);
  ASSERT_TRUE(quota) << quota.error().to_string();
  EXPECT_EQ(quota->limit_bytes, kRoom);
  EXPECT_EQ(quota->limit_files, kRoom / 4096);
  EXPECT_GT(quota->used_files, 10u);
  remove(kBox);
  quota = sys::project_quota(root.get(), id);
  ASSERT_TRUE(quota);
  EXPECT_EQ(quota->limit_bytes, 0u);
  EXPECT_EQ(quota->limit_files, 0u);
  EXPECT_EQ(quota->used_files, 0u);
}

TEST_P(Quota, LetsABoxReserveWhatItMayHave) {
  Box box = start(kBox, kRoomMb);
  EXPECT_EQ(output(box, "/use/fill allocate /root/file 50"), "done\n");
  EXPECT_THAT(output(box, "/use/fill allocate /root/more 60"),
              AnyOf(HasSubstr("quota exceeded"), HasSubstr("No space left")));
}

// By a watcher, on what the tests run on.
class Watched : public DiskTest, public ::testing::WithParamInterface<std::string> {
 protected:
  void SetUp() override {
    mount(kHere);
    LimitsTest::SetUp();
    Box box = start("witness", 10, GetParam());
    const auto stats = box.stats();
    ASSERT_TRUE(stats);
    if (!stats->disk_watched) GTEST_SKIP() << "this file system has project quotas";
  }
  Box limited() { return start(kBox, kRoomMb, GetParam()); }
  static Platform platform() {
    return GetParam() == "ptrace" ? Platform::kPtrace : Platform::kSystrap;
  }
  pid_t meter() {
    const std::string helper = std::to_string(processes(kBox).helper);
    return atoi(host_shell("pgrep -x -P " + helper + " temenos-disk").c_str());
  }
};
INSTANTIATE_TEST_SUITE_P(Each, Watched, ::testing::ValuesIn(platforms()),
                         [](const auto& info) { return info.param; });

TEST_P(Watched, NothingIsHiddenFromIt) {
  for (const char* way : {"moved", "linked", "mapped", "threads"}) {
    SCOPED_TRACE(way);
    Box box = limited();
    const auto result = box.exec(fill({way, "/root/f", "900"}));
    expect_ended(box, result, "100 MiB");
    remove(kBox);
  }
}

// For any size and in an instant, which is faster than any watcher.
TEST_P(Watched, ReservesNothing) {
  Box box = limited();
  EXPECT_THAT(output(box, "/use/fill allocate /root/file 1"), HasSubstr("not supported"));
  // What libraries do then.
  EXPECT_EQ(output(box,
                   "python3 -c 'import os; "
                   "os.posix_fallocate(os.open(\"/root/f\", os.O_CREAT | os.O_RDWR), 0, "
                   "1 << 20); print(os.stat(\"/root/f\").st_blocks)'"),
            "2048\n");
}

// However many processes a box has, and however few descriptors who counts may have.
TEST_P(Watched, ACrowdHidesNothing) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit few{256, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  auto box = manager().create({"", kBox},
                              *Policy::Builder()
                                   .network(NetworkMode::kNone)
                                   .platform(platform())
                                   .limits({.pids = 1000, .disk_mb = kRoomMb})
                                   .mount({.source = guest("fill_disk"), .target = "/use/fill"})
                                   .build());
  ASSERT_TRUE(box) << box.error().to_string();
  const auto started = box->start();
  EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  ASSERT_TRUE(started) << started.error().to_string();
  expect_ended(*box, box->exec(fill({"crowd", "/root/file", "600"})), "100 MiB");
}

// Whoever kills keeper in the moment in which the sandbox stands still leaves nothing that does so
// for ever.
TEST_P(Watched, AKilledKeeperLeavesNothingThatStandsStill) {
  Box box = limited();
  const BoxProcesses held = processes(kBox);
  // Of one that is not there it is 0, and that would be the test itself.
  for (const pid_t pid : {held.keeper, held.gofer, held.sandbox}) ASSERT_GT(pid, 0);
  const Generation life(held);
  for (const auto& group : groups(kBox)) {
    for (const char* freeze : {"cgroup.freeze", "freezer.state"}) {
      const UniqueFd fd(open((group + "/" + freeze).c_str(), O_WRONLY | O_CLOEXEC));
      if (fd) ASSERT_TRUE(sys::write_all(fd.get(), freeze[0] == 'c' ? "1" : "FROZEN"));
    }
  }
  for (const pid_t pid : {held.sandbox, held.gofer}) kill(pid, SIGSTOP);
  ASSERT_EQ(kill(held.keeper, SIGKILL), 0);
  EXPECT_EQ(life.wait_for_end(static_cast<int>(patience(10).count())), "");
  Box next = again(kBox);
  EXPECT_EQ(output(next, "echo alive"), "alive\n");
}

// Nobody else waits for who counts, however long that takes.
TEST_P(Watched, WhileItIsCountedItCanBeAskedAndStopped) {
  Box box = limited();
  Box other = again(kBox);
  const pid_t pid = meter();
  ASSERT_GT(pid, 0);
  ASSERT_EQ(kill(pid, SIGSTOP), 0);
  std::thread writer([&other] { (void)other.exec(fill({"file", "/root/file", "130"})); });
  const auto begin = std::chrono::steady_clock::now();
  while (std::chrono::steady_clock::now() < begin + patience(2)) {
    const auto stats = box.stats();
    EXPECT_TRUE(stats) << stats.error().to_string();
    if (!stats || !stats->disk_watched) break;
  }
  const auto stopping = std::chrono::steady_clock::now();
  EXPECT_TRUE(box.stop());
  EXPECT_LT(std::chrono::steady_clock::now() - stopping, patience(5));
  writer.join();
}

// Deeper than any path or stack, and still counted.
TEST_P(Watched, DeepDirectories) {
  Box box = start(kBox, 4, GetParam());
  const auto result = box.exec(fill({"deep", "/root", "5000"}));
  expect_ended(box, result, "1024 files");
}

// It goes on as if nothing had been, although it was stopped many times.
TEST_P(Watched, ABoxNearItsLimitWorks) {
  Box box = limited();
  ASSERT_EQ(output(box, "/use/fill file /root/file 97"), "done\n");
  for (int n = 0; n < 20; ++n) {
    ASSERT_EQ(output(box, "/use/fill file /root/more 2 && rm /root/more && echo $((6 * 7))"),
              "done\n42\n");
  }
}

TEST_P(Watched, WhoCountsHoldsNothingElse) {
  Box box = limited();
  const pid_t pid = meter();
  ASSERT_GT(pid, 0);
  const std::string proc = "/proc/" + std::to_string(pid);
  const std::string fds = host_shell("ls -l " + proc + "/fd | grep -o ' -> .*'");
  if (geteuid() == 0) {
    EXPECT_EQ(host_shell("ls " + proc + "/fd | wc -l"), "5\n") << fds;
    // DAC_READ_SEARCH, KILL, SYS_PTRACE: of the box's own user namespace.
    EXPECT_EQ(host_shell("grep CapEff " + proc + "/status"), "CapEff:\t0000000000080024\n");
    EXPECT_EQ(host_shell("grep CapBnd " + proc + "/status"), "CapBnd:\t0000000000080024\n");
  } else {
    // Not even its user may look.
    EXPECT_EQ(host_shell("ls " + proc + "/fd 2>/dev/null"), "");
  }
  // Without it there is no limit, so there is no box.
  ASSERT_EQ(host_shell("kill -9 " + std::to_string(pid) + " 2>&1"), "");
  const auto end = std::chrono::steady_clock::now() + patience(20);
  while (box.is_alive() && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  EXPECT_FALSE(box.is_alive());
  EXPECT_THAT(audit(kBox), HasSubstr("the one that counts what its files take"));
}

class NearlyFull : public DiskTest {};

// The host's own room, whatever the box may have.
TEST_F(NearlyFull, ABoxThatGoesOnToWriteIsEnded) {
  mount({"Small",
         "truncate -s 200m $image && mkfs.ext4 -q -m 0 $image && "
         "mount -o loop $image $disk"});
  if (IsSkipped()) return;
  LimitsTest::SetUp();
  Box quiet = start("quiet", kRoomMb);
  Box box = start(kBox, 1000);
  host_shell("head -c " + std::to_string(free_bytes() - 60 * kMiB) + " /dev/zero >" + disk_ +
             "/filler");
  const auto result = box.exec(fill({"slowly", "/root/file", "900"}));
  expect_ended(box, result, "MiB left");
  EXPECT_EQ(output(quiet, "echo alive"), "alive\n");
}

TEST_F(DiskTest, WhereItCannotBeKeptItIsRefused) {
  mount(kHere);
  LimitsTest::SetUp();
  const auto result =
      host_.temenos({"run", "--no-net", "--scratch", "runsc", "--disk", "100", "--", "true"});
  EXPECT_EQ(result.status, 125);
  EXPECT_THAT(result.err, HasSubstr("limits.disk_mb cannot be kept with scratch runsc"));
  const auto tiny =
      host_.temenos({"run", "--no-net", "--disk", "1", "--", "sh", "-c", "echo $((6 * 7))"});
  EXPECT_EQ(tiny.out, "42\n") << tiny.err;
}

TEST_F(DiskTest, TheCommandLineSaysIt) {
  mount(kHere);
  LimitsTest::SetUp();
  const auto result = host_.temenos({"run", "--no-net", "--disk", "20", "--volume",
                                     guest("fill_disk") + ":/use/fill:ro", "--", "/use/fill",
                                     "file", "/root/file", "900"});
  if (result.err.find("Disk quota exceeded") != std::string::npos) return;
  EXPECT_EQ(result.status, 125);
  EXPECT_THAT(result.err, HasSubstr("the box reached its limit of disk space: its files take "));
  EXPECT_THAT(result.err, HasSubstr("and it may have 20 MiB"));
}

}  // namespace
}  // namespace temenos::testing
