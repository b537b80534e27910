// The numbers of the box protocol: message types, streams, limits. The messages are in
// box_protocol.h, what they mean in docs/box-protocol.md.
#pragma once

#include <cstddef>
#include <cstdint>

namespace temenos::box_wire {

inline constexpr std::uint32_t kMagic = 0x784f4254;  // "TBOx"
inline constexpr std::uint16_t kVersion = 1;

// Limits, in bytes.
inline constexpr std::size_t kMaxMessage = (2u << 20) + (64u << 10);  // assembled EXEC
inline constexpr std::size_t kMaxArgs = 65536;                        // argv and env, each
inline constexpr std::size_t kMaxPath = 4095;
inline constexpr std::size_t kMaxName = 255;
inline constexpr std::size_t kMaxSocketPath = 107;  // what sockaddr_un holds
inline constexpr std::size_t kMaxLeftRunning = 64;
// Credit counts whole frames, header and payload. No stream may ever have more than this
// outstanding.
inline constexpr std::uint32_t kWindow = 256 * 1024;

enum class Type : std::uint16_t {
  kHello = 1,
  kPing = 2,
  kPong = 3,
  kExec = 16,
  kStarted = 17,
  kStdin = 18,     // raw bytes; also the body of WRITE, what goes to a dialed port
  kStdinEof = 19,  // no payload
  kStdinClosed = 20,
  kStdout = 21,  // raw bytes, never empty; also READ's content, LIST's entries, what a port says
  kStderr = 22,
  kOutputEof = 23,
  kCredit = 24,
  kSignal = 25,
  kKill = 26,  // no payload; ends an exec's tree, cancels any other operation
  kExited = 27,
  kDone = 28,
  kError = 29,
  kRead = 32,
  kWrite = 33,
  kList = 34,
  kStat = 35,
  kFileDone = 36,
  kStatReply = 37,
  kMkdir = 38,
  kRemove = 39,
  kResize = 48,
  kDial = 56,
  kDialed = 57,  // no payload
  // Jobs, between client and session only: wire/job_messages.h.
  kDetach = 64,
  kDetached = 65,  // no payload
  kJobWait = 66,
  kJobSegment = 67,  // in a spool only
  kJobSignal = 68,
  // Reserved: archives from 72.
};

enum class Stream : std::uint8_t { kStdin = 0, kStdout = 1, kStderr = 2 };

// Bits of Hello::features, set by init (and passed on to clients by session).
inline constexpr std::uint32_t kFeatureCgroup = 1;  // trees are held by a pids cgroup each

}  // namespace temenos::box_wire
