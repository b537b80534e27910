// Boxes with names as programs use them: several programs at once, programs that die, boxes that
// end by themselves, and data dirs that are not as they were left.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <deque>
#include <fstream>

#include "keeper/messages.h"
#include "temenos/box_manager.h"
#include "temenos/policy_builder.h"
#include "tests/integration/durable_box.h"

namespace temenos::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

constexpr char kBox[] = "box";

class ManagerTest : public DurableBoxTest {
 protected:
  void SetUp() override { enter_host(); }
  static BoxManager manager() {
    auto opened = BoxManager::open();
    if (!opened) ADD_FAILURE() << opened.error().to_string();
    return std::move(*opened);
  }
  static Policy policy(const std::string& write = "") {
    Policy::Builder builder;
    builder.network(NetworkMode::kNone).platform(Platform::kSystrap);
    if (!write.empty()) builder.write(write);
    return *builder.build();
  }
  // The one box of `kBox`, made by the library in this process.
  Box make() {
    auto box = manager().create({"", kBox}, policy());
    if (!box) ADD_FAILURE() << box.error().to_string();
    return std::move(*box);
  }
  static ExecRequest shell(const std::string& script) {
    ExecRequest request;
    request.argv = {"sh", "-c", script};
    return request;
  }
  static std::string output(Box& box, const std::string& script) {
    const auto result = box.exec(shell(script));
    return result ? result->stdout_data : result.error().to_string();
  }
  std::size_t starts_in_log() const {
    std::ifstream in(data_dir(kBox) + "/audit.jsonl");
    std::size_t starts = 0;
    for (std::string line; std::getline(in, line);) {
      starts += line.find("\"start\"") != std::string::npos;
    }
    return starts;
  }
};

TEST_F(ManagerTest, NamesAndScopes) {
  BoxManager boxes = manager();
  const std::string project = host_.dir("project");
  const std::string longest(63, 'x');
  for (const std::string& bad : {std::string(), std::string(".x"), std::string("a/b"),
                                 std::string(".."), longest + "x", std::string("a\nb")}) {
    const auto made = boxes.create({"", bad}, policy());
    ASSERT_FALSE(made) << bad;
    EXPECT_EQ(made.error().code, Code::kInvalidArgument);
    EXPECT_NE(made.error().hint, "");
    EXPECT_EQ(boxes.find({"", bad}).error().code, Code::kInvalidArgument);
    EXPECT_EQ(boxes.remove({"", bad}).error().code, Code::kInvalidArgument);
  }
  // The same name in two scopes is two boxes.
  ASSERT_TRUE(boxes.create({project, "b"}, policy(), project));
  ASSERT_TRUE(boxes.create({"", "b"}, policy()));
  ASSERT_TRUE(boxes.create({"", longest}, policy()));
  ASSERT_TRUE(boxes.create({"", "a"}, policy()));
  std::vector<std::string> seen;
  const auto list = boxes.list();
  ASSERT_TRUE(list);
  for (const auto& info : *list) {
    seen.push_back(info.name.scope + ":" + info.name.name);
    EXPECT_EQ(info.trouble, "");
    EXPECT_FALSE(info.alive);
    EXPECT_EQ(info.project_dir, info.name.scope);
  }
  EXPECT_THAT(seen, ElementsAre(":a", ":b", ":" + longest, project + ":b"));
  EXPECT_TRUE(boxes.remove({project, "b"}));
  const auto none = boxes.find({project, "b"});
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, Code::kNotFound);
  EXPECT_NE(none.error().hint, "");
  EXPECT_TRUE(boxes.find({"", "b"}));
}

TEST_F(ManagerTest, ANameIsTakenUntilItsBoxIsRemoved) {
  BoxManager boxes = manager();
  Box first = make();
  const auto second = boxes.create({"", kBox}, policy());
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, Code::kAlreadyExists);
  EXPECT_NE(second.error().hint, "");
  EXPECT_EQ(output(first, "echo old >/root/file; echo made"), "made\n");
  EXPECT_TRUE(boxes.remove({"", kBox}));
  // A handle of what is gone hears so, and never comes to the next one of its name.
  auto next = boxes.create({"", kBox}, policy());
  ASSERT_TRUE(next) << next.error().to_string();
  const auto stale = first.exec(shell("true"));
  ASSERT_FALSE(stale);
  EXPECT_EQ(stale.error().code, Code::kNotFound) << stale.error().to_string();
  EXPECT_NE(stale.error().hint, "");
  EXPECT_EQ(output(*next, "ls /root; echo empty"), "empty\n");
}

