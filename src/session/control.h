// What keeper and session say to each other on session's descriptor 4: a SOCK_SEQPACKET socket, one
// ControlMessage a datagram, never a byte of a box in it. Both sides are ours and trusted; a
// datagram of another size or an unknown type still ends the session.
#pragma once

#include <cstdint>

namespace temenos::session {

inline constexpr int kInitFd = 3;     // SOCK_STREAM to init
inline constexpr int kControlFd = 4;  // SOCK_SEQPACKET to keeper

enum class ControlType : std::uint32_t {
  // keeper to session
  kAddClient =
      1,  // carries one SOCK_STREAM descriptor (SCM_RIGHTS); refused silently (closed) when full
  kStop = 2,            // fail what runs, tell the clients, say BYE, exit
  kReportActivity = 3,  // send kBusy or kIdle now, and from now on
  // Carries two regular files (SCM_RIGHTS), opened for appending: the segments of the spool of job
  // `detail` (1 to 2^31), each at most `reason` bytes (the nearest of kMinSegment to kMaxSegment).
  // Refused silently (closed) when there are kMaxJobs already, or one with that number that an exec
  // has; one that nobody has claimed gets the new files. A job that no client claims by DETACH
  // within EngineConfig::claim_timeout is over. A DETACH that is sent after this was sent finds the
  // job.
  kAddJob = 4,
  // session to keeper
  kJailed = 16,  // locked down; no byte of init was read before
  kReady = 17,   // init's HELLO was good; `detail` holds its features (wire/box_protocol.h)
  kInitLost =
      18,  // `reason` is a LostReason, `detail` a Violation; session goes on to BYE by itself
  kKillBox = 19,  // `reason` is a KillReason, `detail` a Violation; sent beside kInitLost or alone
  kBye = 20,      // session is about to exit
  // At most one of the two in kActivityStep (session/loop.cc), the last of what was to be said. A
  // kIdle after a kIdle means that there was work in between.
  kBusy = 21,     // an operation is under way
  kIdle = 22,     // none is
  kJobOver = 23,  // job `detail`: the last that its spool gets is written
};

inline constexpr int kMaxJobs = 64;                       // live at a time
inline constexpr std::uint32_t kMinSegment = 128u << 10;  // bytes; a frame and its header fit
inline constexpr std::uint32_t kMaxSegment = 64u << 20;   // bytes; the kernel holds session to it

enum class LostReason : std::uint32_t {
  kEof = 1,        // init closed its socket: the box ended or was killed
  kViolation = 2,  // init broke the protocol
  kTimeout = 3,    // no HELLO in time
};

enum class KillReason : std::uint32_t {
  kTreeSurvived = 1,  // an operation did not end within its grace after KILL
  kViolation = 2,
  kNoHello = 3,
  kSilent = 4,  // an exec was neither started nor refused in time
};

// How init broke the protocol. Names for logs: violation_name().
enum class Violation : std::uint32_t {
  kNone = 0,
  kBadFrame = 1,       // length or flags of a header
  kBadPayload = 2,     // a field out of range, a trailing byte
  kUnknownType = 3,    // or a type that init may not send
  kBadHello = 4,       // not the first message, or twice, or another version
  kForeignId = 5,      // an id that is not of a live operation
  kWrongState = 6,     // EXITED twice, output after its end, a reply of another kind
  kBeyondCredit = 7,   // more output than was granted
  kTooMuchCredit = 8,  // more stdin asked for than a window
};
const char* violation_name(Violation violation);

struct ControlMessage {
  ControlType type = ControlType::kStop;
  std::uint32_t reason = 0;
  std::uint32_t detail = 0;
  std::uint32_t reserved = 0;
};
static_assert(sizeof(ControlMessage) == 16);

}  // namespace temenos::session
