#include "proc/terminal.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>

#include "base/unique_fd.h"

namespace temenos::proc {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int kDeadlineMs = 20'000;

bool same(const termios& a, const termios& b) {
  return a.c_iflag == b.c_iflag && a.c_oflag == b.c_oflag && a.c_cflag == b.c_cflag &&
         a.c_lflag == b.c_lflag && memcmp(a.c_cc, b.c_cc, sizeof a.c_cc) == 0;
}

// A pseudo terminal whose other end the tests' programs have.
class Pty {
 public:
  Pty() : master_(posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC)) {
    if (!master_ || grantpt(master_.get()) != 0 || unlockpt(master_.get()) != 0) abort();
    path_ = ptsname(master_.get());
    // Something that no default has.
    const UniqueFd slave = open_slave();
    termios modes = this->modes();
    modes.c_cc[VERASE] = 8;
    modes.c_lflag &= ~static_cast<tcflag_t>(ECHOK);
    if (tcsetattr(slave.get(), TCSANOW, &modes) != 0) abort();
  }
  int master() const { return master_.get(); }
  UniqueFd open_slave(int flags = O_NOCTTY) const {
    return UniqueFd(open(path_.c_str(), O_RDWR | O_CLOEXEC | flags));
  }
  // Of the slave, also when nobody has it open.
  termios modes() const {
    termios out{};
    if (tcgetattr(master_.get(), &out) != 0) abort();
    return out;
  }
  // All that was written until the last process has closed the terminal.
  std::string read_to_the_end() const {
    std::string out;
    const auto deadline = Clock::now() + std::chrono::milliseconds(kDeadlineMs);
    char buffer[4096];
    for (;;) {
      pollfd fd{master_.get(), POLLIN, 0};
      if (poll(&fd, 1, kDeadlineMs) <= 0 || Clock::now() > deadline) return out + "(still open)";
      const ssize_t n = read(master_.get(), buffer, sizeof buffer);
      if (n <= 0) return out;
      out.append(buffer, static_cast<std::size_t>(n));
    }
  }

 private:
  UniqueFd master_;
  std::string path_;
};

// A job in the foreground of a shell that does nothing but wait for it and report.
class Job {
 public:
  // `body` gets the terminal, and a function that tells the test a word of one byte.
  using Tell = std::function<void(char)>;
  Job(const Pty& pty, const std::function<void(int tty, const Tell&)>& body) {
    int words[2];
    int reports[2];
    if (pipe2(words, O_CLOEXEC) != 0 || pipe2(reports, O_CLOEXEC) != 0) abort();
    shell_ = fork();
    if (shell_ == 0) {
      setsid();
      prctl(PR_SET_CHILD_SUBREAPER, 1);
      UniqueFd tty = pty.open_slave(0);  // its controlling terminal from now on
      const pid_t job = fork();
      if (job == 0) {
        setpgid(0, 0);
        signal(SIGTTOU, SIG_IGN);
        tcsetpgrp(tty.get(), getpid());
        signal(SIGTTOU, SIG_DFL);
        body(tty.get(), [&words](char word) { (void)!write(words[1], &word, 1); });
        _exit(0);
      }
      close(words[1]);
      tty.reset();
      (void)!write(reports[1], &job, sizeof job);
      int status = 0;
      while (waitpid(job, &status, WUNTRACED | WCONTINUED) == job) {
        (void)!write(reports[1], &status, sizeof status);
        if (WIFEXITED(status) || WIFSIGNALED(status)) break;
      }
      // Its guard has become a child of ours and ends by itself.
      while (wait(nullptr) > 0) {
      }
      _exit(0);
    }
    close(words[1]);
    close(reports[1]);
    words_ = UniqueFd(words[0]);
    reports_ = UniqueFd(reports[0]);
    job_ = report();
  }
  ~Job() {
    kill(job_, SIGKILL);
    waitpid(shell_, nullptr, 0);
  }
  Job(const Job&) = delete;
  pid_t pid() const { return job_; }
  char word() const {
    char out = '?';
    return read_one(words_.get(), &out, 1) ? out : '?';
  }
  int report() const {
    int out = -1;
    return read_one(reports_.get(), &out, sizeof out) ? out : -1;
  }

 private:
  static bool read_one(int fd, void* out, std::size_t size) {
    pollfd poll_fd{fd, POLLIN, 0};
    return poll(&poll_fd, 1, kDeadlineMs) == 1 && read(fd, out, size) == static_cast<ssize_t>(size);
  }
  pid_t shell_;
  pid_t job_;
  UniqueFd words_;
  UniqueFd reports_;
};

