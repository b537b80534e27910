// Runs in a box: what the spawn of an exec costs there without temenos. Does what init does for one
// (two pipes, a child that shares the memory until it has called execve, a wait for the ends of the
// pipes and for SIGCHLD) and none of what is ours: no messages, no group of processes. Starts
// /bin/true COUNT times and prints the median in nanoseconds.
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

struct Stdio {
  int null = -1;
  int ends[2][2] = {{-1, -1}, {-1, -1}};  // of stdout and stderr: read, write
};

volatile sig_atomic_t child_ended = 0;
void on_child(int) { child_ended = 1; }

int child(void* argument) {
  const Stdio& stdio = *static_cast<Stdio*>(argument);
  char name[] = "/bin/true";
  char* const argv[] = {name, nullptr};
  char* const env[] = {nullptr};
  setsid();
  if (dup2(stdio.null, 0) < 0 || dup2(stdio.ends[0][1], 1) < 0 || dup2(stdio.ends[1][1], 2) < 0 ||
      chdir("/root") != 0) {
    _exit(126);
  }
  execve(name, argv, env);
  _exit(127);
}

long long now_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1'000'000'000LL + now.tv_nsec;
}

// Until `pid` has ended well and nobody holds its output open.
bool wait_for(pid_t pid, Stdio& stdio, const sigset_t& while_waiting) {
  bool reaped = false;
  int open = 2;
  while (!reaped || open > 0) {
    pollfd fds[] = {{stdio.ends[0][0], POLLIN, 0}, {stdio.ends[1][0], POLLIN, 0}};
    const int ready = ppoll(fds, 2, nullptr, &while_waiting);
    for (int i = 0; i < 2 && ready > 0; ++i) {
      char byte = 0;
      if (fds[i].revents == 0 || read(fds[i].fd, &byte, 1) != 0) continue;
      close(fds[i].fd);
      stdio.ends[i][0] = -1;
      --open;
    }
    if (child_ended == 0) continue;
    child_ended = 0;
    int status = 0;
    if (waitpid(pid, &status, WNOHANG) != pid) continue;
    if (status != 0) return false;
    reaped = true;
  }
  return true;
}

bool spawn_once(const sigset_t& while_waiting) {
  alignas(16) static char stack[64 * 1024];
  Stdio stdio;
  stdio.null = open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (stdio.null < 0 || pipe2(stdio.ends[0], O_CLOEXEC) != 0 ||
      pipe2(stdio.ends[1], O_CLOEXEC) != 0) {
    return false;
  }
  const pid_t pid = clone(child, stack + sizeof stack, CLONE_VM | CLONE_VFORK | SIGCHLD, &stdio);
  close(stdio.null);
  close(stdio.ends[0][1]);
  close(stdio.ends[1][1]);
  return pid > 0 && wait_for(pid, stdio, while_waiting);
}

}  // namespace

int main(int argc, char** argv) {
  const int count = argc == 2 ? atoi(argv[1]) : 0;
  if (count < 1) return 2;
  struct sigaction action{};
  action.sa_handler = on_child;
  action.sa_flags = SA_NOCLDSTOP;
  sigaction(SIGCHLD, &action, nullptr);
  sigset_t blocked;
  sigset_t while_waiting;
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGCHLD);
  sigprocmask(SIG_BLOCK, &blocked, &while_waiting);
  sigdelset(&while_waiting, SIGCHLD);
  std::vector<long long> samples;
  for (int i = 0; i < count; ++i) {
    const long long begin = now_ns();
    if (!spawn_once(while_waiting)) return 1;
    samples.push_back(now_ns() - begin);
  }
  std::nth_element(samples.begin(), samples.begin() + count / 2, samples.end());
  std::printf("%lld\n", samples[static_cast<std::size_t>(count / 2)]);
  return 0;
}
