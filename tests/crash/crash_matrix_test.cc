// SIGKILL to each process of a box that lasts and to its caller, at random moments of making it,
// starting it, running commands, writing files and stopping it. What must hold after each: the
// caller is told or does not notice, the next start works at once, every write that had returned is
// there, and never do two sandboxes have the box's files.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <map>

#include "tests/crash/records.h"
#include "tests/integration/durable_box.h"

namespace temenos::testing {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using ::testing::AnyOf;
using ::testing::HasSubstr;

enum class Victim { kInit, kSentry, kGofer, kKeeper, kSession, kHelper, kCaller };
enum class Operation { kCreate, kExec, kWrite, kStop };

constexpr char kBox[] = "lasting";
constexpr char kNew[] = "new";

pid_t BoxProcesses::* member_of(Victim victim) {
  switch (victim) {
    case Victim::kSentry:
      return &BoxProcesses::sandbox;
    case Victim::kGofer:
      return &BoxProcesses::gofer;
    case Victim::kKeeper:
      return &BoxProcesses::keeper;
    case Victim::kSession:
      return &BoxProcesses::session;
    default:
      return &BoxProcesses::helper;
  }
}

std::string name_of(const ::testing::TestParamInfo<Victim>& info) {
  constexpr const char* kNames[] = {"Init",    "Sentry", "Gofer", "Keeper",
                                    "Session", "Helper", "Caller"};
  return kNames[static_cast<int>(info.param)];
}

std::size_t lines(const std::string& text) {
  return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
}

class CrashMatrix : public DurableBoxTest, public ::testing::WithParamInterface<Victim> {
 protected:
  void SetUp() override {
    // How long the operations take here, for the moments of the kills.
    const auto begin = std::chrono::steady_clock::now();
    ASSERT_EQ(run_tool({"new", kBox}).status, 0);
    start_time_ =
        std::chrono::duration_cast<microseconds>(std::chrono::steady_clock::now() - begin);
    const auto stop = std::chrono::steady_clock::now();
    ASSERT_EQ(run_tool({"stop", kBox}).status, 0);
    stop_time_ = std::chrono::duration_cast<microseconds>(std::chrono::steady_clock::now() - stop);
    ASSERT_EQ(run_tool({"start", kBox}).status, 0);
  }

  bool create_round(int n);
  bool live_round(Operation operation, int n);
  bool strike(Program& operation, const std::string& name, microseconds delay, bool starting);
  void box_lives_on(Program& witness, const BoxProcesses& before, const std::string& dir);
  void next_start(const Generation& old, Operation what, int n, const CliResult& operation,
                  const CliResult& witness);
  void check_canaries();

