#include "proc/terminal.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <vector>

#include "base/scope_exit.h"
#include "base/try.h"
#include "base/unique_fd.h"
#include "sys/process_sys.h"

namespace temenos::proc {

// Leaving the alternate screen puts the cursor back to where it was when that was entered, however
// long ago, and in some terminals also when it is not shown. Entering it first makes that the
// present place, and does nothing where it is shown already.
const std::string_view kTerminalReset =
    "\033[?1049h\033[?1049l\0337\033[r\0338"
    "\033[?1l\033>\033[>4m\033[<u"
    "\033[?1000l\033[?1002l\033[?1003l\033[?1005l\033[?1006l\033[?1015l\033[?1004l"
    "\033[?2004l\033[?2026l\033[?25h\033[?7h\033[4l\033(B\017\033[0m";

namespace {

constexpr unsigned kResetSeconds = 2;  // a terminal that takes no more bytes does not hold us

// What signal handlers may see. Written only while no handler is installed.
struct Current {
  pid_t owner = 0;
  int input = -1;
  termios saved{};
  termios raw{};
};
Current current;
std::atomic_flag taken = ATOMIC_FLAG_INIT;

constexpr std::array kEnding = {SIGHUP,  SIGINT, SIGQUIT, SIGTERM, SIGABRT,
                                SIGSEGV, SIGBUS, SIGFPE,  SIGILL,  SIGSYS};

// All of this file's functions down to start_guard() are async-signal-safe: they run in handlers
// and after fork.

bool set_modes(int fd, const termios& modes) {
  // TCSANOW never waits for output, which a terminal may never take.
  while (tcsetattr(fd, TCSANOW, &modes) != 0) {
    if (errno != EINTR) return false;
  }
  return true;
}

bool is_raw(int fd) {
  termios now{};
  return tcgetattr(fd, &now) == 0 && (now.c_lflag & (ICANON | ECHO | ISIG)) == 0 &&
         (now.c_oflag & OPOST) == 0;
}

void restore(int input, const termios& saved) {
  (void)tcflush(input, TCIFLUSH);
  (void)set_modes(input, saved);
}

// False too when it is not the terminal of this session.
bool in_background() {
  const pid_t foreground = tcgetpgrp(current.input);
  return foreground != -1 && foreground != getpgrp();
}

bool ending_waits() {
  sigset_t waiting;
  sigpending(&waiting);
  return std::any_of(kEnding.begin(), kEnding.end(),
                     [&](int number) { return sigismember(&waiting, number) == 1; });
}

// From a handler that blocks all signals.
void stop_by(int number) {
  sigset_t only;
  sigemptyset(&only);
  sigaddset(&only, number);
  (void)raise(number);
  sigprocmask(SIG_UNBLOCK, &only, nullptr);  // stops here
  sigprocmask(SIG_BLOCK, &only, nullptr);
}

// In the background a terminal that is raw no more is the shell's, with modes of its own.
void restore_ours() {
  if (!in_background() || is_raw(current.input)) restore(current.input, current.saved);
}

void write_reset(int output) {
  if (output >= 0) (void)!write(output, kTerminalReset.data(), kTerminalReset.size());
}

// The process is about to end. The guard does the rest.
void on_end(int number) {
  // A fork of ours that has not yet exec'ed does not own the terminal.
  if (getpid() == current.owner) restore_ours();
  (void)raise(number);  // SA_RESETHAND: ends the process when the handler returns
}

// Continued in the background, it is the shell's: who wants it then is stopped, as the kernel would
// if SIGTTOU were not blocked here. A process that is to end must come to that.
void take_back() {
  if (in_background() && !ending_waits()) stop_by(SIGTTOU);
  if (in_background()) return;
  (void)set_modes(current.input, current.raw);
  (void)kill(current.owner, SIGWINCH);  // it may have another size now
}

void on_stop(int) {
  const int saved_errno = errno;
  if (getpid() == current.owner) restore_ours();
  struct sigaction stop{};
  struct sigaction ours{};
  stop.sa_handler = SIG_DFL;
  sigaction(SIGTSTP, &stop, &ours);
  stop_by(SIGTSTP);
  sigaction(SIGTSTP, &ours, nullptr);
  // In an orphaned process group the kernel does not stop it, and no SIGCONT comes.
  if (getpid() == current.owner) take_back();
  errno = saved_errno;
}

// After SIGSTOP too, where a shell has set the terminal as it likes it.
void on_continue(int) {
  const int saved_errno = errno;
  if (getpid() == current.owner) take_back();
  errno = saved_errno;
}

// `alive` ends when the process does that took the terminal.
[[noreturn]] void run_guard(int input, int output, int alive, const termios& saved) {
  // In a session of its own no signal of the terminal, of a shell's job control or to a process
  // group comes here; and a process of another session may set a terminal's modes at any time.
  (void)setsid();
  (void)prctl(PR_SET_NAME, "temenos-tty");
  (void)!chdir("/");
  const std::array sources{fcntl(input, F_DUPFD_CLOEXEC, 3),
                           output < 0 ? -1 : fcntl(output, F_DUPFD_CLOEXEC, 3),
                           fcntl(alive, F_DUPFD_CLOEXEC, 3)};
  for (int fd = 0; fd < 3; ++fd) {
    if (sources[static_cast<std::size_t>(fd)] < 0) {
      close(fd);
    } else {
      (void)dup2(sources[static_cast<std::size_t>(fd)], fd);
    }
  }
  (void)close_range(3, ~0u, 0);
  char byte = 0;
  if (send(2, &byte, 1, MSG_NOSIGNAL) != 1) _exit(1);  // ready
  while (read(2, &byte, 1) < 0 && errno == EINTR) {
  }
  if (is_raw(0)) restore(0, saved);
  signal(SIGALRM, SIG_DFL);
  sigset_t only;
  sigemptyset(&only);
  sigaddset(&only, SIGALRM);
  sigprocmask(SIG_UNBLOCK, &only, nullptr);
  alarm(kResetSeconds);
  if (output >= 0) write_reset(1);
  _exit(0);
}

}  // namespace

struct RawTerminal::Held {
  int output = -1;
  UniqueFd alive;  // the guard has the other end
  sys::Process guard;
  struct Handler {
    int number;
    struct sigaction before;
  };
  std::vector<Handler> handlers;