// The guard that `parent` has started; 0: none.
pid_t guard_of(pid_t parent) {
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const int pid = atoi(entry.path().filename().c_str());
    if (pid <= 0) continue;
    std::ifstream in(entry.path() / "stat");
    std::string line;
    std::getline(in, line);
    if (line.find("(temenos-tty) ") == std::string::npos) continue;
    if (atoi(line.c_str() + line.rfind(')') + 4) == parent) return pid;
  }
  return 0;
}

RawTerminal take(int tty) {
  auto terminal = RawTerminal::take(tty, tty);
  if (!terminal) _exit(9);
  return std::move(*terminal);
}

void forever() {
  for (;;) pause();
}

TEST(RawTerminal, IsRawAndThenAsBefore) {
  const Pty pty;
  const UniqueFd slave = pty.open_slave();
  const termios before = pty.modes();
  auto terminal = RawTerminal::take(slave.get(), slave.get());
  ASSERT_TRUE(terminal) << terminal.error().to_string();
  const termios raw = pty.modes();
  EXPECT_EQ(raw.c_lflag & (ICANON | ECHO | ISIG | IEXTEN), 0u);
  EXPECT_EQ(raw.c_oflag & OPOST, 0u);
  EXPECT_EQ(raw.c_iflag & (ICRNL | IXON | ISTRIP), 0u);
  EXPECT_EQ(raw.c_cflag, before.c_cflag);
  EXPECT_EQ(raw.c_cc[VMIN], 1);
  terminal->give_back(RawTerminal::End::kOrderly);
  EXPECT_TRUE(same(pty.modes(), before));
  terminal->give_back(RawTerminal::End::kCutOff);  // once is enough
  pollfd fd{pty.master(), POLLIN, 0};
  EXPECT_EQ(poll(&fd, 1, 0), 0) << "something was written after an orderly end";
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1) << "the guard was not reaped";
}

TEST(RawTerminal, ResetsWhenCutOffAndWhenDestroyed) {
  const Pty pty;
  const termios before = pty.modes();
  for (const bool destroyed : {false, true}) {
    const UniqueFd slave = pty.open_slave();
    auto terminal = RawTerminal::take(slave.get(), slave.get());
    ASSERT_TRUE(terminal);
    if (!destroyed) terminal->give_back(RawTerminal::End::kCutOff);
  }
  EXPECT_TRUE(same(pty.modes(), before));
  EXPECT_EQ(pty.read_to_the_end(), std::string(kTerminalReset) + std::string(kTerminalReset));
}

TEST(RawTerminal, NothingIsWrittenToWhatIsNoTerminal) {
  const Pty pty;
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  {
    const UniqueFd reader(ends[0]);
    UniqueFd writer(ends[1]);
    const UniqueFd slave = pty.open_slave();
    {
      ASSERT_TRUE(RawTerminal::take(slave.get(), writer.get()));
    }
    writer.reset();
    char byte;
    EXPECT_EQ(read(reader.get(), &byte, 1), 0);
  }
  EXPECT_EQ(pty.read_to_the_end(), "");
}

TEST(RawTerminal, OneAtATimeAndOnlyTerminals) {
  const Pty pty;
  const UniqueFd slave = pty.open_slave();
  const UniqueFd null(open("/dev/null", O_RDWR | O_CLOEXEC));
  const auto refused = RawTerminal::take(null.get(), -1);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kInvalidArgument);
  const auto first = RawTerminal::take(slave.get(), -1);
  ASSERT_TRUE(first);
  const auto second = RawTerminal::take(slave.get(), -1);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, Code::kConflict);
  EXPECT_FALSE(is_terminal(null.get()));
  EXPECT_FALSE(is_terminal(-1));
  EXPECT_TRUE(is_terminal(slave.get()));
}

TEST(RawTerminal, WhatWasTypedBeforeIsKeptAndWhatWasNotReadIsNot) {
  const Pty pty;
  const UniqueFd slave = pty.open_slave();
  ASSERT_EQ(write(pty.master(), "early", 5), 5);  // no end of line: canonical mode has it not ready
  auto terminal = RawTerminal::take(slave.get(), -1);
  ASSERT_TRUE(terminal);
  char buffer[16];
  ASSERT_EQ(read(slave.get(), buffer, sizeof buffer), 5);
  ASSERT_EQ(write(pty.master(), "rm -rf x\n", 9), 9);
  pollfd fd{slave.get(), POLLIN, 0};
  ASSERT_EQ(poll(&fd, 1, kDeadlineMs), 1);
  terminal->give_back(RawTerminal::End::kOrderly);
  EXPECT_EQ(poll(&fd, 1, 0), 0);
}