TEST_F(ManagerTest, OfTwoThatStartItOneDoes) {
  make();
  for (int n = 0; n < 5; ++n) {
    const auto before = starts_in_log();
    Program one = start_tool({"exec", kBox, "sh", "-c", "echo 1 >/tmp/one; echo up"});
    Program two = start_tool({"exec", kBox, "sh", "-c", "echo 2 >/tmp/two; echo up"});
    EXPECT_EQ(one.finish().out, "up\n");
    EXPECT_EQ(two.finish().out, "up\n");
    // /tmp is of one life.
    EXPECT_EQ(run_tool({"exec", kBox, "sh", "-c", "cat /tmp/one /tmp/two"}).out, "1\n2\n");
    EXPECT_EQ(starts_in_log(), before + 1);
    EXPECT_EQ(run_tool({"stop", kBox}).status, 0);
  }
}

TEST_F(ManagerTest, AnotherProcessStopsIt) {
  Box box = make();
  ASSERT_TRUE(box.start());
  EXPECT_TRUE(box.is_alive());
  Program caller = start_tool({"exec", kBox, "sh", "-c", "echo up; sleep 1000"});
  ASSERT_TRUE(caller.wait_for("up\n"));
  EXPECT_EQ(run_tool({"stop", kBox}).status, 0);
  EXPECT_FALSE(box.is_alive());
  const auto told = caller.finish();
  expect_told(told, "the caller");
  EXPECT_THAT(told.err, HasSubstr("the box was stopped"));
  // This handle hears of it with its next call, and the one after starts the box.
  const auto next = box.exec(shell("echo next"));
  if (!next) EXPECT_EQ(next.error().code, Code::kBoxDied) << next.error().to_string();
  EXPECT_EQ(output(box, "echo again"), "again\n");
  // Who stops it twice is not told off.
  EXPECT_TRUE(box.stop());
  EXPECT_TRUE(box.stop());
}

TEST_F(ManagerTest, EightProcessesRunCommandsAtOnce) {
  ASSERT_TRUE(make().start());
  std::deque<Program> programs;
  for (int n = 0; n < 8; ++n) {
    const std::string number = std::to_string(n);
    programs.emplace_back(
        host_, std::vector<std::string>{
                   guest("box_tool"), "exec", kBox, "sh", "-c",
                   "for i in $(seq 50); do echo " + number + " >>/root/all; done; echo " + number});
  }
  for (int n = 0; n < 8; ++n) {
    const auto result = programs[static_cast<std::size_t>(n)].finish();
    EXPECT_EQ(result.status, 0) << result.err;
    EXPECT_EQ(result.out, std::to_string(n) + "\n");
  }
  EXPECT_EQ(run_tool({"exec", kBox, "sh", "-c", "sort /root/all | uniq -c | awk '{print $1}'"}).out,
            "50\n50\n50\n50\n50\n50\n50\n50\n");
}

TEST_F(ManagerTest, ItOutlivesItsStarter) {
  make();
  Program starter = start_tool({"hold", kBox});
  ASSERT_TRUE(starter.wait_for("held\n"));
  const auto before = processes(kBox);
  ASSERT_GT(before.sandbox, 0);
  starter.send(SIGKILL);
  EXPECT_EQ(starter.finish().status, 1000 + SIGKILL);
  EXPECT_EQ(run_tool({"exec", kBox, "echo", "alive"}).out, "alive\n");
  EXPECT_EQ(processes(kBox).sandbox, before.sandbox);
}