  Result<void> start_guard(int input);
  void end_guard();
  void handle(int number, void (*handler)(int), int flags);
  void handle_signals();
};

Result<void> RawTerminal::Held::start_guard(int input) {
  auto [here, there] = TRY(sys::socket_pair(SOCK_STREAM));
  alive = std::move(here);
  // The child must never run a handler of this process.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  UniqueFd pidfd;
  const auto pid = sys::raw_fork(0, &pidfd);
  if (pid && *pid == 0) run_guard(input, output, there.get(), current.saved);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (!pid) return tl::make_unexpected(pid.error());
  guard = sys::Process(*pid, std::move(pidfd));
  there.reset();  // or its end would never be seen
  char byte;
  ssize_t n;
  do {
    n = read(alive.get(), &byte, 1);
  } while (n < 0 && errno == EINTR);
  if (n == 1) return {};
  end_guard();
  return fail(Code::kInternal, "the guard of the terminal did not start", "try again");
}

// Killed, because then it does nothing more, and a stopped one goes too.
void RawTerminal::Held::end_guard() {
  guard.send(SIGKILL);
  guard.wait();
}

void RawTerminal::Held::handle(int number, void (*handler)(int), int flags) {
  struct sigaction before{};
  sigaction(number, nullptr, &before);
  if ((before.sa_flags & SA_SIGINFO) != 0 || before.sa_handler != SIG_DFL) return;
  struct sigaction action{};
  action.sa_handler = handler;
  action.sa_flags = flags;
  sigfillset(&action.sa_mask);
  for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) sigdelset(&action.sa_mask, fault);
  // A stop or a continuation that comes while the other is handled must not wait for it: a process
  // that is stopped in on_stop() runs on_continue() first. Not before an end: it would stop that.
  if (handler != on_end) sigdelset(&action.sa_mask, SIGCONT);
  if (sigaction(number, &action, nullptr) == 0) handlers.push_back({number, before});
}

void RawTerminal::Held::handle_signals() {
  for (const int number : kEnding) handle(number, on_end, static_cast<int>(SA_RESETHAND));
  handle(SIGTSTP, on_stop, SA_RESTART);
  handle(SIGCONT, on_continue, SA_RESTART);
}

bool is_terminal(int fd) { return fd >= 0 && isatty(fd) == 1; }

RawTerminal::RawTerminal(std::unique_ptr<Held> held) : held_(std::move(held)) {}
RawTerminal::RawTerminal(RawTerminal&&) noexcept = default;
RawTerminal::~RawTerminal() { give_back(End::kCutOff); }

Result<RawTerminal> RawTerminal::take(int input, int output) {
  if (taken.test_and_set()) {
    return fail(Code::kConflict, "the terminal is in use", "end the other command first");
  }
  ScopeExit not_taken([] { taken.clear(); });
  current = {};
  if (tcgetattr(input, &current.saved) != 0) {
    return fail(Code::kInvalidArgument, "the input is no terminal", "run it in a terminal");
  }
  current.owner = getpid();
  current.input = input;
  current.raw = current.saved;
  cfmakeraw(&current.raw);
  current.raw.c_cflag = current.saved.c_cflag;  // a serial line's speed and parity are not ours
  auto held = std::make_unique<Held>();
  held->output = is_terminal(output) ? output : -1;
  TRY(held->start_guard(input));
  not_taken.release();
  RawTerminal terminal(std::move(held));
  terminal.held_->handle_signals();
  // tcsetattr(3) succeeds when it could do a part.
  if (!set_modes(input, current.raw) || !is_raw(input)) {
    terminal.give_back(End::kOrderly);
    return fail(Code::kIo, "cannot make the terminal raw",
                "run it in the foreground of a terminal");
  }
  return terminal;
}

void RawTerminal::give_back(End end) {
  if (!held_) return;
  const auto held = std::move(held_);
  for (const auto& handler : held->handlers) sigaction(handler.number, &handler.before, nullptr);
  restore_ours();
  if (end == End::kCutOff) write_reset(held->output);
  held->end_guard();  // until here it would have done the rest
  current = {};
  taken.clear();
}

}  // namespace temenos::proc
