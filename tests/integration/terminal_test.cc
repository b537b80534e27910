// temenos run -t in a real terminal: programs that people use on one, and the caller's terminal
// after whatever has happened.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <chrono>
#include <csignal>
#include <string>
#include <thread>

#include "tests/integration/program.h"
#include "tests/integration/tmux.h"

namespace temenos::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class TerminalTest : public IntegrationTest {
 protected:
  // What the window runs: the command in a box, and then something that keeps the window.
  static std::string in_box(const std::string& command, const std::string& flags = "") {
    return "trap : INT\n\"$TEMENOS\" run --no-net --no-project -i -t " + flags + " -- " + command +
           "\necho \"status $?\"\nexec cat >/dev/null\n";
  }
  // The window shows `status`, and its terminal is as it was before.
  void expect_end(const Tmux& window, const std::string& status, const termios& before) {
    EXPECT_TRUE(window.wait_for("status " + status)) << window.screen();
    EXPECT_TRUE(same_modes(window.modes(), before));
  }
};

TEST_F(TerminalTest, PythonRepl) {
  Tmux window(host_, in_box("python3 -q"));
  const termios before = window.modes_at_start();
  ASSERT_TRUE(window.wait_for(">>>")) << window.screen();
  window.line("for i in range(3): print('row', i * 7)");
  window.line("");
  ASSERT_TRUE(window.wait_for("row 14")) << window.screen();
  // A key while Python still takes in the line before is lost to Python, on any terminal: its
  // handler only sets a flag, at which it looks when the next key comes.
  window.type("1 +");
  ASSERT_TRUE(window.wait_for("1 +")) << window.screen();
  window.key("C-c");
  ASSERT_TRUE(window.wait_for("KeyboardInterrupt")) << window.screen();
  window.line("input('name? ').upper()");
  ASSERT_TRUE(window.wait_for("name? ")) << window.screen();
  window.line("grüße");
  ASSERT_TRUE(window.wait_for("'GRÜSSE'")) << window.screen();
  window.key("Up");  // readline's history: the answer to input(), then the line with it
  window.key("Up");
  window.key("C-a");
  window.type("'again', ");
  window.key("Enter");
  window.line("x");
  ASSERT_TRUE(window.wait_for("('again', 'X')")) << window.screen();
  window.key("C-d");
  expect_end(window, "0", before);
}

TEST_F(TerminalTest, BashWithJobControl) {
  Tmux window(host_, in_box("bash --norc", "--env PS1='box> '"));
  const termios before = window.modes_at_start();
  ASSERT_TRUE(window.wait_for("box>")) << window.screen();
  // A key is a signal to the job only when the job is there to get it.
  const auto start = [&](const std::string& name) {
    window.line("clear; sh -c 'echo " + name + " $((1 + 1)); exec sleep 1000'");
    ASSERT_TRUE(window.wait_for(name + " 2\n")) << window.screen();
  };
  start("first");
  window.key("C-z");
  ASSERT_TRUE(window.wait_for("Stopped")) << window.screen();
  window.line("bg; jobs");
  ASSERT_TRUE(window.wait_for("Running")) << window.screen();
  window.line("clear; echo fore$((1 + 1)); fg");
  ASSERT_TRUE(window.wait_for("fore2\nsh -c")) << window.screen();
  window.key("C-z");
  ASSERT_TRUE(window.wait_for("Stopped")) << window.screen();
  window.line("clear; echo fore$((1 + 2)); fg");
  ASSERT_TRUE(window.wait_for("fore3\nsh -c")) << window.screen();
  window.key("C-c");
  window.line("echo \"code $?\"");
  ASSERT_TRUE(window.wait_for("code 130")) << window.screen();
  start("second");
  window.key("C-\\");
  ASSERT_TRUE(window.wait_for("Quit")) << window.screen();
  // A line that nobody has read yet does not hold up Ctrl-C.
  start("third");
  window.line("typed ahead");
  window.key("C-c");
  window.line("echo \"again $?\"");
  ASSERT_TRUE(window.wait_for("again 130")) << window.screen();
  window.key("C-d");
  expect_end(window, "0", before);
}