TEST_F(ManagerTest, OneThatEndedByItselfIsStartedAgain) {
  Box box = make();
  EXPECT_EQ(output(box, "echo kept >/root/file; echo gone >/tmp/file; echo done"), "done\n");
  const auto killed = box.exec(shell("kill -9 1; sleep 1000"));
  ASSERT_FALSE(killed);
  EXPECT_EQ(killed.error().code, Code::kBoxDied);
  EXPECT_NE(killed.error().hint, "");
  EXPECT_EQ(output(box, "cat /root/file; ls /tmp"), "kept\n");
}

// Not the success of a box that is dead, also when nothing was asked of it since.
TEST_F(ManagerTest, AStartAfterAnEndThatNobodyHasHeardOf) {
  Box box = make();
  const std::pair<pid_t BoxProcesses::*, const char*> victims[] = {
      {&BoxProcesses::sandbox, "sandbox_died"}, {&BoxProcesses::keeper, "keeper_died"}};
  std::size_t starts = 0;
  for (const auto& [victim, reason] : victims) {
    SCOPED_TRACE(reason);
    ASSERT_TRUE(box.start());
    const Generation life(processes(kBox));
    ASSERT_EQ(kill(life.processes().*victim, SIGKILL), 0);
    EXPECT_EQ(life.wait_for_end(30), "");
    const auto started = box.start();
    ASSERT_TRUE(started) << started.error().to_string();
    EXPECT_TRUE(box.is_alive());
    EXPECT_EQ(box.end_reason(), reason);
    ASSERT_TRUE(box.ended());
    EXPECT_NE(box.ended()->hint, "");
    starts += 2;
    EXPECT_EQ(starts_in_log(), starts);
    EXPECT_EQ(output(box, "echo again"), "again\n");
    ASSERT_TRUE(box.stop());
  }
}

TEST_F(ManagerTest, ACommandAfterAnEndThatNobodyHasHeardOfTellsItOnce) {
  Box box = make();
  ASSERT_TRUE(box.start());
  const auto port = box.forward({.port = 1});
  ASSERT_TRUE(port) << port.error().to_string();
  const Generation life(processes(kBox));
  ASSERT_EQ(kill(life.processes().sandbox, SIGKILL), 0);
  EXPECT_EQ(life.wait_for_end(30), "");
  const auto told = box.forward({.port = 1});
  ASSERT_FALSE(told);
  EXPECT_EQ(told.error().code, Code::kBoxDied);
  EXPECT_THAT(told.error().to_string(), HasSubstr("the sandbox (gVisor's sentry) was killed"));
  EXPECT_EQ(box.end_reason(), "sandbox_died");
  EXPECT_EQ(output(box, "echo again"), "again\n");
}

TEST_F(ManagerTest, OneWithoutANameThatHasEndedSaysHowEachTime) {
  auto box = manager().run(policy());
  ASSERT_TRUE(box) << box.error().to_string();
  ASSERT_TRUE(box->start());
  const Generation life(box_processes(getpid()));
  ASSERT_GT(life.processes().sandbox, 0);
  ASSERT_EQ(kill(life.processes().sandbox, SIGKILL), 0);
  EXPECT_EQ(life.wait_for_end(30), "");
  for (int n = 0; n < 2; ++n) {
    const auto started = box->start();
    const auto ran = box->exec(shell("true"));
    ASSERT_FALSE(started);
    ASSERT_FALSE(ran);
    for (const Error& said : {started.error(), ran.error()}) {
      EXPECT_EQ(said.code, Code::kBoxDied);
      EXPECT_THAT(said.to_string(), HasSubstr("the sandbox (gVisor's sentry) was killed"));
    }
  }
  EXPECT_EQ(box->end_reason(), "sandbox_died");
}