TEST(RawTerminal, TheGuardHoldsTheTerminalAndNothingElse) {
  const Pty pty;
  const UniqueFd slave = pty.open_slave();
  const UniqueFd other(open("/dev/null", O_RDWR));  // NOLINT: on purpose not close-on-exec
  const auto terminal = RawTerminal::take(slave.get(), slave.get());
  ASSERT_TRUE(terminal);
  const pid_t guard = guard_of(getpid());
  ASSERT_GT(guard, 0);
  EXPECT_EQ(getsid(guard), guard);
  EXPECT_EQ(getpgid(guard), guard);
  const std::string proc = "/proc/" + std::to_string(guard);
  std::vector<std::string> targets;
  for (const auto& entry : std::filesystem::directory_iterator(proc + "/fd")) {
    targets.push_back(std::filesystem::read_symlink(entry.path()).string());
  }
  ASSERT_EQ(targets.size(), 3u);
  const auto tty = std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(slave.get()));
  EXPECT_EQ(std::count(targets.begin(), targets.end(), tty.string()), 2);
  EXPECT_EQ(std::filesystem::read_symlink(proc + "/cwd").string(), "/");
}

class RawTerminalKilled : public ::testing::TestWithParam<int> {};

TEST_P(RawTerminalKilled, IsRestoredAndReset) {
  const Pty pty;
  const termios before = pty.modes();
  {
    const Job job(pty, [](int tty, const Job::Tell& tell) {
      signal(GetParam(), SIG_DFL);  // a sanitizer has handlers of its own
      const auto terminal = take(tty);
      tell('r');
      if (GetParam() == SIGABRT) {
        char byte;
        (void)!read(tty, &byte, 1);
        abort();
      }
      forever();
    });
    ASSERT_EQ(job.word(), 'r');
    ASSERT_FALSE(same(pty.modes(), before));
    if (GetParam() == SIGABRT) {
      ASSERT_EQ(write(pty.master(), "x", 1), 1);
    } else {
      ASSERT_EQ(kill(job.pid(), GetParam()), 0);
    }
    const int status = job.report();
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == GetParam()) << status;
    // With these two nobody but the guard sees the end, and it comes a moment later. After the
    // others whoever waits for the process finds the terminal restored.
    if (GetParam() != SIGKILL && GetParam() != SIGUSR1) EXPECT_TRUE(same(pty.modes(), before));
  }
  // The terminal ends only when the guard is gone, too.
  EXPECT_EQ(pty.read_to_the_end(), kTerminalReset);
  EXPECT_TRUE(same(pty.modes(), before));
}
INSTANTIATE_TEST_SUITE_P(Signals, RawTerminalKilled,
                         ::testing::Values(SIGKILL, SIGUSR1, SIGTERM, SIGHUP, SIGINT, SIGQUIT,
                                           SIGSEGV, SIGABRT),
                         [](const auto& test) { return std::string(sigabbrev_np(test.param)); });

TEST(RawTerminal, ExitWithoutAWordIsCutOff) {
  const Pty pty;
  const termios before = pty.modes();
  {
    const Job job(pty, [](int tty, const Job::Tell& tell) {
      auto* never_destroyed = new RawTerminal(take(tty));
      tell(never_destroyed != nullptr ? 'r' : '?');
      _exit(3);
    });
    EXPECT_EQ(job.word(), 'r');
  }
  EXPECT_EQ(pty.read_to_the_end(), kTerminalReset);
  EXPECT_TRUE(same(pty.modes(), before));
}

TEST(RawTerminal, TheGuardLeavesATerminalAloneThatSomebodyElseHasSet) {
  const Pty pty;
  termios shell = pty.modes();
  shell.c_cc[VERASE] = 0x15;
  {
    const Job job(pty, [](int tty, const Job::Tell& tell) {
      const auto terminal = take(tty);
      tell('r');
      forever();
    });
    ASSERT_EQ(job.word(), 'r');
    {
      const UniqueFd slave = pty.open_slave();
      ASSERT_EQ(tcsetattr(slave.get(), TCSANOW, &shell), 0);
    }
    ASSERT_EQ(kill(job.pid(), SIGKILL), 0);
  }
  EXPECT_EQ(pty.read_to_the_end(), kTerminalReset);
  EXPECT_TRUE(same(pty.modes(), shell));
}

