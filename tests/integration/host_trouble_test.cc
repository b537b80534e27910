// Hosts that lack what a box needs: each gives one line with the fix within seconds, and nothing
// half-made stays.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <csignal>

#include "sys/file_sys.h"
#include "sys/process_sys.h"
#include "tests/integration/program.h"

namespace temenos::testing {
namespace {

using ::testing::HasSubstr;

class HostTroubleTest : public IntegrationTest {
 protected:
  // `set_up` runs as root of a private mount namespace, temenos then as the user of the test again;
  // both in the test's directory.
  CliResult in_private_mounts(const std::string& set_up, const std::vector<std::string>& args,
                              const Variables& env = {}) {
    std::vector<std::string> argv{"/usr/bin/unshare", "-m"};
    std::string back = "exec \"$@\"";
    if (geteuid() != 0) {
      argv.emplace_back("-Ur");
      // newuidmap cannot work inside of this namespace; without it a box has one id.
      back = "mount --bind /dev/null /usr/bin/newuidmap && exec unshare --map-user=" +
             std::to_string(geteuid()) + " --map-group=" + std::to_string(getegid()) + " \"$@\"";
    }
    argv.insert(argv.end(), {"/bin/sh", "-ec", set_up + "\n" + back, "sh", temenos_program()});
    argv.insert(argv.end(), args.begin(), args.end());
    Program program(host_, argv, env, host_.path());
    return program.finish();
  }

  // A copy of the installed programs without `missing`.
  std::string install_without(const std::string& missing) {
    const std::string from = temenos_program().substr(0, temenos_program().rfind('/'));
    const std::string prefix = host_.dir("prefix");
    host_.dir("prefix/bin");
    host_.dir("prefix/libexec");
    host_shell("rm -rf '" + prefix + "/libexec/temenos'");  // of an earlier one, with its modes
    host_shell("cp '" + from + "/temenos' '" + prefix + "/bin' && cp -r '" + from +
               "/../libexec/temenos' '" + prefix + "/libexec' && rm '" + prefix +
               "/libexec/temenos/" + missing + "'");
    return prefix + "/bin/temenos";
  }

  CliResult run_program(const std::string& program, const Variables& env = {}) {
    Program running(host_, {program, "run", "--no-net", "--", "true"}, env);
    return running.finish();
  }

