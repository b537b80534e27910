// Why a box ended: the words of it, and how helper tells from what it saw.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace temenos::keeper {

enum class EndReason : std::uint32_t {
  kStopped = 1,  // asked for, or the launcher has gone
  kSandboxDied,  // gVisor's sentry was killed
  kSandboxCrashed,
  kGoferDied,      // runsc's gofer was killed
  kRunscDied,      // runsc itself was killed or failed
  kInitDied,       // the box's process 1 ended: nothing but the box does that
  kOutOfMemory,    // the kernel killed for want of memory
  kSessionDied,    // our own session process died
  kHelperDied,     // the helper (PID 1 of the sandbox's processes) was killed
  kKeeperDied,     // seen by the launcher only
  kProtocol,       // init broke the box protocol
  kTreeSurvived,   // a process tree outlived its kill
  kStartTimedOut,  // the box was not ready in time
  kTtlOver,        // limits.ttl_seconds
  kIdle,           // limits.idle_seconds
  kProcessLimit,   // limits.pids: the sandbox could not go on without one more task of the host
  kCpuOver,        // limits.cpu_seconds
  kDiskLimit,      // limits.disk_mb, or its host's file system was nearly full
};

// What ends a box that has reached a limit.
struct LimitEnd {
  EndReason reason;
  std::string detail;    // after the reason's sentence: ": …", " (…)", or empty
  std::string evidence;  // of want of memory: which of the kernel's counters says so
};

// One word for programs ("out_of_memory"), a sentence for people, and what to do.
std::string_view end_reason_name(EndReason reason);
std::string_view end_reason_text(EndReason reason);
std::string_view end_reason_hint(EndReason reason);

// It may be what is seen of a limit of the host's kernel. A crash is among them: the sentry crashes
// when the kernel kills a process that it runs the guest's code in, or refuses it a new one.
constexpr bool may_be_limit(EndReason reason) {
  return reason == EndReason::kSandboxDied || reason == EndReason::kSandboxCrashed ||
         reason == EndReason::kGoferDied || reason == EndReason::kRunscDied;
}

// What helper saw when runsc ended without being told to.
struct Ending {
  int runsc_status = 0;                 // as from waitpid(2)
  std::optional<int> sandbox_farewell;  // the sentry left by itself, with this status
  bool gofer_left = false;              // by itself
  bool gofer_killed = false;            // before the sentry left
  bool sandbox_stays = false;           // runsc has not ended at all, although the gofer was killed
  std::string panic;                    // what the sentry said first when it failed; its own words
};
EndReason judge(const Ending& ending);
// The sentence for people, with signals and statuses.
std::string describe(const Ending& ending);

}  // namespace temenos::keeper