TEST_F(TerminalTest, Vim) {
  const auto dir = host_.dir("texts");
  Tmux window(host_, in_box("vim -u NONE -i NONE -N " + dir + "/file", "--write " + dir));
  const termios before = window.modes_at_start();
  ASSERT_TRUE(window.wait_for("[New]")) << window.screen();
  EXPECT_EQ(window.variable("alternate_on"), "1");
  // What is typed while it starts, or right behind its Ctrl-C, can be lost.
  int asked = 0;
  const auto answers = [&] {
    const std::string answer = std::to_string(987'640 + ++asked);
    return window.wait_until([&] {
      window.line(":echo " + std::to_string(987'640 + asked - 1) + "+1");
      for (int i = 0; i < 20; ++i) {
        if (window.screen().find(answer) != std::string::npos) return true;
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
      }
      return false;
    });
  };
  ASSERT_TRUE(answers()) << window.screen();
  window.type("ihello\rwörld");
  ASSERT_TRUE(window.wait_for("wörld")) << window.screen();
  window.resize(61, 13);
  window.key("Escape");
  window.line(":set columns? lines?");
  ASSERT_TRUE(window.wait_for("columns=61")) << window.screen();
  ASSERT_TRUE(window.wait_for("lines=13")) << window.screen();
  window.key("Enter");
  // Keys, which would end vim as signals. The first throws away what vim has not read yet.
  window.type("oline");
  ASSERT_TRUE(window.wait_for("wörld\nline")) << window.screen();
  window.key("C-c");
  window.key("C-\\");
  window.key("C-n");  // with the one before: to normal mode
  ASSERT_TRUE(answers()) << window.screen();
  window.line(":wq");
  expect_end(window, "0", before);
  EXPECT_EQ(window.variable("alternate_on"), "0");
  EXPECT_EQ(host_shell("cat '" + dir + "/file'"), "hello\nwörld\nline\n");
}

TEST_F(TerminalTest, Less) {
  // Keys come from /dev/tty here.
  Tmux window(host_, in_box("sh -c 'seq -f \"number %.0f\" 1000 | less'"));
  const termios before = window.modes_at_start();
  ASSERT_TRUE(window.wait_for("number 23\n")) << window.screen();
  window.key("Space");
  ASSERT_TRUE(window.wait_for("number 46\n")) << window.screen();
  window.line("/number 777");
  ASSERT_TRUE(window.wait_for("number 799\n")) << window.screen();
  window.resize(80, 10);
  ASSERT_TRUE(window.wait_until([&] {
    return window.screen().find("number 785\n") != std::string::npos &&
           window.screen().find("number 786") == std::string::npos;
  })) << window.screen();
  window.type("G");
  ASSERT_TRUE(window.wait_for("number 1000")) << window.screen();
  window.type("q");
  expect_end(window, "0", before);
  EXPECT_EQ(window.variable("alternate_on"), "0");
}

TEST_F(TerminalTest, Top) {
  Tmux window(host_, in_box("top -d 1"));
  const termios before = window.modes_at_start();
  ASSERT_TRUE(window.wait_for("COMMAND")) << window.screen();
  const std::string first = window.screen().substr(0, window.screen().find('\n'));
  EXPECT_THAT(first, HasSubstr("top - "));
  EXPECT_TRUE(window.wait_until([&] { return window.screen().find(first) == std::string::npos; }))
      << "no update";
  window.type("q");
  expect_end(window, "0", before);
}

TEST_F(TerminalTest, SizeFromTheFirstMomentAndEachNewOne) {
  Tmux window(host_,
              in_box("sh -c 'stty size; trap \"stty size; exit 7\" WINCH; echo ready; "
                     "while :; do sleep 0.05; done'"),
              93, 21);
  const termios before = window.modes_at_start();
  ASSERT_TRUE(window.wait_for("21 93\nready")) << window.screen();
  window.resize(70, 15);
  expect_end(window, "7", before);
  EXPECT_THAT(window.screen(), HasSubstr("15 70\n"));
}

TEST_F(TerminalTest, AResizeDuringTheStartIsNotLostAndEndsNothing) {
  ASSERT_EQ(run({}, "true").status, 0);  // so that no platform trial is due below
  Tmux window(host_, in_box("stty size"), 93, 21);
  const termios before = window.modes_at_start();
  const pid_t program = window.program();
  ASSERT_TRUE(window.wait_until([&] { return box_processes(program).keeper > 0; }));
  window.resize(70, 15);
  expect_end(window, "0", before);
  EXPECT_THAT(window.screen(), HasSubstr("15 70\n"));
}

TEST_F(TerminalTest, KeysAreBytesToARawProgram) {
  const auto script = host_.file("keys/keys.py", R"(
import os, sys, tty
tty.setraw(0)
print("ready", end="\r\n", flush=True)
seen = b""
while not seen.endswith(b"q"):
    seen += os.read(0, 100)
print(repr(seen), end="\r\n", flush=True)
)");
  Tmux window(host_, in_box("python3 " + script, "--read " + host_.path() + "/keys"));
  const termios before = window.modes_at_start();
  ASSERT_TRUE(window.wait_for("ready")) << window.screen();
  for (const char* key : {"C-c", "C-d", "C-z", "C-\\", "C-s", "C-q", "Enter", "Up", "q"}) {
    window.key(key);
  }
  expect_end(window, "0", before);
  EXPECT_THAT(window.screen(), HasSubstr(R"(b'\x03\x04\x1a\x1c\x13\x11\r\x1b[Aq')"));
}

TEST_F(TerminalTest, Utf8InAndOut) {
  Tmux window(host_,
              in_box("sh -c 'read -r x; printf \"[%s]\\n\" \"$x\"; read -r x; printf %s \"$x\" "
                     "| od -An -tx1'"));
  const termios before = window.modes_at_start();
  const std::string text = "漢字 e\u0301 ü 🙂 |";  // wide, combining, outside the BMP
  ASSERT_TRUE(window.wait_until([&] { return !same_modes(window.modes(), before); }));
  window.line(text);
  ASSERT_TRUE(window.wait_for("[" + text + "]")) << window.screen();
  EXPECT_THAT(window.screen(), HasSubstr(text + "\n")) << "the echo";
  window.type("a漢");
  window.key("BSpace");
  window.line("b");
  ASSERT_TRUE(window.wait_for(" 61 62\n")) << "erase takes a character, not a byte\n"
                                           << window.screen();
  expect_end(window, "0", before);
}

// The line editing of the terminal itself, as cat and password prompts have it.
TEST_F(TerminalTest, EraseAndKillOfALine) {
  Tmux window(host_, in_box("sh -c 'echo begun; read -r x; echo [$x]'"));
  const termios before = window.modes_at_start();
  ASSERT_TRUE(window.wait_for("begun")) << window.screen();
  window.type("not this\bü");
  window.key("C-u");
  window.key("C-u");
  window.type("one wrong");
  window.key("C-w");
  window.line("word");
  ASSERT_TRUE(window.wait_for("[one word]")) << window.screen();
  EXPECT_THAT(window.screen(), HasSubstr("begun\none word\n"))
      << "what was killed is off the screen";
  expect_end(window, "0", before);
}

TEST_F(TerminalTest, PasteOfTenKilobytes) {
  const auto dir = host_.dir("pasted");
  std::string text;
  for (int i = 0; text.size() < 10'000; ++i) {
    text += "line " + std::to_string(i) + " of what was pasted: äöü 0123456789\n";
  }
  Tmux window(host_, in_box("sh -c 'cat >" + dir + "/lines; stty raw -echo; echo raw; head -c " +
                                std::to_string(text.size()) + " >" + dir + "/bytes'",
                            "--write " + dir));
  const termios before = window.modes_at_start();
  ASSERT_TRUE(window.wait_until([&] { return !same_modes(window.modes(), before); }));
  window.paste(text);
  window.key("C-d");
  ASSERT_TRUE(window.wait_for("raw")) << window.screen();
  window.paste(text);
  expect_end(window, "0", before);
  EXPECT_EQ(host_shell("cat " + dir + "/lines"), text);
  EXPECT_EQ(host_shell("cat " + dir + "/bytes"), text);
}

TEST_F(TerminalTest, ExitCodesAndSignals) {
  Tmux window(host_,
              "for end in 'exit 0' 'exit 7' 'kill -9 $$' 'kill -2 $$'; do \"$TEMENOS\" run "
              "--no-net --no-project -it -- sh -c \"$end\"; echo \"$end: $?.\"; done\n" +
                  in_box("/no/such"));
  const termios before = window.modes_at_start();
  expect_end(window, "127", before);
  for (const char* line : {"exit 0: 0.", "exit 7: 7.", "kill -9 $$: 137.", "kill -2 $$: 130."}) {
    EXPECT_THAT(window.screen(), HasSubstr(line));
  }
  EXPECT_THAT(window.screen(), HasSubstr("\ntemenos: /no/such: "));
}

// What a full-screen program switches on, without one.
constexpr char kScreenModes[] =
    "printf "
    "'\\033[?1049h\\033[?1h\\033=\\033[?1003h\\033[?2004h\\033[?25l\\033[3;9r\\033[1;5Hbegun'";

void expect_plain_screen(const Tmux& window) {
  const auto plain = [&] {
    return window.variable("alternate_on") == "0" && window.variable("mouse_any_flag") == "0" &&
           window.variable("cursor_flag") == "1" && window.variable("keypad_cursor_flag") == "0" &&
           window.variable("scroll_region_upper") == "0" && window.variable("keypad_flag") == "0";
  };
  EXPECT_TRUE(window.wait_until(plain));
}

class TerminalDeathTest : public TerminalTest {
 protected:
  // Kills `who` (null: temenos itself) and expects the terminal as it was, and `says` on it.
  void kill_one(pid_t BoxProcesses::* who, const std::string& says) {
    Tmux window(host_, "echo earlier\n" +
                           in_box(std::string("sh -c \"") + kScreenModes + "; sleep 1000\""));
    const termios before = window.modes_at_start();
    ASSERT_TRUE(window.wait_for("begun")) << window.screen();
    ASSERT_EQ(window.variable("alternate_on"), "1");
    ASSERT_EQ(window.variable("mouse_any_flag"), "1");
    ASSERT_FALSE(same_modes(window.modes(), before));
    const pid_t program = window.program();
    const pid_t victim = who == nullptr ? program : box_processes(program).*who;
    ASSERT_GT(victim, 0);
    ASSERT_EQ(kill(victim, SIGKILL), 0);
    EXPECT_TRUE(window.wait_until([&] { return same_modes(window.modes(), before); }));
    expect_plain_screen(window);
    EXPECT_THAT(window.screen(), HasSubstr("earlier\n"));
    // What the shell says of a killed temenos can be ahead of the guard, on the other screen.
    if (who == nullptr) return;
    EXPECT_TRUE(window.wait_for("status 125")) << window.screen();
    EXPECT_THAT(window.screen(), HasSubstr(says));
  }
};

TEST_F(TerminalDeathTest, Cli) {
  kill_one(nullptr, "");
  EXPECT_EQ(run({}, "true").status, 0);  // sweeps what it left
}
TEST_F(TerminalDeathTest, Keeper) {
  kill_one(&BoxProcesses::keeper, "the keeper of the box was killed");
}
TEST_F(TerminalDeathTest, Session) {
  kill_one(&BoxProcesses::session, "the session process of the box died");
}
TEST_F(TerminalDeathTest, Helper) {
  kill_one(&BoxProcesses::helper, "the helper process of the box was killed");
}
TEST_F(TerminalDeathTest, Sandbox) {
  kill_one(&BoxProcesses::sandbox, "(gVisor's sentry) was killed");
}

TEST_F(TerminalDeathTest, Timeout) {
  Tmux window(host_,
              in_box(std::string("sh -c \"") + kScreenModes + "; sleep 1000\"", "--timeout 1.5"));
  const termios before = window.modes_at_start();
  expect_end(window, "124", before);
  expect_plain_screen(window);
  EXPECT_THAT(window.screen(), HasSubstr("temenos: timed out"));
}

TEST_F(TerminalDeathTest, CtrlCDuringTheStart) {
  ASSERT_EQ(run({}, "true").status, 0);  // so that no platform trial is due below
  Tmux window(host_, in_box("sleep 1000"));
  const termios before = window.modes_at_start();
  const pid_t program = window.program();
  ASSERT_TRUE(window.wait_until([&] { return box_processes(program).keeper > 0; }));
  window.key("C-c");
  expect_end(window, "130", before);
}

TEST_F(TerminalDeathTest, TheWindowIsClosed) {
  Tmux window(host_, in_box("bash --norc", "--env PS1='box> '"));
  ASSERT_TRUE(window.wait_for("box>")) << window.screen();
  window.line("sleep 1000");
  window.hang_up();
  EXPECT_TRUE(wait_for_descendants(30));
}

// Stopped from outside, because Ctrl-Z is the box's: the shell has its terminal, and the box has it
// back afterwards, with the size that it has then.
TEST_F(TerminalTest, IsStoppedAndContinued) {
  Tmux window(
      host_,
      "exec bash -c 'set -m; \"$TEMENOS\" run --no-net --no-project -it -- sh -c \"trap "
      "\\\"stty size\\\" WINCH; echo ready; while ! read -r x; do :; done; echo got \\$x\"; "
      "echo \"stopped $?\"; read -r line; fg >/dev/null; echo \"status $?\"; exec cat'");
  const termios before = window.modes_at_start();
  ASSERT_TRUE(window.wait_for("ready")) << window.screen();
  ASSERT_EQ(kill(window.program(), SIGTSTP), 0);
  ASSERT_TRUE(window.wait_for("stopped 148")) << window.screen();
  EXPECT_TRUE(same_modes(window.modes(), before));
  window.resize(70, 15);
  window.line("");
  ASSERT_TRUE(window.wait_for("15 70\n")) << window.screen();
  window.line("hello");
  ASSERT_TRUE(window.wait_for("got hello")) << window.screen();
  expect_end(window, "0", before);
}

TEST_F(TerminalTest, WithoutStdinItIsForOutput) {
  const auto result = host_.temenos({"run", "--no-net", "--no-project", "-t", "--", "sh", "-c",
                                     "test -t 0 && test -t 1 && test -t 2 && cat && echo err >&2"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.err, "");
  EXPECT_THAT(result.out, HasSubstr("err\r\n"));
}

TEST_F(TerminalTest, TermAndColortermAndNothingElse) {
  const auto variables = [&](const Variables& env, std::vector<std::string> flags) {
    std::vector<std::string> words{"run", "--no-net", "--no-project", "-t"};
    words.insert(words.end(), flags.begin(), flags.end());
    words.insert(words.end(), {"--", "sh", "-c", "echo ${TERM-none} ${COLORTERM-none} $LANG"});
    return host_.temenos(words, "", "", env).out;
  };
  EXPECT_EQ(
      variables({{"TERM", "tmux-256color"}, {"COLORTERM", "truecolor"}, {"LANG", "de_DE"}}, {}),
      "tmux-256color truecolor C.UTF-8\r\n");
  EXPECT_EQ(variables({}, {}), "dumb none C.UTF-8\r\n");
  EXPECT_EQ(variables({{"TERM", "../x"}, {"COLORTERM", "a b"}}, {}), "dumb none C.UTF-8\r\n");
  EXPECT_EQ(variables({{"TERM", std::string(65, 'x')}}, {}), "dumb none C.UTF-8\r\n");
  EXPECT_EQ(variables({{"TERM", "xterm"}}, {"--env", "TERM=vt100"}), "vt100 none C.UTF-8\r\n");
  EXPECT_EQ(host_
                .temenos({"run", "--no-net", "--no-project", "--", "sh", "-c", "echo ${TERM-none}"},
                         "", "", {{"TERM", "xterm"}})
                .out,
            "none\n");
}

TEST_F(TerminalTest, WhatCannotBe) {
  expect_error(host_.temenos({"run", "--no-net", "-it", "--", "true"}, "x"), 2,
               {"stdin is no terminal", "leave out -t"});
  const auto json = host_.temenos({"run", "--no-net", "-t", "--json", "--", "true"});
  EXPECT_EQ(json.status, 2);
  EXPECT_THAT(json.out, HasSubstr("-t and --json exclude each other"));
}

}  // namespace
}  // namespace temenos::testing