  microseconds start_time_{};
  microseconds stop_time_{};
  // Files of ended lives, as the first command of the next life saw them.
  std::map<std::string, std::string> canaries_;
  std::size_t returned_ = 0;  // writes, all in all
};

// Kills the victim `delay` after now, or when it is there; false when the operation has ended
// before.
bool CrashMatrix::strike(Program& operation, const std::string& name, microseconds delay,
                         bool starting) {
  if (!operation.read_for(delay)) return false;
  if (GetParam() == Victim::kCaller) {
    operation.send(SIGKILL);
    return true;
  }
  if (GetParam() == Victim::kInit) {
    // gVisor lets a process of the box kill init; from outside it is not to be seen.
    Program killer = start_tool({"kill-init", name, starting ? "30000" : "0"});
    return killer.finish().status == 0;
  }
  do {
    const pid_t pid = processes(name).*member_of(GetParam());
    if (pid == 0) continue;
    const UniqueFd pidfd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
    return pidfd && syscall(SYS_pidfd_send_signal, pidfd.get(), SIGKILL, 0, 0) == 0;
  } while (operation.read_for(microseconds(200)));
  return false;
}

bool CrashMatrix::create_round(int n) {
  // Making it without a start is short: half of the caller's deaths are in that.
  const bool only_made = GetParam() == Victim::kCaller && n % 8 < 4;
  Program operation = start_tool({only_made ? "create" : "new", kNew});
  const bool hit =
      strike(operation, kNew, chance(only_made ? milliseconds(20) : start_time_), true);
  const auto result = operation.finish();
  if (GetParam() == Victim::kCaller) {
    EXPECT_THAT(result.status, AnyOf(0, 1000 + SIGKILL)) << result.err;
  } else if (result.status != 0) {
    expect_told(result, "the operation");
  }
  const bool whole = run_tool({"list"}).out.find(std::string(kNew) + " ") != std::string::npos;
  const auto again = run_tool({"create", kNew});
  if (whole) {
    expect_told(again, "made again");
    EXPECT_THAT(again.err, HasSubstr("already"));
  } else {
    EXPECT_EQ(again.status, 0) << again.err;
  }
  const auto first = run_tool({"exec", kNew, "echo", "works"});
  EXPECT_EQ(first.out, "works\n") << first.err;
  const auto removed = run_tool({"remove", kNew});
  EXPECT_EQ(removed.status, 0) << removed.err;
  // The next one who comes sweeps what is old.
  const auto age = host_shell("find '" + boxes_dir() + "' -maxdepth 1 -name '.*' " +
                              "-exec touch -d '2 minutes ago' {} +");
  EXPECT_EQ(age, "");
  EXPECT_EQ(lines(run_tool({"list"}).out), 1u);
  EXPECT_EQ(host_shell("ls -A '" + boxes_dir() + "' | wc -l"), "1\n") << "half a box is left";
  return GetParam() == Victim::kCaller ? result.status != 0 : hit;
}

void CrashMatrix::box_lives_on(Program& witness, const BoxProcesses& before,
                               const std::string& dir) {
  const auto now = processes(kBox);
  EXPECT_EQ(now.keeper, before.keeper);
  EXPECT_EQ(now.sandbox, before.sandbox);
  const std::string log = data_dir(kBox) + "/box/upper/root/" + dir + "/log";
  const auto size = std::filesystem::file_size(log);
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (std::filesystem::file_size(log) <= size) {
    ASSERT_TRUE(witness.read_for(milliseconds(2))) << "another caller's death was noticed";
    ASSERT_LT(std::chrono::steady_clock::now(), end) << "another caller stands still";
  }
  witness.send(SIGKILL);
}

void CrashMatrix::next_start(const Generation& old, Operation what, int n,
                             const CliResult& operation, const CliResult& witness) {
  check_canaries();
  const std::string dir = std::to_string(n);
  Program first = start_tool({"exec", kBox, "sh", "-c",
                              "cd /root/$1 && cat log && echo = && cat op; echo = && cat state; "
                              "cd .. && for d in *; do test $d = $1 || rm -r $d; done",
                              "sh", dir});
  never_two(first, old, kBox);
  const auto next = first.finish();
  EXPECT_EQ(next.status, 0) << next.err;
  const auto log_end = next.out.find("=\n");
  const auto op_end = next.out.find("=\n", log_end + 2);
  ASSERT_NE(op_end, std::string::npos) << next.out.substr(0, 1000) << next.err;
  const std::string log = next.out.substr(0, log_end);
  const std::string op = next.out.substr(log_end + 2, op_end - log_end - 2);
  EXPECT_EQ(trouble_in_log(log, lines(witness.out)), "");
  EXPECT_EQ(trouble_in_log(op, lines(operation.out)), "");
  const std::string state = next.out.substr(op_end + 2);
  EXPECT_EQ(trouble_in_state(state, what == Operation::kWrite ? lines(operation.out) : 0), "");
  canaries_ = {{dir + "/log", log}, {dir + "/op", op}};
}

void CrashMatrix::check_canaries() {
  for (const auto& [path, content] : canaries_) {
    EXPECT_TRUE(host_file(kBox, path) == content) << "an earlier life still writes in " << path;
  }
}

bool CrashMatrix::live_round(Operation what, int n) {
  const Generation old(processes(kBox));
  EXPECT_TRUE(old.can_write());
  const std::string dir = std::to_string(n);
  const std::string path = "/root/" + dir;
  Program witness =
      start_tool({"exec", kBox, "sh", "-c", "mkdir -p /root/" + dir + "; " + kShellWriter, "sh",
                  path + "/log"});
  EXPECT_TRUE(witness.wait_for("0\n"));
  std::vector<std::string> words{"stop", kBox};
  if (what == Operation::kExec) words = {"execs", kBox, path + "/op"};
  if (what == Operation::kWrite) words = {"write", kBox, path + "/op", path + "/state"};
  Program operation = start_tool(words);
  const bool struck =
      strike(operation, kBox, chance(what == Operation::kStop ? stop_time_ : start_time_), false);
  operation.close_in();
  auto result = operation.finish();
  const bool caller = GetParam() == Victim::kCaller;
  const bool hit = caller ? result.status == 1000 + SIGKILL : struck;
  // Killed before it had connected, an operation starts the next life itself.
  if (result.status != 0 && !caller) expect_told(result, "the operation");
  if (caller) EXPECT_THAT(result.status, AnyOf(0, 1000 + SIGKILL)) << result.err;
  if (caller && what != Operation::kStop) box_lives_on(witness, old.processes(), dir);
  // Whether the box had been asked to end or not: it can be asked again.
  if (caller && what == Operation::kStop) {
    const auto again = run_tool({"stop", kBox});
    EXPECT_EQ(again.status, 0) << again.err;
  }
  result.out = what == Operation::kStop ? "" : result.out;
  returned_ += lines(result.out);
  const auto seen = witness.finish();
  if (what == Operation::kStop || !caller) expect_told(seen, "another caller");
  if (what != Operation::kStop && caller) {
    EXPECT_EQ(trouble_in_log(host_file(kBox, dir + "/log"), lines(seen.out)), "");
    EXPECT_EQ(trouble_in_log(host_file(kBox, dir + "/op"), lines(result.out)), "");
    return hit;
  }
  next_start(old, what, n, result, seen);
  EXPECT_EQ(old.wait_for_end(10), "");
  return hit;
}

TEST_P(CrashMatrix, AtRandomMoments) {
  const int rounds = part_of(50);
  int hits = 0;
  // By chance few of few rounds come as far as a write: then there are more.
  const auto seldom = [&] {
    return rounds >= 4 && returned_ <= static_cast<std::size_t>(rounds) / 4;
  };
  for (int n = 0; (hits < rounds || seldom()) && !HasFailure(); ++n) {
    ASSERT_LT(n, 2 * rounds + 20) << "the victim is seldom there, or killed before the writes";
    SCOPED_TRACE("round " + std::to_string(n) + ", TEMENOS_CRASH_SEED=" + seed());
    const auto operation = static_cast<Operation>(n % 4);
    hits += operation == Operation::kCreate ? create_round(n) : live_round(operation, n);
  }
}

// Before it has said a word.
TEST_F(DurableBoxTest, AHelperKilledAtItsBirthIsSeen) {
  ASSERT_EQ(run_tool({"create", kBox}).status, 0);
  for (int n = 0; n < 20 && !HasFailure(); ++n) {
    Program starter = start_tool({"start", kBox});
    pid_t helper = 0;
    ASSERT_TRUE(starter.wait_until([&] { return (helper = processes(kBox).helper) > 0; }));
    ASSERT_EQ(kill(helper, SIGKILL), 0);
    const auto result = starter.finish();
    expect_told(result, "the starter");
    EXPECT_THAT(result.err, HasSubstr("the helper process of the box was killed"));
  }
}

// The remover or the box's keeper dies in the middle of a removal: it can be done again, or was
// done.
class RemovalKilled : public DurableBoxTest, public ::testing::WithParamInterface<Victim> {};

TEST_P(RemovalKilled, IsDoneAgain) {
  milliseconds time{50};
  const int rounds = part_of(16);
  for (int n = 0; n < rounds && !HasFailure(); ++n) {
    SCOPED_TRACE("round " + std::to_string(n) + ", TEMENOS_CRASH_SEED=" + seed());
    ASSERT_EQ(run_tool({"create", kBox}).status, 0);
    ASSERT_EQ(run_tool({"exec", kBox, "sh", "-c",
                        "cd /root; mkdir $(seq 50); for d in *; do echo x >$d/f; done"})
                  .status,
              0);
    // A live one, and one that is only files.
    if (n % 2 == 1) ASSERT_EQ(run_tool({"stop", kBox}).status, 0);
    const auto begin = std::chrono::steady_clock::now();
    const Generation life(processes(kBox));
    Program remover = start_tool({"remove", kBox});
    if (n >= 2 && remover.read_for(chance(time))) {
      if (GetParam() == Victim::kCaller) remover.send(SIGKILL);
      if (GetParam() == Victim::kKeeper && life.processes().keeper > 0) {
        kill(life.processes().keeper, SIGKILL);
      }
    }
    const auto result = remover.finish();
    if (n < 2) time = std::chrono::ceil<milliseconds>(std::chrono::steady_clock::now() - begin);
    EXPECT_THAT(result.status, AnyOf(0, 1000 + SIGKILL)) << result.err;
    const auto again = run_tool({"remove", kBox});
    if (again.status != 0) {
      expect_told(again, "the second removal");
      EXPECT_THAT(again.err, HasSubstr("no such box"));
    }
    EXPECT_EQ(life.wait_for_end(10), "");
    // The second has swept what the first had begun.
    EXPECT_EQ(host_shell("ls -A '" + boxes_dir() + "'"), "");
  }
}
INSTANTIATE_TEST_SUITE_P(, RemovalKilled, ::testing::Values(Victim::kCaller, Victim::kKeeper),
                         name_of);

// The sentry watches its gofer, but has been seen to miss its death.
TEST_F(DurableBoxTest, AGoferKilledUnderASentryThatDoesNotSeeItEndsTheBox) {
  ASSERT_EQ(run_tool({"new", kBox}).status, 0);
  Program caller = start_tool({"exec", kBox, "sh", "-c", "echo up; sleep 1000"});
  ASSERT_TRUE(caller.wait_for("up\n"));
  const Generation old(processes(kBox));
  ASSERT_EQ(kill(old.processes().sandbox, SIGSTOP), 0);
  ASSERT_EQ(kill(old.processes().gofer, SIGKILL), 0);
  const auto result = caller.finish();
  expect_told(result, "the caller");
  EXPECT_THAT(result.err, HasSubstr("the gofer of the sandbox was killed"));
  EXPECT_EQ(old.wait_for_end(10), "");
  EXPECT_EQ(run_tool({"exec", kBox, "echo", "works"}).out, "works\n");
}

class KeeperKilled : public DurableBoxTest {};

// The next life begins at once, while the kernel is still ending the last one.
TEST_F(KeeperKilled, AndStartedAgainAtOnce) {
  ASSERT_EQ(run_tool({"create", kBox}).status, 0);
  const int rounds = part_of(200);
  Generation old(BoxProcesses{});
  std::size_t returned = 0;
  std::string before;  // the log before the last, when the last life began
  for (int n = 1; n <= rounds + 1 && !HasFailure(); ++n) {
    SCOPED_TRACE("round " + std::to_string(n) + ", TEMENOS_CRASH_SEED=" + seed());
    auto log = [n](int ago) { return "log-" + std::to_string(n - ago); };
    // The last life's log first, then its own.
    Program life =
        start_tool({"exec", kBox, "sh", "-c",
                    "cd /root; touch $2; cat $2; echo =; rm -f $3; " + std::string(kShellWriter),
                    "sh", log(0), log(1), log(2)});
    never_two(life, old, kBox);
    ASSERT_TRUE(life.wait_for("=\n0\n")) << life.finish().err;
    const std::string last = life.output().substr(0, life.output().find('='));
    EXPECT_EQ(trouble_in_log(last, returned), "");
    EXPECT_EQ(old.wait_for_end(10), "");
    old = Generation(processes(kBox));
    life.read_for(chance(milliseconds(30)));
    ASSERT_EQ(kill(old.processes().keeper, SIGKILL), 0);
    const auto result = life.finish();
    expect_told(result, "the caller");
    EXPECT_TRUE(host_file(kBox, log(1)) == last) << "the life before still wrote";
    returned = lines(result.out.substr(result.out.find("=\n") + 2));
  }
}

// What the above rests on. The death of a sandbox takes less time than a start, so its mounts, held
// here, stand for one that does not die.
TEST_F(KeeperKilled, AndNotStartedWhileAnythingHasTheFiles) {
  ASSERT_EQ(run_tool({"new", kBox}).status, 0);
  {
    const Generation old(processes(kBox));
    const std::string mounts = "/proc/" + std::to_string(old.processes().runsc) + "/ns/mnt";
    const UniqueFd held(open(mounts.c_str(), O_RDONLY | O_CLOEXEC));
    ASSERT_TRUE(held) << strerror(errno);
    ASSERT_EQ(kill(old.processes().keeper, SIGKILL), 0);
    EXPECT_EQ(old.wait_for_end(10), "");
    const auto refused = run_tool({"start", kBox});
    expect_told(refused, "the next start");
    EXPECT_THAT(refused.err, HasSubstr("another sandbox still has this box's files"));
  }
  EXPECT_EQ(run_tool({"exec", kBox, "echo", "works"}).out, "works\n");
}

INSTANTIATE_TEST_SUITE_P(, CrashMatrix,
                         ::testing::Values(Victim::kInit, Victim::kSentry, Victim::kGofer,
                                           Victim::kKeeper, Victim::kSession, Victim::kHelper,
                                           Victim::kCaller),
                         name_of);

}  // namespace
}  // namespace temenos::testing