// A death of the guard leaves the handlers and the destructor.
TEST(RawTerminal, WithoutItsGuard) {
  const Pty pty;
  const UniqueFd slave = pty.open_slave();
  const termios before = pty.modes();
  {
    const auto terminal = RawTerminal::take(slave.get(), -1);
    ASSERT_TRUE(terminal);
    ASSERT_EQ(kill(guard_of(getpid()), SIGKILL), 0);
  }
  EXPECT_TRUE(same(pty.modes(), before));
}

TEST(RawTerminal, InTheBackgroundTheTerminalIsTheShells) {
  const Pty pty;
  termios shell = pty.modes();
  shell.c_cc[VERASE] = 0x15;
  {
    const Job job(pty, [&shell](int tty, const Job::Tell& tell) {
      const auto terminal = take(tty);
      signal(SIGTTOU, SIG_IGN);
      if (tcsetpgrp(tty, getppid()) != 0 || tcsetattr(tty, TCSANOW, &shell) != 0) _exit(8);
      signal(SIGTTOU, SIG_DFL);
      tell('b');
      forever();
    });
    ASSERT_EQ(job.word(), 'b');
    ASSERT_EQ(kill(job.pid(), SIGCONT), 0);
    int status = job.report();
    EXPECT_TRUE(WIFSTOPPED(status) && WSTOPSIG(status) == SIGTTOU) << status;
    EXPECT_TRUE(same(pty.modes(), shell));
    ASSERT_EQ(kill(job.pid(), SIGTERM), 0);
    ASSERT_EQ(kill(job.pid(), SIGCONT), 0);
    do {
      status = job.report();
    } while (WIFCONTINUED(status) || WIFSTOPPED(status));
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM) << status;
  }
  EXPECT_EQ(pty.read_to_the_end(), kTerminalReset);
  EXPECT_TRUE(same(pty.modes(), shell));
}

TEST(RawTerminal, StopsWithTheTerminalGivenBackAndGoesOnRaw) {
  const Pty pty;
  const termios before = pty.modes();
  termios raw{};
  {
    const Job job(pty, [](int tty, const Job::Tell& tell) {
      sigset_t set;
      sigemptyset(&set);
      sigaddset(&set, SIGWINCH);
      sigprocmask(SIG_BLOCK, &set, nullptr);
      const UniqueFd signals(signalfd(-1, &set, SFD_CLOEXEC));
      const auto terminal = take(tty);
      tell('r');
      signalfd_siginfo info;
      while (read(signals.get(), &info, sizeof info) == sizeof info) tell('w');
      tell('e');
    });
    ASSERT_EQ(job.word(), 'r');
    raw = pty.modes();
    ASSERT_EQ(kill(job.pid(), SIGTSTP), 0);
    int status = job.report();
    ASSERT_TRUE(WIFSTOPPED(status) && WSTOPSIG(status) == SIGTSTP) << status;
    EXPECT_TRUE(same(pty.modes(), before));
    ASSERT_EQ(kill(job.pid(), SIGCONT), 0);
    EXPECT_TRUE(WIFCONTINUED(job.report()));
    ASSERT_EQ(job.word(), 'w');
    EXPECT_TRUE(same(pty.modes(), raw));

    // SIGSTOP cannot be seen; a shell sets the terminal for itself meanwhile.
    ASSERT_EQ(kill(job.pid(), SIGSTOP), 0);
    do {
      status = job.report();
    } while (WIFCONTINUED(status));
    ASSERT_TRUE(WIFSTOPPED(status)) << status;
    {
      const UniqueFd slave = pty.open_slave();
      ASSERT_EQ(tcsetattr(slave.get(), TCSANOW, &before), 0);
    }
    ASSERT_EQ(kill(job.pid(), SIGCONT), 0);
    while (!same(pty.modes(), raw)) ASSERT_EQ(job.word(), 'w');

    ASSERT_EQ(kill(job.pid(), SIGTSTP), 0);
    do {
      status = job.report();
    } while (WIFCONTINUED(status));
    ASSERT_TRUE(WIFSTOPPED(status) && WSTOPSIG(status) == SIGTSTP) << status;
    EXPECT_TRUE(same(pty.modes(), before)) << "a second stop is as the first";
  }
  EXPECT_TRUE(same(pty.modes(), before));
}

}  // namespace
}  // namespace temenos::proc
