#include "keeper/end_reason.h"

#include <sys/wait.h>

#include <algorithm>
#include <iterator>

namespace temenos::keeper {
namespace {

// runsc exits with it for errors of its own; what it passes on of a sandbox that was killed is
// 128+n.
constexpr int kRunscFailed = 128;
// What the Go runtime exits with after a panic. The box's init never exits with either.
constexpr int kGoCrashed = 2;

struct Row {
  std::string_view name;
  std::string_view text;
  std::string_view hint;
};

Row row(EndReason reason) {
  constexpr std::string_view kAgain = "start it again";
  switch (reason) {
    case EndReason::kStopped:
      return {"stopped", "the box was stopped", kAgain};
    case EndReason::kSandboxDied:
      return {"sandbox_died", "the sandbox (gVisor's sentry) was killed", kAgain};
    case EndReason::kSandboxCrashed:
      return {"sandbox_crashed", "the sandbox (gVisor's sentry) crashed", kAgain};
    case EndReason::kGoferDied:
      return {"gofer_died", "the gofer of the sandbox was killed", kAgain};
    case EndReason::kRunscDied:
      return {"runsc_died", "runsc ended", "start it again, or see 'temenos doctor'"};
    case EndReason::kInitDied:
      return {"init_died", "the box's init (its process 1) ended",
              "let nothing in the box end its process 1, and start it again"};
    case EndReason::kOutOfMemory:
      return {"out_of_memory", "the box ran out of memory",
              "raise limits.memory_mb (--memory), or let its commands use less"};
    case EndReason::kSessionDied:
      return {"session_died", "the session process of the box died", kAgain};
    case EndReason::kHelperDied:
      return {"helper_died", "the helper process of the box was killed", kAgain};
    case EndReason::kKeeperDied:
      return {"keeper_died", "the keeper of the box was killed", kAgain};
    case EndReason::kProtocol:
      return {"protocol", "the box's init broke the box protocol",
              "do not trust what ran in it: nothing but the box's own code changes its init"};
    case EndReason::kTreeSurvived:
      return {"tree_survived", "a process tree of the box outlived its kill", kAgain};
    case EndReason::kStartTimedOut:
      return {"start_timed_out", "the box did not start in time",
              "try again when the machine is less busy"};
    case EndReason::kTtlOver:
      return {"ttl_over", "the box's time was over", "raise limits.ttl_seconds (--ttl)"};
    case EndReason::kProcessLimit:
      return {"process_limit", "the box reached its limit of processes",
              "raise limits.pids (--pids), or let its commands start fewer"};
    case EndReason::kCpuOver:
      return {"cpu_over", "the box used up its CPU time", "raise limits.cpu_seconds (--cpu)"};
    case EndReason::kDiskLimit:
      return {"disk_limit", "the box reached its limit of disk space",
              "raise limits.disk_mb (--disk), let its commands write less, or free space on the "
              "host"};
    case EndReason::kIdle:
      return {"idle", "the box was idle for too long", "raise limits.idle_seconds (--idle)"};
  }
  return {"unknown", "the box ended", kAgain};
}

// The sentry ends when the host refuses it a thread or a process. RLIMIT_NPROC counts no refusals,
// so its own words have to tell; they choose between words of ours.
bool was_refused_a_task(std::string_view panic) {
  constexpr std::string_view kWords[] = {
      "failed to get clone", "resource temporarily unavailable", "failed to create new OS thread",
      "failed to create a syscall thread", "unable to allocate a sysmsg stub thread"};
  return std::any_of(std::begin(kWords), std::end(kWords),
                     [panic](std::string_view word) { return panic.find(word) != panic.npos; });
}

std::string signal_or_status(int status) {
  if (status > 128) return "by signal " + std::to_string(status - 128);
  return "with status " + std::to_string(status);
}

}  // namespace

std::string_view end_reason_name(EndReason reason) { return row(reason).name; }
std::string_view end_reason_text(EndReason reason) { return row(reason).text; }
std::string_view end_reason_hint(EndReason reason) { return row(reason).hint; }

EndReason judge(const Ending& ending) {
  if (ending.sandbox_stays) return EndReason::kGoferDied;
  if (!ending.sandbox_farewell) {
    const bool own =
        WIFSIGNALED(ending.runsc_status) || WEXITSTATUS(ending.runsc_status) == kRunscFailed;
    return own ? EndReason::kRunscDied : EndReason::kSandboxDied;
  }
  // Without its gofer the sentry kills the box's init, and then leaves as if init had.
  if (ending.gofer_killed) return EndReason::kGoferDied;
  if (*ending.sandbox_farewell == kGoCrashed || *ending.sandbox_farewell == kRunscFailed) {
    return was_refused_a_task(ending.panic) ? EndReason::kProcessLimit : EndReason::kSandboxCrashed;
  }
  return EndReason::kInitDied;
}

std::string describe(const Ending& ending) {
  const EndReason reason = judge(ending);
  const std::string text(end_reason_text(reason));
  const int status = ending.runsc_status;
  switch (reason) {
    case EndReason::kRunscDied:
      if (WIFSIGNALED(status)) {
        return "runsc was ended by signal " + std::to_string(WTERMSIG(status));
      }
      return "runsc exited with status " + std::to_string(WEXITSTATUS(status));
    case EndReason::kSandboxDied:
      return text + " " + signal_or_status(WEXITSTATUS(status));
    case EndReason::kInitDied:
      return text + " " + signal_or_status(*ending.sandbox_farewell);
    default:
      return text;
  }
}

}  // namespace temenos::keeper
