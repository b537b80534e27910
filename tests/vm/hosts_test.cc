// Machines on which systemd gives less than usual, or goes away in the middle: what is told, what
// is refused, that nothing hangs and that no group is left. Made out of the test machine and of its
// account "other", which has no systemd of its own, and put back after each test.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pwd.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <sstream>

#include "codec/json.h"
#include "tests/limits/limits_test.h"
#include "tests/vm/machine.h"

namespace temenos::testing {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kOther[] = "other";
constexpr char kBox[] = "tested";
constexpr int kManyHang = 300;  // some boxes, one after the other

class LesserHost : public IntegrationTest {
 protected:
  void SetUp() override {
    ASSERT_EQ(access("/etc/temenos-vm", F_OK), 0)
        << "this changes the machine: see tests/vm/suites";
    ASSERT_EQ(geteuid(), 0u);
    const passwd* entry = getpwnam(kOther);
    ASSERT_NE(entry, nullptr);
    uid_ = std::to_string(entry->pw_uid);
    data_ = host_.dir("of-other");
    ASSERT_EQ(chown(data_.c_str(), entry->pw_uid, entry->pw_gid), 0);
    // The platforms were tried once; what holds limits is another thing in each test.
    cache_ = "/var/tmp/temenos-test-cache-" + uid_;
    as_root("install -d -o other -g other " + cache_ + "; rm -f " + cache_ +
            "/temenos/limits.json");
  }
  void TearDown() override {
    if (uid_.empty()) return;
    // A manager that has lost the bus does not look for it again.
    if (lost_the_bus_) {
      as_root(
          "systemctl start dbus.socket dbus.service systemd-logind.service; "
          "systemctl try-restart 'user@*.service'");
    }
    as_root("rm -rf /run/systemd/system/user*" + uid_ + "*.d; systemctl daemon-reload");
    no_manager();
    for (const auto& path : groups_) EXPECT_FALSE(std::filesystem::exists(path)) << path;
    as_root("find " + data_ + " -mindepth 1 -delete");
    IntegrationTest::TearDown();
  }

  std::string manager_unit() const { return "user@" + uid_ + ".service"; }
  std::string manager_group() const {
    return "/sys/fs/cgroup/user.slice/user-" + uid_ + ".slice/" + manager_unit();
  }
  // A user manager for the account, as for one who lingers.
  void manager() {
    as_root("loginctl enable-linger other");
    ASSERT_TRUE(comes_true("systemctl -q is-active " + manager_unit() + " && test -S /run/user/" +
                           uid_ + "/bus"));
  }
  void no_manager() {
    as_root("loginctl disable-linger other; systemctl stop " + manager_unit() +
            "; systemctl stop user-" + uid_ + ".slice; systemctl reset-failed");
    EXPECT_TRUE(comes_true("test ! -e /run/user/" + uid_));
  }
  // A part of a unit's file, until the end of the test.
  void configure(const std::string& unit, const std::string& text) {
    as_root("mkdir -p /run/systemd/system/" + unit + ".d; printf '" + text +
            "' >/run/systemd/system/" + unit + ".d/test.conf; systemctl daemon-reload");
  }

