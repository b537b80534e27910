// A command on a terminal, with init on this host's kernel. How gVisor's own terminals behave is in
// tests/integration/terminal_exec_test.cc.
#include <gmock/gmock.h>
#include <pty.h>
#include <sys/signalfd.h>

#include "testing/session_fixture.h"
#include "testing/terminal_exec.h"

namespace temenos {
namespace {

using temenos::testing::TerminalExec;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using namespace std::chrono_literals;

class SessionTerminalTest : public temenos::testing::SessionTest {
 protected:
  static ExecRequest on_terminal(const std::string& script, TerminalSize size = {24, 80}) {
    ExecRequest request = shell(script);
    request.env.push_back("TERM=xterm");
    request.terminal = size;
    return request;
  }
};

TEST_F(SessionTerminalTest, AllThreeAreItsControllingTerminalOfTheSizeAskedFor) {
  auto client = connect();
  auto result = client.exec(
      on_terminal("test -t 0 && test -t 1 && test -t 2 && tty && stty size && echo err >&2;"
                  "exec 3>/dev/tty && echo mine >&3; exit 7",
                  {51, 133}));
  ASSERT_TRUE(result) << result.error().to_string();
  EXPECT_THAT(result->stdout_data, ::testing::StartsWith("/dev/pts/"));
  EXPECT_THAT(result->stdout_data, EndsWith("\r\n51 133\r\nerr\r\nmine\r\n"));
  EXPECT_EQ(result->stderr_data, "");
  EXPECT_EQ(result->exit_code, 7);
  EXPECT_FALSE(result->truncated);
}

TEST_F(SessionTerminalTest, WithoutAStdinItsReaderSeesTheEndAtOnce) {
  auto client = connect();
  ExecRequest request = on_terminal("cat; echo over");
  request.timeout = 30s;
  auto result = client.exec(request);
  ASSERT_TRUE(result);
  EXPECT_FALSE(result->timed_out);
  EXPECT_THAT(result->stdout_data, EndsWith("over\r\n"));
}

TEST_F(SessionTerminalTest, TheEndOfStdinEndsAReaderAlsoInTheMiddleOfALine) {
  for (const char* text : {"", "whole\n", "whole\nhalf"}) {
    SCOPED_TRACE(text);
    auto client = connect();
    TerminalExec exec(client, on_terminal("stty -echo; echo go; cat; echo over; stty size"));
    ASSERT_TRUE(exec.see("go\r\n"));
    exec.type(text);
    exec.end_input();
    EXPECT_TRUE(exec.see("over\r\n")) << exec.shown();
    EXPECT_TRUE(exec.see("24 80\r\n"));  // the terminal itself is as open as before
    auto result = exec.finish();
    ASSERT_TRUE(result);
    EXPECT_EQ(result->exit_code, 0);
  }
}

TEST_F(SessionTerminalTest, KeysAreSignals) {
  auto client = connect();
  TerminalExec interrupted(client, on_terminal("echo go; exec sleep 1000"));
  ASSERT_TRUE(interrupted.see("go"));
  interrupted.type("\n\nx\x03");
  auto result = interrupted.finish();
  ASSERT_TRUE(result);
  EXPECT_EQ(result->signal, "SIGINT");
  EXPECT_THAT(interrupted.shown(), HasSubstr("^C"));

  TerminalExec quit(client, on_terminal("ulimit -c 0; echo go; exec sleep 1000"));
  ASSERT_TRUE(quit.see("go"));
  quit.type("\x1c");
  result = quit.finish();
  ASSERT_TRUE(result);
  EXPECT_EQ(result->signal, "SIGQUIT");
}

TEST_F(SessionTerminalTest, ASizeSentWithSigwinchArrivesAndIsNoSignalOfTheCallers) {
  int theirs = -1;
  int other = -1;
  const winsize size{30, 90, 0, 0};
  ASSERT_EQ(openpty(&other, &theirs, nullptr, nullptr, &size), 0);
  const UniqueFd master(other);
  const UniqueFd slave(theirs);
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGWINCH);
  sigset_t before;
  pthread_sigmask(SIG_BLOCK, &set, &before);
  const UniqueFd signals(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  ExecIo io;
  io.signal_fd = signals.get();
  io.terminal_fd = slave.get();
  auto client = connect();
  TerminalExec exec(client,
                    on_terminal("trap 'stty size' WINCH; echo go;"
                                "while read -r line; do echo \"line $line\"; done"),
                    io);
  ASSERT_TRUE(exec.see("go"));
  const std::string stty = "stty rows 44 cols 132 <" + std::string(ttyname(slave.get()));
  ASSERT_EQ(std::system(stty.c_str()), 0);
  kill(getpid(), SIGWINCH);
  // dash runs a trap when the command in hand is over: that is the next line.
  EXPECT_TRUE(exec.ask("one\n", "44 132")) << exec.shown();
  exec.end_input();
  auto result = exec.finish();
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  ASSERT_TRUE(result);
  EXPECT_EQ(result->exit_code, 0);
}

TEST_F(SessionTerminalTest, CancelAndTimeoutEndTheTree) {
  auto client = connect();
  TerminalExec exec(client, on_terminal("trap '' HUP INT; sleep 1000 & echo go; sleep 1000"));
  ASSERT_TRUE(exec.see("go"));
  exec.cancel();
  auto result = exec.finish();
  ASSERT_TRUE(result);
  EXPECT_EQ(result->signal, "SIGKILL");
  EXPECT_TRUE(result->left_running.empty());

  ExecRequest request = on_terminal("trap '' HUP; sleep 1000");
  request.timeout = 300ms;
  result = client.exec(request);
  ASSERT_TRUE(result);
  EXPECT_TRUE(result->timed_out);
}

TEST_F(SessionTerminalTest, TheEndOfTheLeaderHangsUpOnItsOwnGroupAndLeavesOtherSessions) {
  auto client = connect();
  ExecRequest request = on_terminal(
      "(sleep 1000; echo no) & setsid sleep 1000 >/dev/null 2>&1 </dev/null &"
      "sleep 0.2; echo $!");
  auto result = client.exec(request);
  ASSERT_TRUE(result);
  EXPECT_EQ(result->exit_code, 0);
  EXPECT_LT(result->duration, 10s);
  // What was hung up on may still be about to go.
  const auto left = static_cast<pid_t>(std::stoi(result->stdout_data));
  EXPECT_THAT(result->left_running, ::testing::Contains(left));
}

TEST_F(SessionTerminalTest, AllOutputArrivesAndTheCapHolds) {
  auto client = connect();
  auto result = client.exec(on_terminal("seq 1 50000"));
  ASSERT_TRUE(result);
  EXPECT_THAT(result->stdout_data, EndsWith("\r\n50000\r\n"));
  EXPECT_EQ(result->stdout_data.size(), 288'894u + 50'000);
  ExecRequest request = on_terminal("seq 1 50000");
  request.output_cap = 10'000;
  result = client.exec(request);
  ASSERT_TRUE(result);
  EXPECT_TRUE(result->truncated);
  EXPECT_EQ(result->stdout_data.size(), 10'000u);
}

TEST_F(SessionTerminalTest, AProgramMayCloseItsTerminalAndOpenItAgain) {
  auto client = connect();
  auto result =
      client.exec(on_terminal("exec 0<&- 1>&- 2>&-; sleep 0.3; exec 1>/dev/tty; echo back"));
  ASSERT_TRUE(result);
  EXPECT_EQ(result->stdout_data, "back\r\n");
}

TEST_F(SessionTerminalTest, APasteOfMuchMoreThanItReadsIsTakenAsItReads) {
  auto client = connect();
  constexpr std::size_t kTotal = 2u << 20;
  TerminalExec exec(client, on_terminal("stty raw -echo; echo go; head -c 2097152 | md5sum"));
  ASSERT_TRUE(exec.see("go"));
  exec.type(std::string(kTotal, 'p'));
  EXPECT_TRUE(exec.see("8324b93812c99abc5f8075097a11fe31")) << exec.shown();
  EXPECT_TRUE(exec.finish());
}

}  // namespace
}  // namespace temenos