TEST_F(ManagerTest, OneThatEndedWhileNothingWasAskedIsStartedByTheSameHandle) {
  const auto idle =
      Policy::Builder().network(NetworkMode::kNone).limits({.idle_seconds = 1}).build();
  auto box = manager().create({"", kBox}, *idle);
  ASSERT_TRUE(box) << box.error().to_string();
  EXPECT_EQ(output(*box, "echo first"), "first\n");
  for (int i = 0; box->is_alive() && i < 1'000; ++i) usleep(10'000);
  ASSERT_FALSE(box->is_alive());
  usleep(100'000);  // the keeper's last word comes a moment after
  EXPECT_EQ(output(*box, "echo second"), "second\n");
  EXPECT_EQ(starts_in_log(), 2u);
}

// As daemons do, so that their children need no wait; it passes through fork and exec.
TEST_F(ManagerTest, AStarterThatIgnoresTheEndOfItsChildren) {
  Box box = make();
  ASSERT_TRUE(box.start());  // the host is known from here on
  ASSERT_TRUE(box.stop());
  const auto before = signal(SIGCHLD, SIG_IGN);
  const auto killed = box.exec(shell("kill -9 1; sleep 1000"));
  ASSERT_FALSE(killed);
  EXPECT_THAT(killed.error().to_string(), HasSubstr("init (its process 1) ended"));
  signal(SIGCHLD, before);
}

TEST_F(ManagerTest, AStartThatFailsKeepsNothingLocked) {
  Box box = make();
  const std::string jobs = data_dir(kBox) + "/jobs";
  std::ofstream(jobs) << "no directory";
  ASSERT_FALSE(box.start());
  EXPECT_FALSE(box.is_alive());
  ASSERT_EQ(unlink(jobs.c_str()), 0);
  EXPECT_TRUE(box.start());
}

// One that lies in what a box may write, because XDG_DATA_HOME was another one then, is not hidden.
TEST_F(ManagerTest, TheRecordInAnotherDataDirIsNotWrittenByABox) {
  const std::string dir = host_.dir("work");
  ASSERT_EQ(run_tool({"create", "victim"}, {{"XDG_DATA_HOME", dir}}).status, 0);
  ASSERT_EQ(run_tool({"create", kBox}, {{"WRITE", dir}}).status, 0);
  const std::string boxes = dir + "/temenos/boxes/";
  EXPECT_EQ(run_tool({"exec", kBox, "sh", "-c",
                      "cd " + boxes +
                          "*/ || exit; echo x 2>/dev/null >>$(echo *box.json) && echo written;"
                          "mv ../*/ ../other 2>/dev/null && echo moved; rm *box.json 2>/dev/null "
                          "&& echo gone"})
                .out,
            "");
  ASSERT_EQ(run_tool({"remove", "victim"}, {{"XDG_DATA_HOME", dir}}).status, 0);
}

// --- what a box leaves for host programs, when it ends without a word
// ----------------------------------------------------------------------------------------------

class AutoexecOfTheDead : public ManagerTest {
 protected:
  void SetUp() override {
    ManagerTest::SetUp();
    dir_ = host_.dir("work");
    ASSERT_EQ(run_tool({"create", kBox}, {{"WRITE", dir_}}).status, 0);
    const auto made = run_tool({"exec", kBox, "sh", "-c", "echo evil >" + dir_ + "/.envrc"});
    ASSERT_EQ(made.status, 0) << made.err;
    const Generation life(processes(kBox));
    ASSERT_EQ(kill(life.processes().keeper, SIGKILL), 0);
    ASSERT_EQ(life.wait_for_end(30), "");
  }
  std::string line() const { return "made " + dir_ + "/.envrc\n"; }
  std::string dir_;
};

TEST_F(AutoexecOfTheDead, IsSaidAtTheNextStart) {
  EXPECT_EQ(run_tool({"exec", kBox, "echo", "next"}).out, line() + "next\n");
  // Who started it may have died before he could say it: it is said again at the end.
  EXPECT_EQ(run_tool({"stop", kBox}).out, line());
  // And then it is how things are.
  EXPECT_EQ(run_tool({"exec", kBox, "echo", "next"}).out, "next\n");
  EXPECT_EQ(run_tool({"stop", kBox}).out, "");
}

TEST_F(AutoexecOfTheDead, IsSaidAtAStop) {
  EXPECT_EQ(run_tool({"stop", kBox}).out, line());
  EXPECT_EQ(run_tool({"stop", kBox}).out, "");
}

TEST_F(AutoexecOfTheDead, IsSaidAtItsRemoval) { EXPECT_EQ(run_tool({"remove", kBox}).out, line()); }

TEST_F(AutoexecOfTheDead, IsNotForgottenByAStartThatFails) {
  const auto failed = run_tool({"start", kBox}, {{"TEMENOS_RUNSC", guest("fake_runsc_fails")}});
  EXPECT_NE(failed.status, 0);
  Program killed = start_tool({"start", kBox});
  ASSERT_TRUE(killed.wait_until([&] { return processes(kBox).keeper > 0; }));
  killed.send(SIGKILL);
  EXPECT_EQ(killed.finish().status, 1000 + SIGKILL);
  EXPECT_EQ(run_tool({"stop", kBox}).out, line());
}

// --- what several boxes write
// ----------------------------------------------------------------------------------------------

TEST_F(ManagerTest, WhatItMakesForHostProgramsToObeyIsSeenWhileItLives) {
  const std::string dir = host_.dir("work");
  auto box = manager().create({"", kBox}, policy(dir));
  ASSERT_TRUE(box) << box.error().to_string();
  EXPECT_EQ(output(*box, "echo text >" + dir + "/file"), "");
  EXPECT_TRUE(box->look().empty());
  EXPECT_EQ(output(*box, "echo evil >" + dir + "/.envrc"), "");
  for (const auto& end : {box->look(), box->look(), *box->stop()}) {
    ASSERT_EQ(end.made.size(), 1u);
    EXPECT_EQ(end.made[0].path, dir + "/.envrc");
  }
}

TEST_F(ManagerTest, TwoLiveBoxesDoNotWriteInOneDirectory) {
  const std::string dir = host_.dir("work");
  host_.dir("work/below");
  ASSERT_EQ(run_tool({"create", "one"}, {{"WRITE", dir}}).status, 0);
  ASSERT_EQ(run_tool({"create", "two"}, {{"WRITE", dir + "/below"}}).status, 0);
  ASSERT_EQ(run_tool({"start", "one"}).status, 0);
  const auto refused = run_tool({"start", "two"});
  expect_told(refused, "the second");
  EXPECT_THAT(refused.err, HasSubstr("another live box writes in " + dir));
  // Also one without a name.
  const auto run = host_.temenos({"run", "--no-net", "--write", dir, "--", "true"});
  EXPECT_EQ(run.status, 125);
  EXPECT_THAT(run.err, HasSubstr("another live box writes in " + dir));
  EXPECT_EQ(run_tool({"stop", "one"}).status, 0);
  EXPECT_EQ(run_tool({"exec", "two", "echo", "works"}).out, "works\n");
  EXPECT_EQ(run_tool({"start", "one"}).status, 125);
  // The end of a killed one frees it as well.
  const Generation life(processes("two"));
  ASSERT_EQ(kill(life.processes().keeper, SIGKILL), 0);
  ASSERT_EQ(life.wait_for_end(30), "");
  EXPECT_EQ(run_tool({"exec", "one", "echo", "works"}).out, "works\n");
}

// --- data dirs that are not as they were left
// ----------------------------------------------------------------------------------------------

TEST_F(ManagerTest, ALiveBoxIsRemoved) {
  Box box = make();
  ASSERT_TRUE(box.start());
  Program caller = start_tool({"exec", kBox, "sh", "-c", "echo up; sleep 1000"});
  ASSERT_TRUE(caller.wait_for("up\n"));
  EXPECT_EQ(run_tool({"remove", kBox}).status, 0);
  expect_told(caller.finish(), "the caller");
  EXPECT_THAT(*manager().list(), IsEmpty());
  EXPECT_EQ(host_shell("ls -A '" + boxes_dir() + "'"), "");
}

TEST_F(ManagerTest, OneWhoseRecordIsBrokenCanBeSeenAndRemoved) {
  const std::string bad[] = {"",        "{",   "{\"name\":3}", std::string(5u << 20, 'x'),
                             "missing", "link"};
  for (const auto& content : bad) {
    SCOPED_TRACE(content.substr(0, 20));
    make();
    const std::string record = data_dir(kBox) + "/temenos-box.json";
    if (content == "missing" || content == "link") {
      ASSERT_EQ(unlink(record.c_str()), 0);
      if (content == "link") ASSERT_EQ(symlink("/etc/hostname", record.c_str()), 0);
    } else {
      std::ofstream(record) << content;
    }
    BoxManager boxes = manager();
    const auto list = boxes.list();
    ASSERT_TRUE(list) << list.error().to_string();
    ASSERT_EQ(list->size(), 1u);
    EXPECT_NE(list->front().trouble, "");
    EXPECT_NE(list->front().id, "");
    const auto found = boxes.find({"", kBox});
    ASSERT_FALSE(found);
    EXPECT_THAT(found.error().to_string(), HasSubstr("cannot use the box"));
    EXPECT_NE(found.error().hint, "");
    const auto removed = boxes.remove({"", kBox});
    EXPECT_TRUE(removed) << removed.error().to_string();
    EXPECT_THAT(*boxes.list(), IsEmpty());
  }
}

// A record of another box (a data dir that somebody has copied) starts nothing.
TEST_F(ManagerTest, ARecordOfAnotherBoxIsRefused) {
  make();
  ASSERT_TRUE(manager().create({"", "other"}, policy()));
  ASSERT_EQ(host_shell("cp '" + data_dir("other") + "/temenos-box.json' '" + data_dir(kBox) +
                       "/temenos-box.json'"),
            "");
  const auto found = manager().find({"", kBox});
  ASSERT_FALSE(found);
  EXPECT_EQ(found.error().code, Code::kConflict);
  EXPECT_TRUE(manager().remove({"", kBox}));
}

// --- who may come
// ----------------------------------------------------------------------------------------------

TEST_F(ManagerTest, TooManyCallersAreToldSo) {
  ASSERT_TRUE(make().start());
  BoxManager boxes = manager();
  std::vector<Box> handles;
  Result<void> started;
  while (handles.size() < 100 && started) {
    auto box = boxes.find({"", kBox});
    ASSERT_TRUE(box);
    started = box->start();
    if (started) handles.push_back(std::move(*box));
  }
  ASSERT_FALSE(started);
  EXPECT_GE(handles.size(), 63u);
  EXPECT_LE(handles.size(), 64u);
  EXPECT_EQ(started.error().code, Code::kExhausted) << started.error().to_string();
  EXPECT_NE(started.error().hint, "");
  // Those that were there do not notice, and one who leaves makes room. Whoever wants its end can
  // always have that.
  EXPECT_EQ(output(handles.front(), "echo works"), "works\n");
  handles.pop_back();
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  std::string said;
  while (said != "room\n" && std::chrono::steady_clock::now() < end) {
    said = run_tool({"exec", kBox, "echo", "room"}).out;
  }
  EXPECT_EQ(said, "room\n");
  auto last = boxes.find({"", kBox});
  ASSERT_TRUE(last && last->start());
  EXPECT_FALSE(boxes.find({"", kBox})->start());
  EXPECT_EQ(run_tool({"stop", kBox}).status, 0);
}

// Another user who can reach the socket, through directories that somebody has opened, is not
// heard.
TEST_F(ManagerTest, AnotherUserIsNotHeard) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can be another user";
  Box box = make();
  ASSERT_TRUE(box.start());
  const std::string dir = data_dir(kBox);
  ASSERT_EQ(host_shell("chmod 755 " + host_.path() + "/home/data " + host_.path() +
                       "/home/data/temenos " + boxes_dir() + " " + dir + " && chmod 777 " + dir +
                       "/keeper.sock"),
            "");
  const pid_t pid = fork();
  if (pid == 0) {
    if (setresgid(65534, 65534, 65534) != 0 || setresuid(65534, 65534, 65534) != 0) _exit(1);
    if (chdir(dir.c_str()) != 0) _exit(2);
    const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    memcpy(address.sun_path, "keeper.sock", 12);
    if (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) _exit(3);
    keeper::Message stop;
    stop.kind = keeper::Message::kStop;
    (void)send(fd, &stop, sizeof stop, MSG_NOSIGNAL);
    // Closed without an answer.
    _exit(recv(fd, &stop, sizeof stop, 0) > 0 ? 4 : 0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(pid, &status, 0), pid);
  EXPECT_EQ(status, 0) << "step " << WEXITSTATUS(status);
  EXPECT_EQ(output(box, "echo alive"), "alive\n");
  EXPECT_EQ(starts_in_log(), 1u);
}

}  // namespace
}  // namespace temenos::testing