  // So that no test's runsc meets the platforms of another's.
  Variables with_runsc(const std::string& path) {
    return {{"TEMENOS_RUNSC", path}, {"XDG_CACHE_HOME", host_.dir("cache")}};
  }
};

TEST_F(HostTroubleTest, AProgramOfOursIsMissing) {
  for (const char* name : {"temenos-init", "temenos-keeper", "temenos-session"}) {
    SCOPED_TRACE(name);
    expect_error(run_program(install_without(name)), 125,
                 {"temenos is not installed whole", name, "run ./scripts/setup"});
  }
}

TEST_F(HostTroubleTest, AProgramOfOursCannotBeRun) {
  for (const char* name : {"temenos-keeper", "temenos-session"}) {
    SCOPED_TRACE(name);
    const auto program = install_without(name);
    host_.file("prefix/libexec/temenos/" + std::string(name), "not a program\n");
    expect_error(run_program(program), 125, {"temenos is not installed whole", name, "setup"});
  }
}

// Session parses what a box says: who has taken it over must not get time for the box with it.
TEST_F(HostTroubleTest, ASessionThatIsReadyAgainAndAgain) {
  const auto program = install_without("temenos-session");
  // JAILED, READY, READY, ... on the control socket.
  host_.file(
      "prefix/libexec/temenos/temenos-session",
      "#!/bin/bash\nsay() { printf \"$1\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\" >&4; }\n"
      "say '\\x10'\nwhile say '\\x11'; do sleep 0.5; done\n",
      0755);
  const auto begin = std::chrono::steady_clock::now();
  Program running(host_, {program, "run", "--no-net", "--ttl", "3", "--", "true"});
  expect_error(running.finish(), 125, {"session"});
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
}

TEST_F(HostTroubleTest, NoRunsc) {
  expect_error(run_program(install_without("runsc"), {{"PATH", "/nowhere"}}), 125,
               {"no runsc (gVisor)", "run ./scripts/setup"});
  expect_error(run({}, "true", "", {{"TEMENOS_RUNSC", "/no/such/runsc"}}), 125,
               {"TEMENOS_RUNSC names /no/such/runsc", "run ./scripts/setup"});
}

TEST_F(HostTroubleTest, ARunscThatIsTooOldOrNone) {
  const auto old = host_.file("old",
                              "#!/bin/sh\ncase $1 in --version) echo 'runsc version "
                              "0.0~20221219.0';; flags) printf '  -root string\\n';; esac\n",
                              0755);
  expect_error(run({}, "true", "", with_runsc(old)), 125,
               {"(0.0~20221219.0) is too old: it lacks --directfs", "run ./scripts/setup"});
  const auto other = host_.file("other", "#!/bin/sh\necho hello\n", 0755);
  expect_error(run({}, "true", "", with_runsc(other)), 125,
               {"does not answer --version as runsc does", "run ./scripts/setup"});
  // Not static: in the box's tree there is no shell to run it.
  const auto script =
      host_.file("script",
                 "#!/bin/sh\ncase $1 in --version) echo 'runsc version x';; flags) "
                 "for f in directfs file-access-mounts host-uds ignore-cgroups "
                 "overlay2 panic-log qdisc; do printf '\\n  -%s\\n' $f; done;; esac\n",
                 0755);
  expect_error(run({"--platform", "ptrace"}, "true", "", with_runsc(script)), 125,
               {"cannot run runsc", "./scripts/setup"});
}

TEST_F(HostTroubleTest, ARunscThatHangsWhenAsked) {
  const auto hang = host_.file("hang", "#!/bin/sh\nsleep 1000\n", 0755);
  expect_error(run({}, "true", "", with_runsc(hang)), 125, {"does not answer", "./scripts/setup"});
  EXPECT_TRUE(wait_for_descendants(10));  // what it had started was sent its SIGKILL
}

TEST_F(HostTroubleTest, ARunscThatCrashes) {
  expect_error(run({"--platform", "systrap"}, "true", "", with_runsc(guest("fake_runsc_crashes"))),
               125, {"runsc was ended by signal 11"});
  expect_error(run({}, "true", "", with_runsc(guest("fake_runsc_crashes"))), 125,
               {"gVisor runs no box on this host", "see 'temenos doctor'"});
}

TEST_F(HostTroubleTest, ARunscThatFailsIsQuotedSafely) {
  expect_error(run({"--platform", "ptrace"}, "true", "", with_runsc(guest("fake_runsc_fails"))),
               125, {"runsc exited with status 128", "out of luck\\x1b[31m"});
}

TEST_F(HostTroubleTest, ARunscThatHangsIsGivenUp) {
  // Every platform's trial has its own limit.
  const auto begin = std::chrono::steady_clock::now();
  expect_error(run({}, "true", "", with_runsc(guest("fake_runsc_hangs"))), 125,
               {"did not start in time", "see 'temenos doctor'"});
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(40));
}

TEST_F(HostTroubleTest, CtrlCEndsATrialOfLimitsThatHangs) {
  const auto program = install_without("temenos-keeper");
  const std::string up = host_.path() + "/up";
  host_.file("prefix/libexec/temenos/temenos-keeper",
             "#!/bin/sh\ntest \"$1\" = --try-limits || exit 9\n: >" + up + "\nsleep 1000\n", 0755);
  Program running(host_, {program, "run", "--no-net", "--", "true"},
                  {{"XDG_CACHE_HOME", host_.dir("cache")}});
  ASSERT_TRUE(running.wait_until([&] { return access(up.c_str(), F_OK) == 0; }))
      << running.finish().err;
  running.send(SIGINT);
  expect_error(running.finish(10), 128 + SIGINT, {"interrupted", "the box was not started"});
  EXPECT_TRUE(wait_for_descendants(10));
}

TEST_F(HostTroubleTest, CtrlCEndsAStartThatHangs) {
  Program program(host_, argv({"--platform", "ptrace"}, "true"),
                  with_runsc(guest("fake_runsc_hangs")));
  // Its helper has a child: runsc runs and hangs.
  ASSERT_TRUE(program.wait_until([&] { return box_processes(program.pid()).runsc > 0; }))
      << program.finish().err;
  program.send(SIGINT);
  const auto result = program.finish(10);
  expect_error(result, 128 + SIGINT, {"interrupted", "the box was not started"});
}

// --- what the host forbids or lacks
// ---------------------------------------------------------------

// Temenos in a user namespace of the test's own, which may have `most` below it and has one less
// than that. It has all ids that the test has, so that this is all that differs from the host.
class NoUserNamespaceLeft : public HostTroubleTest, public ::testing::WithParamInterface<int> {
 protected:
  CliResult run_below(int most) {
    auto ends = sys::socket_pair(SOCK_SEQPACKET);
    int out[2];
    if (!ends || pipe2(out, O_CLOEXEC) != 0) return {};
    const bool root = geteuid() == 0;
    const int there = ends->second.get();
    const int here = ends->first.get();
    auto child = sys::start_in_namespaces(CLONE_NEWUSER | CLONE_NEWNS, [&] {
      close(here);
      char byte;
      if (read(there, &byte, 1) != 1) return 90;
      const UniqueFd limit(open("/proc/sys/user/max_user_namespaces", O_WRONLY | O_CLOEXEC));
      if (!sys::write_all(limit.get(), std::to_string(most))) return 91;
      std::vector<sys::Process> others;
      for (int n = 0; n < most; ++n) {
        auto other = sys::start_in_namespaces(CLONE_NEWUSER, [] {
          (void)sys::die_with_parent();
          return pause();
        });
        if (!other) return 92;
        others.push_back(std::move(*other));
      }
      const auto result = run({}, "true");
      for (auto& other : others) {
        other.send(SIGKILL);
        other.wait();
      }
      (void)!write(out[1], result.err.data(), result.err.size());
      return result.out.empty() ? result.status : 93;
    });
    if (!child) return {};
    const sys::IdMapLine ids =
        root ? sys::IdMapLine{0, 0, 4294967295u} : sys::IdMapLine{geteuid(), geteuid(), 1};
    const sys::IdMapLine groups = root ? ids : sys::IdMapLine{getegid(), getegid(), 1};
    EXPECT_TRUE(sys::write_id_maps(child->pid(), {&ids, 1}, {&groups, 1}, !root));
    EXPECT_EQ(write(here, "x", 1), 1);
    const auto status = child->wait();
    close(out[1]);
    const UniqueFd reader(out[0]);
    const auto err = sys::read_all(reader.get(), 65536);
    CliResult result{status ? status->code : -1, "", err.value_or(""), ""};
    take_limits_warning(result);
    return result;
  }
};

TEST_P(NoUserNamespaceLeft, SaysWhichSettingToRaise) {
  expect_error(run_below(GetParam()), 125,
               {"cannot make a user namespace",
                GetParam() == 0 ? "the host forbids them" : "as many namespaces as the host allows",
                "sudo sysctl user.max_user_namespaces="});
}
INSTANTIATE_TEST_SUITE_P(Of, NoUserNamespaceLeft, ::testing::Values(0, 3));

// A quarter of what a user can have is kept free of boxes.
TEST_F(HostTroubleTest, NoProcessLeftForABox) {
  if (geteuid() == 0) GTEST_SKIP() << "root has no limit of processes";
  Program program(
      host_, with_tasks_of_its_own(
                 "for n in $(seq 85); do sleep 1000 & done; ulimit -u 100; \"$@\"; s=$?; "
                 "kill $(jobs -p); exit $s",
                 {temenos_program(), "run", "--no-net", "--platform", "systrap", "--", "true"}));
  expect_error(program.finish(), 125,
               {"this user has as many processes as boxes may leave him with", "ulimit -u"});
}

TEST_F(HostTroubleTest, RootWithoutIdsToGive) {
  Program program(host_,
                  {"/usr/bin/unshare", "-Ur", temenos_program(), "run", "--no-net", "--", "true"});
  expect_error(program.finish(), 125, {"user ids", "container"});
}

TEST_F(HostTroubleTest, OverlayOnOverlay) {
  for (const char* name : {"lower", "upper", "work", "merged"}) host_.dir(name);
  const std::string options = "lowerdir=lower,upperdir=upper,workdir=work";
  const auto result = in_private_mounts(
      "mount -t overlay overlay -o " + options + (geteuid() == 0 ? "" : ",userxattr") + " merged",
      {"run", "--no-net", "--", "true"}, {{"XDG_DATA_HOME", host_.path() + "/merged/data"}});
  expect_error(result, 125,
               {"not supported as upperdir", "set XDG_DATA_HOME to a volume", "--scratch memory"});
  EXPECT_EQ(host_shell("ls -A '" + host_.path() + "/upper/data/temenos/run'"), "");
  const auto doctor = in_private_mounts(
      "mount -t overlay overlay -o " + options + (geteuid() == 0 ? "" : ",userxattr") + " merged",
      {"doctor"}, {{"XDG_DATA_HOME", host_.path() + "/merged/data"}});
  EXPECT_EQ(doctor.status, 125);
  EXPECT_THAT(doctor.out, HasSubstr("--scratch memory"));
}

// As in most containers, where no other place is at hand. No platform is named: the trial must not
// need what the box itself can do without.
TEST_F(HostTroubleTest, OverlayOnOverlayAndNothingThatSurvives) {
  for (const char* name : {"lower", "upper", "work", "merged"}) host_.dir(name);
  const std::string options = "lowerdir=lower,upperdir=upper,workdir=work";
  for (const char* scratch : {"memory", "runsc"}) {
    SCOPED_TRACE(scratch);
    const auto result = in_private_mounts(
        "mount -t overlay overlay -o " + options + (geteuid() == 0 ? "" : ",userxattr") + " merged",
        {"run", "--no-net", "--scratch", scratch, "--", "/bin/sh", "-c",
         "echo kept >/root/f; rm -r /srv; mkdir /srv; cat /root/f"},
        {{"XDG_DATA_HOME", host_.path() + "/merged/data"},
         {"XDG_CACHE_HOME", host_.path() + "/merged/cache"}});
    EXPECT_EQ(result.status, 0) << result.err;
    EXPECT_EQ(result.out, "kept\n");
    EXPECT_EQ(host_shell("ls -A '" + host_.path() + "/upper/data/temenos/run'"), "");
  }
}

TEST_F(HostTroubleTest, DiskFull) {
  host_.dir("tiny");
  const Variables env{{"XDG_DATA_HOME", host_.path() + "/tiny/data"}};
  const std::string left = "ls -A '" + host_.path() + "/tiny/data/temenos/run'";
  // From no inode for anything to enough for all but the last of what a box's directory needs.
  int failed = 0;
  for (const int inodes : {2, 4, 6, 8, 12, 24, 40}) {
    SCOPED_TRACE(inodes);
    const auto result =
        in_private_mounts("mount -t tmpfs -o nr_inodes=" + std::to_string(inodes) + " none tiny",
                          {"run", "--no-net", "--", "true"}, env);
    if (result.status == 0) continue;
    ++failed;
    expect_error(result, 125, {"No space left on device", "XDG_DATA_HOME"});
  }
  EXPECT_GE(failed, 5);
  // Enough to start, not enough for what the command writes: that is the command's own error.
  const auto result = in_private_mounts(
      "mount -t tmpfs -o size=200k none tiny",
      {"run", "--no-net", "--", "/bin/sh", "-c", "head -c 1000000 /dev/zero >~/big || exit 9"},
      env);
  EXPECT_EQ(result.status, 9) << result.err;
  EXPECT_THAT(result.err, HasSubstr("No space left on device"));
}

TEST_F(HostTroubleTest, ReadOnlyDataDirectory) {
  host_.dir("ro");
  const Variables env{{"XDG_DATA_HOME", host_.path() + "/ro/data"}};
  expect_error(
      in_private_mounts("mount -t tmpfs -o ro none ro", {"run", "--no-net", "--", "true"}, env),
      125, {"cannot make", "Read-only file system", "XDG_DATA_HOME"});
  // One that was made before, in modes as people make them.
  expect_error(in_private_mounts("mount -t tmpfs none ro; mkdir -p ro/data/temenos; mount -o "
                                 "remount,bind,ro ro",
                                 {"run", "--no-net", "--", "true"}, env),
               125, {"Read-only file system", "XDG_DATA_HOME"});
  expect_error(in_private_mounts("mount -t tmpfs none ro; mkdir -m 700 -p ro/data/temenos; chmod "
                                 "700 ro/data/temenos; mount -o remount,bind,ro ro",
                                 {"run", "--no-net", "--", "true"}, env),
               125, {"Read-only file system", "XDG_DATA_HOME"});
}

TEST_F(HostTroubleTest, NoHome) {
  // An id that passwd does not know.
  Program program(host_, {"/usr/bin/unshare", "--map-user=4242", "--map-group=4242", "/usr/bin/env",
                          "-i", temenos_program(), "run", "--no-net", "--", "true"});
  expect_error(program.finish(), 125, {"no home directory", "set HOME or XDG_DATA_HOME"});
  // With the directories named nobody needs one.
  Program named(host_, {"/usr/bin/env", "-u", "HOME", temenos_program(), "run", "--no-net", "--",
                        "/bin/echo", "hello"});
  EXPECT_EQ(named.finish().out, "hello\n");
}

TEST_F(HostTroubleTest, WithoutNewuidmapABoxHasOneId) {
  if (geteuid() == 0) GTEST_SKIP() << "root needs no newuidmap";
  const auto result =
      in_private_mounts(":", {"run", "--no-net", "--", "/bin/sh", "-c", "id -u; touch ~/x"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.out, "0\n");
}

}  // namespace
}  // namespace temenos::testing