  // WORDS as the account, in the machine's own mounts: this process' ones do not see what systemd
  // mounts for it (Leftovers).
  std::vector<std::string> as_other(std::vector<std::string> words) const {
    words.insert(words.begin(),
                 {"/usr/bin/nsenter", "--mount=/proc/1/ns/mnt", "--", "/usr/bin/setpriv",
                  "--reuid=other", "--regid=other", "--init-groups", "--reset-env", "/usr/bin/env",
                  "-C", data_, "XDG_RUNTIME_DIR=/run/user/" + uid_, "XDG_DATA_HOME=" + data_,
                  "XDG_CONFIG_HOME=" + data_, "XDG_CACHE_HOME=" + cache_});
    return words;
  }
  CliResult finish(std::vector<std::string> words, int seconds = kHangs) {
    Program program(host_, std::move(words));
    auto result = program.finish(seconds);
    EXPECT_NE(result.status, -1) << "it hangs; so far: " << result.out << result.err;
    return result;
  }
  static std::vector<std::string> run_words(std::vector<std::string> words) {
    words.insert(words.begin(), {temenos_program(), "run", "--no-net", "--platform", "systrap"});
    return words;
  }
  CliResult run(std::vector<std::string> words) {
    return finish(as_other(run_words(std::move(words))));
  }
  CliResult tool(std::vector<std::string> words) {
    words.insert(words.begin(), guest("box_tool"));
    return finish(as_other(std::move(words)));
  }
  // Of a box that lives, also for TearDown: with systemd the scope is to go, too.
  std::vector<std::string> groups() {
    std::istringstream lines(as_root("cat " + data_ + "/temenos/boxes/*/groups"));
    std::vector<std::string> now;
    for (std::string line; std::getline(lines, line);) {
      EXPECT_TRUE(std::filesystem::exists(line)) << line;
      now.push_back(line);
      groups_.push_back(line.substr(
          0, line.rfind(".scope") == std::string::npos ? line.npos : line.rfind(".scope") + 6));
    }
    return now;
  }
  void expect_gone() {
    for (const auto& path : groups_) EXPECT_TRUE(comes_true("test ! -e " + path)) << path;
  }
  // What is known of a driver here: what doctor prints, without its trials of platforms.
  boost::json::object tried(const std::string& driver) {
    const std::string libexec = guest("../libexec/temenos/");
    const auto result =
        finish(as_other({libexec + "temenos-keeper", "--try-limits", libexec + "temenos-scope"}));
    const auto document = parse_json(result.out, {});
    EXPECT_TRUE(document) << result.out << result.err;
    if (!document) return {};
    for (const auto& trial : document->at("trials").as_array()) {
      if (trial.at("driver").as_string() == driver) return trial.as_object();
    }
    ADD_FAILURE() << "no trial of " << driver << ": " << result.out;
    return {};
  }
  // Told once where it is not required, refused where it is.
  void expect_told_or_refused(const std::string& lacking, const std::string& why,
                              const std::vector<std::string>& limits) {
    auto words = limits;
    words.insert(words.end(), {"--", "echo", "ran"});
    const auto effort = run(words);
    EXPECT_EQ(effort.out, "ran\n") << effort.err;
    EXPECT_THAT(effort.limits_warning, HasSubstr("no limit of " + lacking));
    EXPECT_THAT(effort.limits_warning, HasSubstr(why));
    EXPECT_EQ(effort.err, "") << "told once";
    words.insert(words.begin(), {"--limits", "required"});
    const auto required = run(words);
    EXPECT_EQ(required.status, 125);
    EXPECT_EQ(required.out, "");
    EXPECT_THAT(required.err, HasSubstr("limits are required"));
    EXPECT_THAT(required.err, HasSubstr(why));
    EXPECT_EQ(required.err.find('\n'), required.err.size() - 1) << "not one line: " << required.err;
  }
  void expect_held() {
    const auto all = run({"--limits", "required", "--memory", "256", "--cpus", "1", "--pids", "100",
                          "--", "echo", "ran"});
    EXPECT_EQ(all.out, "ran\n") << all.err;
  }

