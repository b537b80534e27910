// Commands on a terminal of a box: gVisor's terminals, with what init adds, behave as people
// expect.
#include "testing/terminal_exec.h"

#include <gmock/gmock.h>
#include <sys/signalfd.h>

#include <csignal>

#include "tests/integration/live_box.h"

namespace temenos::testing {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using namespace std::chrono_literals;

class TerminalTest : public LiveBoxTest {
 protected:
  ExecRequest bash() const { return command({"/bin/bash", "--norc", "--noediting", "-i"}); }
  ExecRequest readline_bash() const { return command({"/bin/bash", "--norc", "-i"}); }
  ExecRequest script(const std::string& text) const { return command({"/bin/bash", "-c", text}); }
};
INSTANTIATE_TEST_SUITE_P(Each, TerminalTest, ::testing::ValuesIn(platforms()),
                         [](const auto& info) { return info.param; });

TEST_P(TerminalTest, IsTheControllingTerminalOfTheSizeAskedFor) {
  ExecRequest request = script(
      "test -t 0 && test -t 1 && test -t 2 && tty && stty size;"
      "echo err >&2; stty -a | grep -o iutf8; exit 7");
  request.terminal = TerminalSize{51, 133};
  const auto result = session().exec(request);
  ASSERT_TRUE(result) << result.error().to_string();
  EXPECT_THAT(result->stdout_data, HasSubstr("/dev/pts/"));
  EXPECT_THAT(result->stdout_data, EndsWith("\r\n51 133\r\nerr\r\niutf8\r\n"));
  EXPECT_EQ(result->exit_code, 7);
  EXPECT_TRUE(result->left_running.empty());
}

TEST_P(TerminalTest, BashHasJobControl) {
  TerminalExec exec(session(), bash());
  ASSERT_TRUE(exec.see("$ ")) << exec.shown();
  EXPECT_THAT(exec.shown(), Not(HasSubstr("job control")));
  // A job says itself that it runs: a key before that is bash's.
  const std::string job = "sh -c 'echo r\"\"un; while read -r x; do echo \"<$x>\"; done'\n";
  // Ctrl-C ends the job and not the shell.
  ASSERT_TRUE(exec.ask(job, "run\r\n")) << exec.shown();
  ASSERT_TRUE(exec.ask("\x03", "$ ")) << exec.shown();
  ASSERT_TRUE(exec.ask("echo status $?\n", "status 130\r\n")) << exec.shown();
  // Ctrl-Z stops it; fg goes on with it.
  ASSERT_TRUE(exec.ask(job, "run\r\n")) << exec.shown();
  ASSERT_TRUE(exec.ask("\x1a", "Stopped")) << exec.shown();
  ASSERT_TRUE(exec.see("$ "));
  ASSERT_TRUE(exec.ask("jobs\n", "Stopped")) << exec.shown();
  ASSERT_TRUE(exec.see("$ "));
  ASSERT_TRUE(exec.ask("fg\n", "done'\r\n")) << exec.shown();
  ASSERT_TRUE(exec.ask("mine\n", "<mine>")) << exec.shown();
  ASSERT_TRUE(exec.ask("\x03", "$ ")) << exec.shown();
  ASSERT_TRUE(exec.ask("echo status $?\n", "status 130\r\n")) << exec.shown();
  // In the background it is not hit.
  ASSERT_TRUE(exec.see("$ "));
  ASSERT_TRUE(exec.ask("sleep 1000 &\n", "$ "));
  ASSERT_TRUE(exec.ask("\x03", "$ ")) << exec.shown();
  ASSERT_TRUE(exec.ask("kill %1; wait %1; echo gone $?\n", "gone 143")) << exec.shown();
  exec.type("exit 5\n");
  const auto result = exec.finish();
  ASSERT_TRUE(result) << result.error().to_string();
  EXPECT_EQ(result->exit_code, 5) << exec.shown();
}

TEST_P(TerminalTest, KeysAreSignalsAlsoBehindLinesThatNobodyReads) {
  for (const auto& [keys, signal] : std::vector<std::pair<std::string, std::string>>{
           {"\x03", "SIGINT"}, {"\x1c", "SIGQUIT"}, {"\n\nls\nhalf\x03", "SIGINT"}}) {
    // Not bash, which ignores SIGQUIT until it has gone.
    TerminalExec exec(session(),
                      command({"/bin/sh", "-c", "ulimit -c 0; echo go; exec sleep 1000"}));
    ASSERT_TRUE(exec.see("go\r\n"));
    exec.type(keys);
    const auto result = exec.finish();
    ASSERT_TRUE(result) << result.error().to_string();
    EXPECT_EQ(result->signal, signal);
    EXPECT_THAT(exec.shown(), HasSubstr(keys.back() == '\x03' ? "^C" : "^\\"));
    EXPECT_THAT(exec.shown(), Not(HasSubstr(keys.substr(keys.size() - 1))));
  }
}

TEST_P(TerminalTest, AnInterruptFlushesTheLineAndReachesNobodyAsACharacter) {
  TerminalExec exec(session(), script("trap 'echo trapped' INT; echo go; while read -r line; do "
                                      "printf 'line <%s>\\n' \"$line\"; done; echo end"));
  ASSERT_TRUE(exec.see("go\r\n"));
  ASSERT_TRUE(exec.ask("halfü\x03", "trapped")) << exec.shown();
  ASSERT_TRUE(exec.ask("whole\n", "line <whole>")) << exec.shown();
  ASSERT_TRUE(exec.ask("\x04", "end")) << exec.shown();
}

TEST_P(TerminalTest, WithoutIsigTheKeysAreCharacters) {
  TerminalExec exec(session(), script("stty raw -echo; echo go; head -c 6 | od -An -tx1"));
  ASSERT_TRUE(exec.see("go"));
  exec.type(std::string("\x03\x1a\x1c\x00\x04x", 6));
  EXPECT_TRUE(exec.see("03 1a 1c 00 04 78")) << exec.shown();
  const auto result = exec.finish();
  ASSERT_TRUE(result);
  EXPECT_EQ(result->exit_code, 0);
  // A key that is switched off is no key: Ctrl-Space is NUL.
  TerminalExec off(
      session(),
      script("stty -icanon -echo intr undef susp undef; echo go; head -c 3 | od -An -tx1"));
  ASSERT_TRUE(off.see("go"));
  off.type(std::string("\x00\x03z", 3));
  EXPECT_TRUE(off.see("00 03 7a")) << off.shown();
}

TEST_P(TerminalTest, TheModeOfTheProgramIsItsOwnAgainAfterEachKey) {
  TerminalExec exec(session(), script("stty -g >/tmp/before; trap : INT; echo go;"
                                      "read -r a; stty -g | cmp - /tmp/before && echo same"));
  ASSERT_TRUE(exec.see("go"));
  exec.type("x\x03y\x03");
  ASSERT_TRUE(exec.ask("z\n", "same")) << exec.shown();
}

TEST_P(TerminalTest, ResizeSetsTheSizeAndSendsSigwinch) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGWINCH);
  sigset_t before;
  pthread_sigmask(SIG_BLOCK, &set, &before);
  const UniqueFd signals(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  const UniqueFd master(posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC));
  ASSERT_TRUE(master && unlockpt(master.get()) == 0);
  ExecIo io;
  io.signal_fd = signals.get();
  io.terminal_fd = master.get();
  {
    TerminalExec exec(session(),
                      command({"python3", "-c",
                               "import os,signal\n"
                               "signal.signal(signal.SIGWINCH, lambda *_: None)\n"
                               "print('go', flush=True)\n"
                               "signal.sigwait([signal.SIGUSR1]) if 0 else signal.pause()\n"
                               "print(*os.get_terminal_size())\n"}),
                      io);
    ASSERT_TRUE(exec.see("go"));
    ASSERT_EQ(std::system(("stty rows 44 cols 132 <" + std::string(ptsname(master.get()))).c_str()),
              0);
    // Python handles a signal between two steps, so it may have come before pause(2) began.
    for (int i = 0; i < 100 && exec.shown().find("132") == std::string::npos; ++i) {
      kill(getpid(), SIGWINCH);
      if (exec.see_within("132 44", 300ms)) break;
    }
    EXPECT_THAT(exec.shown(), HasSubstr("132 44\r\n"));
    const auto result = exec.finish();
    ASSERT_TRUE(result);
    EXPECT_EQ(result->exit_code, 0);
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

TEST_P(TerminalTest, TheEndOfInputIsTyped) {
  for (const char* text : {"", "whole\n", "whole\nhalf"}) {
    SCOPED_TRACE(text);
    TerminalExec exec(session(), script("stty -echo; echo go; cat; echo over; stty size"));
    ASSERT_TRUE(exec.see("go\r\n"));
    exec.type(text);
    exec.end_input();
    EXPECT_TRUE(exec.see("over\r\n")) << exec.shown();
    EXPECT_TRUE(exec.see("24 80")) << exec.shown();
    ASSERT_TRUE(exec.finish());
  }
  ExecRequest request = script("cat; echo over");
  request.terminal = TerminalSize{};
  const auto result = session().exec(request);
  ASSERT_TRUE(result);
  EXPECT_THAT(result->stdout_data, EndsWith("over\r\n"));
  // A program that reads keys takes Ctrl-D for the end.
  TerminalExec shell(session(), readline_bash());
  ASSERT_TRUE(shell.see("$ "));
  ASSERT_TRUE(shell.ask("echo $((6*7))\n", "42"));
  ASSERT_TRUE(shell.see("$ "));
  shell.end_input();
  const auto ended = shell.finish();
  ASSERT_TRUE(ended);
  EXPECT_EQ(ended->exit_code, 0) << shell.shown();
}

TEST_P(TerminalTest, Utf8IsErasedByCharacter) {
  TerminalExec exec(session(),
                    script("echo go; read -r line; printf '<%s>' \"$line\" | od -An -c -tx1"));
  ASSERT_TRUE(exec.see("go"));
  exec.type("aéö\x7f\x7fλ→x\x7f\n");
  EXPECT_TRUE(exec.see("3c  61  ce  bb  e2  86  92  3e")) << exec.shown();
}

TEST_P(TerminalTest, ReadlineAndItsInterrupt) {
  TerminalExec exec(session(), readline_bash());
  ASSERT_TRUE(exec.see("$ "));
  ASSERT_TRUE(exec.ask("echo no", "no") && exec.ask("\x03", "^C")) << exec.shown();
  ASSERT_TRUE(exec.see("$ ")) << exec.shown();
  ASSERT_TRUE(exec.ask("echo a''b\n", "ab\r\n")) << exec.shown();
  ASSERT_TRUE(exec.ask("sh -c 'echo r\"\"un; exec cat'\n", "run\r\n")) << exec.shown();
  ASSERT_TRUE(exec.ask("x\ny\x03", "^C")) << exec.shown();
  ASSERT_TRUE(exec.see("$ ")) << exec.shown();
  ASSERT_TRUE(exec.ask("stty size\n", "24 80")) << exec.shown();
  ASSERT_TRUE(exec.see("$ "));
  exec.type("\x04");
  const auto result = exec.finish();
  ASSERT_TRUE(result);
  EXPECT_EQ(result->exit_code, 0) << exec.shown();
}

TEST_P(TerminalTest, WhatEndsItEndsAllOfIt) {
  TerminalExec exec(session(),
                    script("trap '' HUP INT; setsid sleep 1000 & sleep 1000 & echo go; wait"));
  ASSERT_TRUE(exec.see("go"));
  exec.cancel();
  auto result = exec.finish();
  ASSERT_TRUE(result);
  EXPECT_EQ(result->signal, "SIGKILL");
  EXPECT_EQ(output_of("pgrep -c sleep || true"), "0\n");
  ExecRequest request = script("trap '' HUP; sleep 1000");
  request.terminal = TerminalSize{};
  request.timeout = 500ms;
  result = session().exec(request);
  ASSERT_TRUE(result);
  EXPECT_TRUE(result->timed_out);
}

TEST_P(TerminalTest, AllOutputArrivesAlsoWhenALateHolderKeepsTheTerminal) {
  ExecRequest request = script("seq 1 50000; trap '' HUP; sleep 1000 &");
  request.terminal = TerminalSize{};
  const auto result = session().exec(request);
  ASSERT_TRUE(result);
  EXPECT_THAT(result->stdout_data, EndsWith("\r\n50000\r\n"));
  EXPECT_EQ(result->stdout_data.size(), 288'894u + 50'000);
  EXPECT_EQ(result->left_running.size(), 1u);
  EXPECT_LT(result->duration, 20s);
}

TEST_P(TerminalTest, TheEndOfTheLeaderHangsUpOnItsGroup) {
  ExecRequest request = script(
      "sleep 1000 &"
      "read -r other < <(setsid sh -c 'echo $$; exec sleep 999 >&2');"
      "echo $other");
  request.terminal = TerminalSize{};
  const auto result = session().exec(request);
  ASSERT_TRUE(result);
  EXPECT_EQ(output_of("while pgrep -f '[s]leep 1000' >/dev/null; do sleep 0.05; done;"
                      "pgrep -f '[s]leep 999'"),
            std::to_string(std::stoi(result->stdout_data)) + "\n");
}

}  // namespace
}  // namespace temenos::testing
