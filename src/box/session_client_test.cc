// The client's whole path with the real programs.
#include "box/session_client.h"

#include <gmock/gmock.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <sys/stat.h>

#include <atomic>
#include <thread>

#include "testing/session_fixture.h"

namespace temenos {
namespace {

using session::ControlType;
using temenos::testing::kMemoryKb;
using temenos::testing::make_pipe;
using temenos::testing::Pair;
using temenos::testing::socket_pair;
using temenos::testing::status_kb;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using namespace std::chrono_literals;

class SessionClientTest : public temenos::testing::SessionTest {};

TEST_F(SessionClientTest, ExitCodeStreamsAndDuration) {
  auto client = connect();
  auto result = client.exec(shell("echo out; echo err >&2; exit 7"));
  ASSERT_TRUE(result) << result.error().to_string();
  EXPECT_EQ(result->exit_code, 7);
  EXPECT_FALSE(result->signal);
  EXPECT_EQ(result->stdout_data, "out\n");
  EXPECT_EQ(result->stderr_data, "err\n");
  EXPECT_FALSE(result->timed_out);
  EXPECT_FALSE(result->truncated);
  EXPECT_TRUE(result->left_running.empty());
  EXPECT_LT(result->duration, 10s);
  EXPECT_FALSE(client.groups());
}

TEST_F(SessionClientTest, SignalIsNamed) {
  auto client = connect();
  auto result = client.exec(shell("kill -SEGV $$"));
  ASSERT_TRUE(result);
  EXPECT_FALSE(result->exit_code);
  EXPECT_EQ(result->signal, "SIGSEGV");
}

TEST_F(SessionClientTest, CwdAndEnvironmentAreExactlyWhatWasAsked) {
  auto client = connect();
  ExecRequest request;
  request.argv = {"env"};
  request.env = {"PATH=/bin:/usr/bin", "A=b c", "Z="};
  auto result = client.exec(request);
  ASSERT_TRUE(result);
  EXPECT_EQ(result->stdout_data, "PATH=/bin:/usr/bin\nA=b c\nZ=\n");
  request.argv = {"/bin/pwd"};
  request.cwd = "/usr";
  result = client.exec(request);
  ASSERT_TRUE(result);
  EXPECT_EQ(result->stdout_data, "/usr\n");
}

TEST_F(SessionClientTest, ChildHasThreeDescriptorsNoBlockedSignalsAndASessionOfItsOwn) {
  auto client = connect();
  ExecRequest request;
  request.argv = {"/bin/ls", "/proc/self/fd"};
  auto result = client.exec(request);
  ASSERT_TRUE(result);
  EXPECT_EQ(result->stdout_data, "0\n1\n2\n3\n");  // 3 is ls reading the directory
  result = client.exec(
      shell("readlink /proc/self/fd/0; grep -E '^Sig(Blk|Ign|Cgt)|^CapBnd' /proc/self/status;"
            "read -r _ _ _ _ _ s _ </proc/self/stat; echo $$ $s"));
  ASSERT_TRUE(result);
  EXPECT_THAT(result->stdout_data, HasSubstr("/dev/null\n"));
  EXPECT_THAT(result->stdout_data, HasSubstr("SigBlk:\t0000000000000000\n"));
  EXPECT_THAT(result->stdout_data, HasSubstr("SigIgn:\t0000000000000000\n"));
  if (geteuid() == 0) EXPECT_THAT(result->stdout_data, HasSubstr("CapBnd:\t00000000a80425fb\n"));
  const auto line = result->stdout_data.substr(
      result->stdout_data.rfind('\n', result->stdout_data.size() - 2) + 1);
  EXPECT_EQ(line.substr(0, line.find(' ')) + "\n", line.substr(line.find(' ') + 1));
}

TEST_F(SessionClientTest, NotFoundNotExecutableAndNoCwdAreTold) {
  auto client = connect();
  ExecRequest request;
  request.argv = {"no-such-program-here"};
  auto missing = client.exec(request);
  ASSERT_FALSE(missing);
  EXPECT_EQ(exec_failure_status(missing.error()), 127);
  EXPECT_FALSE(missing.error().hint.empty());

  request.argv = {"/etc/passwd"};
  auto plain = client.exec(request);
  ASSERT_FALSE(plain);
  EXPECT_EQ(exec_failure_status(plain.error()), 126);

  const std::string script = dir_ + "/s";
  ASSERT_TRUE(client.write_file(script, "#!/no/such/interpreter\n", {.mode = 0755}));
  request.argv = {script};
  auto orphan = client.exec(request);
  ASSERT_FALSE(orphan);
  EXPECT_EQ(exec_failure_status(orphan.error()), 126);

  ASSERT_TRUE(client.write_file(script, "echo no hash bang $1\n", {.mode = 0755}));
  request.argv = {"s", "x"};
  request.env = {"PATH=/nowhere:" + dir_};
  auto plain_script = client.exec(request);
  ASSERT_TRUE(plain_script) << plain_script.error().to_string();
  EXPECT_EQ(plain_script->stdout_data, "no hash bang x\n");

  request = shell("true");
  request.cwd = "/no/such/dir";
  auto nowhere = client.exec(request);
  ASSERT_FALSE(nowhere);
  EXPECT_EQ(exec_failure_status(nowhere.error()), 125);
  EXPECT_THAT(nowhere.error().to_string(), HasSubstr("working directory"));
}

TEST_F(SessionClientTest, ArgumentsOfTwoMebibytesArrive) {
  auto client = connect();
  ExecRequest request;
  request.argv = {"/bin/sh", "-c", "echo $#", "sh"};
  for (int i = 0; i < 15; ++i) request.argv.push_back(std::string(100'000, 'x'));
  auto result = client.exec(request);
  ASSERT_TRUE(result) << result.error().to_string();
  EXPECT_EQ(result->stdout_data, "15\n");
  request.argv.push_back(std::string(1'000'000, 'x'));
  auto too_much = client.exec(request);
  ASSERT_FALSE(too_much);
  EXPECT_EQ(too_much.error().code, Code::kInvalidArgument);
  EXPECT_TRUE(client.exec(shell("true")));  // the connection is as good as before
}

// Writes `total` pseudo-random bytes and checks that the same come back.
class Pattern {
 public:
  std::uint8_t next() {
    state_ = state_ * 6364136223846793005ull + 1442695040888963407ull;
    return static_cast<std::uint8_t>(state_ >> 56);
  }

 private:
  std::uint64_t state_ = 42;
};

TEST_F(SessionClientTest, TwoHundredMegabytesThroughCatByteForByteInLittleMemory) {
  constexpr std::size_t kTotal = 200u << 20;
  auto client = connect();
  Pair in = make_pipe();
  Pair out = make_pipe();
  std::thread writer([&in] {
    Pattern pattern;
    std::vector<std::uint8_t> block(1 << 16);
    for (std::size_t sent = 0; sent < kTotal; sent += block.size()) {
      for (auto& byte : block) byte = pattern.next();
      std::size_t at = 0;
      while (at < block.size()) {
        const ssize_t count = write(in.two.get(), block.data() + at, block.size() - at);
        if (count <= 0) return;
        at += static_cast<std::size_t>(count);
      }
    }
    in.two.reset();
  });
  std::size_t got = 0;
  bool same = true;
  std::thread reader([&] {
    Pattern pattern;
    std::vector<std::uint8_t> block(1 << 16);
    for (;;) {
      const ssize_t count = read(out.one.get(), block.data(), block.size());
      if (count <= 0) return;
      for (ssize_t i = 0; i < count; ++i)
        same = same && block[static_cast<std::size_t>(i)] == pattern.next();
      got += static_cast<std::size_t>(count);
    }
  });
  ExecRequest request;
  request.argv = {"/bin/cat"};
  ExecIo io;
  io.stdin_fd = in.one.get();
  io.stdout_fd = out.two.get();
  auto result = client.exec(request, io);
  out.two.reset();
  writer.join();
  reader.join();
  ASSERT_TRUE(result) << result.error().to_string();
  EXPECT_EQ(result->exit_code, 0);
  EXPECT_EQ(got, kTotal);
  EXPECT_TRUE(same);
  EXPECT_LT(status_kb(session_pid_, "VmHWM"), kMemoryKb);
  EXPECT_LT(status_kb(init_pid_, "VmHWM"), kMemoryKb);
}

TEST_F(SessionClientTest, ReturnsAtOnceWhenTheExecEndsWithStdinStillOpen) {
  auto client = connect();
  Pair in = make_pipe();
  ExecIo io;
  io.stdin_fd = in.one.get();
  auto result = client.exec(shell("read -r line; echo got $line"), [&] {
    EXPECT_EQ(write(in.two.get(), "one\n", 4), 4);
    return io;
  }());
  ASSERT_TRUE(result);
  EXPECT_EQ(result->stdout_data, "got one\n");
}

TEST_F(SessionClientTest, EndlessStdinDoesNotKeepAnExecThatIgnoresIt) {
  auto client = connect();
  const UniqueFd zero(open("/dev/zero", O_RDONLY | O_CLOEXEC));
  ExecIo io;
  io.stdin_fd = zero.get();
  auto result = client.exec(shell("exec <&-; sleep 0.3; echo done"), io);
  ASSERT_TRUE(result);
  EXPECT_EQ(result->stdout_data, "done\n");
  result = client.exec(shell("head -c 5 | od -An -tx1"), io);
  ASSERT_TRUE(result);
  EXPECT_EQ(result->stdout_data, " 00 00 00 00 00\n");
}

TEST_F(SessionClientTest, TimeoutEndsTheTreeAndTheGrandchildThatHoldsStdout) {
  auto client = connect();
  ExecRequest request = shell("setsid sh -c 'echo $$; exec sleep 1000' & sleep 1000");
  ExecResult result;
  // A busy machine may need longer until there is a grandchild at all.
  for (request.timeout = 400ms; result.stdout_data.empty(); request.timeout *= 2) {
    ASSERT_LT(request.timeout, 20s);
    auto ended = client.exec(request);
    ASSERT_TRUE(ended) << ended.error().to_string();
    result = std::move(*ended);
  }
  EXPECT_TRUE(result.timed_out);
  EXPECT_EQ(result.signal, "SIGKILL");
  EXPECT_TRUE(result.left_running.empty());
  // Init reaps who is killed before it believes a round, so there is no zombie either.
  EXPECT_EQ(kill(std::stoi(result.stdout_data), 0), -1);
}

TEST_F(SessionClientTest, LeftRunningIsReportedAfterAShortDrain) {
  auto client = connect();
  auto result = client.exec(shell("setsid sleep 1000 & echo $!"));
  ASSERT_TRUE(result);
  EXPECT_EQ(result->exit_code, 0);
  EXPECT_GE(result->duration, 240ms);  // it holds stdout
  EXPECT_LT(result->duration, 3s);
  ASSERT_EQ(result->left_running.size(), 1u);
  EXPECT_EQ(std::to_string(result->left_running[0]) + "\n", result->stdout_data);
  EXPECT_EQ(kill(static_cast<pid_t>(result->left_running[0]), 0), 0);

  result = client.exec(shell("setsid sleep 1000 >/dev/null 2>&1 & exit 3"));
  ASSERT_TRUE(result);
  EXPECT_EQ(result->exit_code, 3);
  EXPECT_EQ(result->left_running.size(), 1u);
}

TEST_F(SessionClientTest, AGrandchildThatWritesForEverDoesNotKeepTheExec) {
  auto client = connect();
  // Its leader ends when more has been written than is kept.
  auto result = client.exec(
      shell("m=$(mktemp -u); setsid sh -c \"yes | head -c 3000000; touch $m; exec yes\" & "
            "until [ -e $m ]; do sleep 0.01; done; rm $m"));
  ASSERT_TRUE(result);
  EXPECT_EQ(result->exit_code, 0);
  EXPECT_LT(result->duration, 10s);
  EXPECT_TRUE(result->truncated);  // the capture's middle
  EXPECT_EQ(result->stdout_data.size(), 1024u * 1024);
}

TEST_F(SessionClientTest, EndlessOutputIsCappedAndStillTimesOut) {
  auto client = connect();
  ExecRequest request = shell("exec yes");
  request.output_cap = 100'000;
  request.timeout = 500ms;
  auto result = client.exec(request);
  ASSERT_TRUE(result);
  EXPECT_TRUE(result->timed_out);
  EXPECT_TRUE(result->truncated);
  EXPECT_EQ(result->stdout_data.size(), 100'000u);
  EXPECT_EQ(result->stdout_omitted.bytes, 0u);
}

TEST_F(SessionClientTest, CaptureKeepsHeadAndTail) {
  auto client = connect();
  ExecIo io;
  io.capture_head = 10;
  io.capture_tail = 10;
  auto result = client.exec(shell("seq 1 100000"), io);
  ASSERT_TRUE(result);
  EXPECT_EQ(result->stdout_data, "1\n2\n3\n4\n5\n99\n100000\n");
  EXPECT_EQ(result->stdout_omitted.at, 10u);
  EXPECT_EQ(result->stdout_omitted.bytes, 588'895u - 20);
  EXPECT_TRUE(result->truncated);
}

TEST_F(SessionClientTest, ClosedStdoutEndsTheExecAsSigpipeWould) {
  auto client = connect();
  Pair out = make_pipe();
  out.one.reset();
  ExecIo io;
  io.stdout_fd = out.two.get();
  auto result = client.exec(shell("exec yes"), io);
  ASSERT_TRUE(result) << result.error().to_string();
  EXPECT_EQ(result->signal, "SIGPIPE");
  sigset_t pending;
  sigpending(&pending);
  EXPECT_EQ(sigismember(&pending, SIGPIPE), 0);
}

TEST_F(SessionClientTest, AFullDiskIsAnError) {
  auto client = connect();
  const UniqueFd full(open("/dev/full", O_WRONLY | O_CLOEXEC));
  ExecIo io;
  io.stdout_fd = full.get();
  auto result = client.exec(shell("exec yes"), io);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().sys_errno, ENOSPC);
  EXPECT_TRUE(client.exec(shell("true")));
}

TEST_F(SessionClientTest, StderrFlowsWhileStdoutIsNotRead) {
  auto client = connect();
  Pair out = make_pipe();
  Pair err = make_pipe();
  ExecIo io;
  io.stdout_fd = out.two.get();
  io.stderr_fd = err.two.get();
  std::thread reader([&] {
    char line[5] = {};
    EXPECT_EQ(read(err.one.get(), line, 4), 4);
    EXPECT_STREQ(line, "err\n");
    // Only now is stdout, whose writer stands still, read.
    std::vector<char> block(1 << 16);
    std::size_t total = 0;
    while (total < (1u << 20)) {
      const ssize_t count = read(out.one.get(), block.data(), block.size());
      if (count <= 0) break;
      total += static_cast<std::size_t>(count);
    }
    EXPECT_EQ(total, 1u << 20);
  });
  auto result =
      client.exec(shell("head -c 200000 /dev/zero; echo err >&2; head -c 848576 /dev/zero"), io);
  reader.join();
  ASSERT_TRUE(result);
  EXPECT_EQ(result->exit_code, 0);
}

TEST_F(SessionClientTest, SignalsAreForwardedToTheWholeTree) {
  auto client = connect();
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGUSR1);
  sigset_t before;
  pthread_sigmask(SIG_BLOCK, &set, &before);
  const UniqueFd signals(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  Pair out = make_pipe();
  ExecIo io;
  io.stdout_fd = out.two.get();
  io.signal_fd = signals.get();
  const pthread_t self = pthread_self();
  std::string seen;
  std::thread killer([&] {
    char line[6];
    EXPECT_EQ(read(out.one.get(), line, 6), 6);
    pthread_kill(self, SIGUSR1);
    char rest[16];
    ssize_t count;
    while ((count = read(out.one.get(), rest, sizeof rest)) > 0)
      seen.append(rest, static_cast<std::size_t>(count));
  });
  auto result = client.exec(
      shell("trap 'echo outer; exit 4' USR1;"
            "sh -c 'trap \"exit 0\" USR1; echo ready; while :; do sleep 0.05; done'; wait"),
      io);
  out.two.reset();
  killer.join();
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  ASSERT_TRUE(result);
  EXPECT_EQ(result->exit_code, 4);
  EXPECT_EQ(seen, "outer\n");
}

TEST_F(SessionClientTest, CancelEndsTheTree) {
  auto client = connect();
  const UniqueFd cancel(eventfd(1, EFD_CLOEXEC));
  ExecIo io;
  io.cancel_fd = cancel.get();
  auto result = client.exec(shell("sleep 1000 & sleep 1000"), io);
  ASSERT_TRUE(result);
  EXPECT_EQ(result->signal, "SIGKILL");
  EXPECT_FALSE(result->timed_out);
}

TEST_F(SessionClientTest, AClientThatGoesTakesItsExecsAlong) {
  auto watcher = connect();
  const std::string mark = dir_ + "/pid";
  {
    Pair pair = socket_pair(SOCK_STREAM);
    ASSERT_TRUE(session::send_control(control_.get(), {ControlType::kAddClient}, pair.two.get()));
    pair.two.reset();
    ByteQueue out;
    put(out, 0, box_wire::Hello{});
    const std::string script =
        "echo $$ > " + mark + ".new; mv " + mark + ".new " + mark + "; exec sleep 1000";
    put(out, 1, box_wire::Exec{0, 0, 0, box_wire::kWindow, "/", {"/bin/sh", "-c", script}, {}});
    iovec parts[8];
    const auto count = static_cast<int>(out.peek(parts));
    ASSERT_EQ(writev(pair.one.get(), parts, count), static_cast<ssize_t>(out.size()));
    ASSERT_TRUE(watcher.exec(shell("until [ -e " + mark + " ]; do sleep 0.02; done")));
  }
  // Once it is gone, an exec of another client can see that.
  ExecRequest request = shell("while kill -0 $(cat " + mark + ") 2>/dev/null; do sleep 0.02; done");
  request.timeout = 5s;
  auto gone = watcher.exec(request);
  ASSERT_TRUE(gone);
  EXPECT_FALSE(gone->timed_out);
}

TEST_F(SessionClientTest, ManyExecsInParallel) {
  std::vector<std::thread> threads;
  std::atomic<int> good = 0;
  std::vector<SessionClient> clients;
  for (int i = 0; i < 24; ++i) clients.push_back(connect());
  for (int i = 0; i < 24; ++i) {
    threads.emplace_back([&, i] {
      for (int round = 0; round < 5; ++round) {
        auto result = clients[static_cast<std::size_t>(i)].exec(
            shell("echo " + std::to_string(i) + "; head -c 300000 /dev/zero | tr '\\0' x; exit " +
                  std::to_string(i)));
        if (result && result->exit_code == i &&
            result->stdout_data.size() == 300'000 + std::to_string(i).size() + 1)
          ++good;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(good, 24 * 5);
}

TEST_F(SessionClientTest, FilesAreReadWrittenListedAndLookedAt) {
  auto client = connect();
  const std::string path = dir_ + "/f";
  std::string data(3'000'000, '\0');
  Pattern pattern;
  for (auto& byte : data) byte = static_cast<char>(pattern.next());
  ASSERT_TRUE(client.write_file(path, data, {.mode = 0640}));
  auto back = client.read_file(path, 10'000'000);
  ASSERT_TRUE(back) << back.error().to_string();
  EXPECT_EQ(*back, data);
  EXPECT_EQ(*client.read_file(path, 5, 100), data.substr(100, 5));
  EXPECT_EQ(*client.read_file(path, 5, 3'000'000), "");

  auto info = client.stat(path);
  ASSERT_TRUE(info);
  EXPECT_EQ(info->size, 3'000'000u);
  EXPECT_EQ(info->mode, 0640u);
  EXPECT_EQ(info->type, FileType::kRegular);

  ASSERT_TRUE(client.write_file(path, "short"));  // keeps the mode
  EXPECT_EQ(client.stat(path)->mode, 0640u);
  ASSERT_TRUE(client.write_file(path, "+more", {.how = WriteOptions::How::kAppend}));
  EXPECT_EQ(*client.read_file(path, 100), "short+more");
  auto exists = client.write_file(path, "x", {.how = WriteOptions::How::kCreate});
  ASSERT_FALSE(exists);
  EXPECT_EQ(exists.error().code, Code::kAlreadyExists);

  ASSERT_EQ(symlink("f", (dir_ + "/link").c_str()), 0);
  EXPECT_EQ(client.stat(dir_ + "/link")->target, "f");
  EXPECT_EQ(client.stat(dir_ + "/link", true)->size, 10u);
  ASSERT_TRUE(client.write_file(dir_ + "/link", "through"));
  EXPECT_EQ(*client.read_file(path, 100), "through");
  EXPECT_EQ(client.stat(dir_ + "/link")->type, FileType::kSymlink);

  auto entries = client.list(dir_);
  ASSERT_TRUE(entries);
  std::vector<std::string> names;
  for (const auto& entry : *entries) names.push_back(entry.name);
  std::sort(names.begin(), names.end());
  EXPECT_THAT(names, ElementsAre("f", "link"));  // no temporary file either

  EXPECT_EQ(client.read_file("/no/such", 1).error().code, Code::kNotFound);
  EXPECT_EQ(client.read_file("/etc", 1).error().sys_errno, EISDIR);
  EXPECT_EQ(client.read_file("relative", 1).error().code, Code::kInvalidArgument);
  EXPECT_EQ(client.list(path).error().sys_errno, ENOTDIR);
}

TEST_F(SessionClientTest, AFifoDoesNotHoldInit) {
  auto client = connect();
  const std::string path = dir_ + "/fifo";
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  EXPECT_EQ(client.read_file(path, 1).error().sys_errno, EINVAL);
  EXPECT_FALSE(client.write_file(path, "x"));
  EXPECT_FALSE(client.write_file(path, "x", {.how = WriteOptions::How::kAppend}));
  EXPECT_TRUE(client.ping());
}

TEST_F(SessionClientTest, ADirectoryOfManyNamesComesWhole) {
  auto client = connect();
  ASSERT_TRUE(client.exec(shell("cd " + dir_ + " && seq -f %0200g 1 3000 | xargs touch")));
  auto entries = client.list(dir_);
  ASSERT_TRUE(entries) << entries.error().to_string();
  EXPECT_EQ(entries->size(), 3000u);
  EXPECT_EQ(client.list(dir_, 100).error().code, Code::kExhausted);
  EXPECT_TRUE(client.ping());
}

TEST_F(SessionClientTest, WhenInitDiesClientsHearOfIt) {
  auto client = connect();
  std::thread killer([this] {
    auto other = connect();
    kill(init_pid_, SIGKILL);
  });
  // Init alone holds the other end of its stdin, so it ends with init.
  Pair in = make_pipe();
  ExecIo io;
  io.stdin_fd = in.one.get();
  auto result = client.exec(shell("exec cat"), io);
  killer.join();
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, Code::kBoxDied);
  EXPECT_EQ(next_event().type, ControlType::kInitLost);
  EXPECT_EQ(next_event().type, ControlType::kBye);
  ASSERT_EQ(waitpid(init_pid_, nullptr, 0), init_pid_);
  init_pid_ = -1;
}

}  // namespace
}  // namespace temenos