  std::string uid_;
  std::string data_;
  std::string cache_;
  std::vector<std::string> groups_;
  bool lost_the_bus_ = false;
};

TEST_F(LesserHost, AUserWithoutASystemdOfHisOwn) {
  const auto trial = tried("systemd-user");
  EXPECT_THAT(std::string(trial.at("fix").as_string()), HasSubstr("loginctl enable-linger other"));
  expect_told_or_refused("memory and CPU", "no systemd of this user runs",
                         {"--memory", "256", "--cpus", "1"});
  // What is told to do helps, at once.
  manager();
  expect_held();
}

// Without accounting systemd gives the manager what is delegated and no more.
TEST_F(LesserHost, AUserManagerWithoutTheCpuController) {
  configure(manager_unit(), "[Service]\\nDelegate=\\nDelegate=pids\\n");
  manager();
  ASSERT_EQ(as_root("grep -cw cpu " + manager_group() + "/cgroup.controllers || true"), "0\n");
  const auto trial = tried("systemd-user");
  EXPECT_TRUE(trial.at("memory").as_bool());
  EXPECT_TRUE(trial.at("tasks").as_bool());
  EXPECT_FALSE(trial.at("cpu").as_bool());
  EXPECT_THAT(std::string(trial.at("fix").as_string()), HasSubstr("Delegate=cpu memory pids"));
  expect_told_or_refused("CPU", "systemd", {"--memory", "256", "--cpus", "1"});
  // Who wants none is not hindered.
  EXPECT_EQ(run({"--limits", "required", "--memory", "256", "--", "echo", "ran"}).out, "ran\n");
}

// As where the kernel was told cgroup_disable=memory.
TEST_F(LesserHost, AUserManagerWithoutTheMemoryController) {
  configure("user-" + uid_ + ".slice", "[Slice]\\nDisableControllers=memory\\n");
  manager();
  ASSERT_EQ(as_root("grep -cw memory " + manager_group() + "/cgroup.controllers || true"), "0\n");
  const auto trial = tried("systemd-user");
  EXPECT_FALSE(trial.at("memory").as_bool());
  EXPECT_TRUE(trial.at("tasks").as_bool());
  expect_told_or_refused("memory", "systemd", {"--memory", "256"});
  ASSERT_EQ(tool({"new", kBox}).status, 0);
  EXPECT_THAT(as_root("cat " + data_ + "/temenos/boxes/*/audit.jsonl"),
              HasSubstr("no limit of memory"));
  groups();
  EXPECT_EQ(tool({"remove", kBox}).status, 0);
  expect_gone();
}

// ---- gone while a box runs

class GoneInTheMiddle : public LesserHost {
 protected:
  void SetUp() override {
    LesserHost::SetUp();
    if (HasFatalFailure()) return;
    manager();
    const auto made = tool({"new", kBox});
    ASSERT_EQ(made.status, 0) << made.err;
    const auto now = groups();
    ASSERT_EQ(now.size(), 1u);
    ASSERT_THAT(now[0], HasSubstr(manager_unit()));
  }
  void expect_alive() {
    const auto result = tool({"exec", kBox, "echo", "alive"});
    EXPECT_EQ(result.out, "alive\n") << result.err;
  }
  // The audit log's last start of a box with a name.
  void expect_next_start_told() {
    const auto next = tool({"exec", kBox, "echo", "again"});
    EXPECT_EQ(next.out, "again\n") << next.err;
    EXPECT_THAT(as_root("grep '\"start\"' " + data_ + "/temenos/boxes/*/audit.jsonl | tail -n 1"),
                HasSubstr("no limit of memory"));
    EXPECT_EQ(tool({"stop", kBox}).status, 0);
  }
  void expect_removed() {
    const auto removed = tool({"remove", kBox});
    EXPECT_EQ(removed.status, 0) << removed.err;
    expect_gone();
  }
};

TEST_F(GoneInTheMiddle, TheUsersBus) {
  auto systemctl = [this](std::vector<std::string> words) {
    words.insert(words.begin(), {"/usr/bin/systemctl", "--user"});
    const auto done = finish(as_other(std::move(words)));
    EXPECT_EQ(done.status, 0) << done.err;
  };
  systemctl({"stop", "dbus.socket", "dbus.service"});
  expect_alive();
  EXPECT_EQ(tool({"stop", kBox}).status, 0);
  expect_gone();
  expect_next_start_told();
  systemctl({"start", "dbus.socket"});
  expect_alive();
  EXPECT_EQ(groups().size(), 1u) << "the bus is there again, and the box has no group";
  expect_removed();
}

// It is not seen at the door: who asks for a scope gets no answer.
TEST_F(GoneInTheMiddle, TheUserManagerStandsStill) {
  const std::string signal = "systemctl kill --kill-who=main " + manager_unit() + " --signal=";
  as_root(signal + "STOP");
  expect_alive();
  EXPECT_EQ(tool({"stop", kBox}).status, 0);
  const auto required = run({"--limits", "required", "--", "echo", "ran"});
  EXPECT_EQ(required.status, 125) << required.out;
  EXPECT_THAT(required.err, HasSubstr("limits are required"));
  expect_next_start_told();
  as_root(signal + "CONT");
  expect_alive();
  EXPECT_EQ(groups().size(), 1u);
  expect_removed();
}

// systemd ends with the manager all that is in its group, and so the box.
TEST_F(GoneInTheMiddle, TheUserManagerIsKilled) {
  as_root("systemctl kill --kill-who=main --signal=KILL " + manager_unit());
  ASSERT_TRUE(comes_true("! systemctl -q is-active " + manager_unit()));
  expect_gone();
  expect_next_start_told();
  as_root("systemctl reset-failed; systemctl start " + manager_unit());
  expect_alive();
  EXPECT_EQ(groups().size(), 1u);
  expect_removed();
}

// Of the machine: root's boxes ask over it, and a user's manager does to have processes moved.
TEST_F(GoneInTheMiddle, TheSystemBus) {
  Program roots(host_, run_words({"-i", "--", "sh", "-c", "echo up; read line; echo $line"}));
  ASSERT_TRUE(roots.wait_for("up\n"));
  const std::string of_root = host_shell("find /sys/fs/cgroup -name 'temenos-run-*.scope'");
  ASSERT_THAT(of_root, HasSubstr("/system.slice/"));
  as_root("systemctl stop dbus.socket dbus.service");
  lost_the_bus_ = true;
  expect_alive();
  EXPECT_EQ(write(roots.in(), "alive\n", 6), 6) << strerror(errno);
  const auto ended = roots.finish(kHangs);
  EXPECT_THAT(ended.out, HasSubstr("alive\n")) << ended.err;
  EXPECT_TRUE(comes_true("test ! -e " + of_root.substr(0, of_root.find('\n'))));
  const auto required = finish(run_words({"--limits", "required", "--", "echo", "ran"}));
  EXPECT_EQ(required.status, 125) << required.out;
  EXPECT_THAT(required.err, HasSubstr("limits are required"));
  EXPECT_EQ(tool({"stop", kBox}).status, 0);
  expect_gone();
  expect_next_start_told();
  as_root("systemctl start dbus.socket dbus.service systemd-logind.service");
  // A user's manager has lost it, and moves no process until it begins anew.
  const auto lost = tried("systemd-user");
  EXPECT_FALSE(lost.at("memory").as_bool());
  EXPECT_THAT(std::string(lost.at("fix").as_string()), HasSubstr("systemctl --user daemon-reexec"));
  EXPECT_EQ(finish(as_other({"/usr/bin/systemctl", "--user", "daemon-reexec"})).status, 0);
  expect_alive();
  EXPECT_EQ(groups().size(), 1u);
  expect_removed();
}

// ---- a subtree of the caller's, and no systemd to ask

class Subtree : public LesserHost {
 protected:
  // SCRIPT in a leaf of a unit that has a subtree; $tree is its directory. OPTIONS of systemd-run.
  CliResult in_unit(const std::string& options, const std::string& script) {
    const std::string inside =
        "set -e; tree=/sys/fs/cgroup$(sed s/^0::// /proc/self/cgroup); mkdir $tree/leaf; "
        "echo 0 >$tree/leaf/cgroup.procs; cd " +
        data_ + "; " + script;
    return finish({"/bin/sh", "-c",
                   "exec systemd-run --quiet --wait --pipe --collect -p Delegate=yes " + options +
                       " /bin/sh -c \"$1\"",
                   "sh", inside},
                  kManyHang);
  }
  static std::string quoted(const std::vector<std::string>& words) {
    std::string out;
    for (const auto& word : words) out += "'" + word + "' ";
    return out;
  }
  std::string variables(const std::string& cache) const {
    return "-E XDG_DATA_HOME=" + data_ + " -E XDG_CONFIG_HOME=" + data_ +
           " -E XDG_CACHE_HOME=" + cache + " -E HOME=" + data_ + " ";
  }
  // Limits hold, a box lives with them in a group of the tree, and none is left.
  std::string script() const {
    const auto required = run_words({"--limits", "required", "--memory", "128", "--cpus", "1",
                                     "--pids", "64", "--volume", guest("use_up") + ":/use/up:ro"});
    const std::string tool = "'" + guest("box_tool") + "' ";
    return quoted(required) + "-- echo held; " + quoted(required) +
           "-- /use/up memory 400 || echo status $?; " + tool + "new " + kBox + "; cat '" + data_ +
           "'/temenos/boxes/*/groups; " + tool + "stop " + kBox + "; " + tool + "remove " + kBox +
           "; find $tree -mindepth 1 -type d";
  }
  void expect_kept(const CliResult& result) {
    EXPECT_EQ(result.status, 0) << result.err;
    EXPECT_THAT(result.err, HasSubstr("out of memory"));
    EXPECT_EQ(result.limits_warning, "");
    std::istringstream lines(result.out);
    std::vector<std::string> seen;
    for (std::string line; std::getline(lines, line);) seen.push_back(line);
    ASSERT_EQ(seen.size(), 4u) << result.out;
    EXPECT_EQ(seen[0], "held");
    EXPECT_EQ(seen[1], "status 137");
    EXPECT_THAT(seen[2], HasSubstr(std::string("/temenos-") + kBox));
    EXPECT_THAT(seen[2], Not(HasSubstr(".scope")));
    EXPECT_THAT(seen[3], HasSubstr("/leaf")) << "no other group is left";
  }
};

// A service of a user, as a CI runner is, who has no systemd of his own.
TEST_F(Subtree, OfAServiceOfAUser) {
  expect_kept(in_unit("-p User=other " + variables(cache_), script()));
}

TEST_F(Subtree, OfRootWhereTheSystemBusIsOutOfSight) {
  // What root's other tests know of platforms, and nothing of limits.
  const std::string cache = host_.path() + "/cache-of-root";
  as_root("cp -a /var/tmp/temenos-test-cache-0 " + cache + "; rm -f " + cache +
          "/temenos/limits.json");
  expect_kept(in_unit("-p TemporaryFileSystem=/run/dbus " + variables(cache), script()));
}

// docs/limits.md: as on a machine without systemd, which is out of sight here.
TEST_F(Subtree, MadeByHandForAUser) {
  const std::string tree = "/sys/fs/cgroup/boxes";
  const std::string inside = "tree=" + tree + "; cd " + data_ + "; " + script();
  const auto result = finish(
      {"/usr/bin/unshare", "--mount", "--propagation", "private", "/bin/sh", "-ec",
       "mount -t tmpfs none /run/systemd; mkdir -p " + tree +
           "/shell; echo '+memory +pids +cpu' >" + tree +
           "/cgroup.subtree_control; chown -R other " + tree + "; echo $$ >" + tree +
           "/shell/cgroup.procs; exec setpriv --reuid=other --regid=other --init-groups "
           "--reset-env env XDG_DATA_HOME=" +
           data_ + " XDG_CONFIG_HOME=" + data_ + " XDG_CACHE_HOME=" + cache_ + " sh -ec \"$1\"",
       "sh", inside},
      kManyHang);
  EXPECT_THAT(as_root("rmdir " + tree + "/shell " + tree), "");
  auto leaf = result;
  const auto at = leaf.out.rfind("/shell");
  if (at != std::string::npos) leaf.out.replace(at, 6, "/leaf");
  expect_kept(leaf);
}

// Who is in no leaf of it can be given no group; it is told what to do.
TEST_F(Subtree, WhoseProcessesAreInNoLeaf) {
  const auto required = quoted(run_words({"--limits", "required", "--", "echo", "ran"}));
  const auto result = finish({"/bin/sh", "-c",
                              "exec systemd-run --quiet --wait --pipe --collect -p Delegate=yes "
                              "-p User=other " +
                                  variables(cache_) + required});
  EXPECT_EQ(result.status, 125) << result.out;
  EXPECT_THAT(result.err, HasSubstr("limits are required"));
}

}  // namespace
}  // namespace temenos::testing
