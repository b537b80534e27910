#include "cgroup/bite.h"

#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "base/try.h"
#include "sys/file_sys.h"
#include "sys/process_sys.h"

namespace temenos::cgroup {
namespace {

constexpr std::uint64_t kMemory = std::uint64_t{16} << 20;
constexpr std::size_t kTooMuch = std::size_t{64} << 20;
constexpr std::uint64_t kTasks = 3;
constexpr std::uint32_t kCpuThousandths = 100;  // 10 ms in each 100
constexpr std::int64_t kPatienceNs = 8'000'000'000;
constexpr int kLookMs = 10;

std::int64_t now_ns() {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return std::int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

// What the child has seen, in its exit status.
constexpr int kForkRefused = 1;
constexpr int kFailed = 2;

bool join(const std::vector<int>& fds) {
  for (const int fd : fds) {
    if (write(fd, "0", 1) != 1) return false;
  }
  return true;
}

// More than the limit; each child waits to be killed by us.
bool fork_is_refused() {
  pid_t children[kTasks + 1];
  std::size_t count = 0;
  bool refused = false;
  while (count < kTasks + 1 && !refused) {
    const pid_t self = getpid();
    const pid_t pid = fork();
    if (pid == 0) {
      if (sys::die_with_parent() && getppid() == self) pause();
      _exit(0);
    }
    if (pid < 0) {
      refused = errno == EAGAIN;
      break;
    }
    children[count++] = pid;
  }
  for (std::size_t i = 0; i < count; ++i) {
    kill(children[i], SIGKILL);
    waitpid(children[i], nullptr, 0);
  }
  return refused;
}

int run_into_task_limit(const std::vector<int>& join_fds) {
  if (!join(join_fds)) return kFailed;
  return fork_is_refused() ? kForkRefused : 0;
}

int use_cpu(const std::vector<int>& join_fds) {
  if (!join(join_fds)) return kFailed;
  for (volatile unsigned work = 0;; work = work + 1) {
  }
}

int use_memory(const std::vector<int>& join_fds) {
  if (!join(join_fds)) return kFailed;
  void* memory =
      mmap(nullptr, kTooMuch, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return kFailed;
  memset(memory, 1, kTooMuch);
  return 0;
}

struct Seen {
  sys::ExitStatus status;
  bool whole = false;  // it ended by itself, or there was enough of it; else patience ended first
};

// Until it ends, or `enough`, or patience does.
template <typename F, typename G>
Result<Seen> in_child(F work, G enough) {
  auto child = TRY(sys::start_in_namespaces(0, [&work] {
    if (!sys::die_with_parent()) return kFailed;
    return work();
  }));
  Seen seen;
  pollfd fd{child.pidfd(), POLLIN, 0};
  const std::int64_t end = now_ns() + kPatienceNs;
  do {
    seen.whole = poll(&fd, 1, kLookMs) > 0 || enough();
  } while (!seen.whole && now_ns() < end);
  child.send(SIGKILL);
  const auto status = child.wait();
  if (!status) return fail(Code::kInternal, "waiting for a child");
  seen.status = *status;
  return seen;
}

// Nothing was seen then, not even that a limit does not hold.
tl::unexpected<Error> took_too_long() {
  return fail(Code::kTimedOut, "trying it took too long",
              "try again when the machine is less busy");
}

}  // namespace

Result<Controls> bite(Group& group) {
  (void)group.limit({kMemory, kCpuThousandths, kTasks});  // what was refused is not in controls()
  const auto fds = group.join_fds();
  Controls held;
  const auto until_it_ends = [] { return false; };
  const auto first = TRY(in_child([&] { return run_into_task_limit(fds); }, until_it_ends));
  if (!first.whole) return took_too_long();
  if (first.status.code < 0 || (first.status.code & kFailed) != 0) {
    return fail(Code::kUnsupported, "no process can be put into the group");
  }
  held.tasks = group.controls().tasks && (first.status.code & kForkRefused) != 0;
  if (group.controls().cpu) {
    // How much of a time was work, on a machine that is busy or stands still now and then, nobody
    // knows but the kernel, which counts when it held us back.
    const auto held_back = [&group] { return group.throttled() > 0; };
    TRY(in_child([&] { return use_cpu(fds); }, held_back));
    held.cpu = held_back();
  }
  if (!group.controls().memory) return held;
  const auto before = group.oom_kills();
  const auto second = TRY(in_child([&] { return use_memory(fds); }, until_it_ends));
  if (!second.whole) return took_too_long();
  held.memory = second.status.signal == SIGKILL && group.oom_kills() > before;
  return held;
}

}  // namespace temenos::cgroup
