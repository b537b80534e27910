// What the engine keeps of each operation and each client. Private to engine*.cc; engine.h has the
// rules.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "wire/box_frame.h"
#include "wire/box_protocol.h"
#include "wire/byte_queue.h"

namespace temenos::session {

using Millis = std::uint64_t;
inline constexpr Millis kNever = ~Millis{0};

struct EngineConfig {
  Millis hello_timeout = 30'000;
  Millis start_timeout = 30'000;     // from EXEC to STARTED or ERROR, from DIAL to DIALED or ERROR
  Millis kill_grace = 2'000;         // from KILL to the end of the operation
  Millis kill_grace_each = 20;       // more for each other operation being killed
  Millis assembly_timeout = 10'000;  // for a client's EXEC of several frames
  Millis claim_timeout = 30'000;     // from kAddJob to the DETACH that claims the job
};

enum class Kind : std::uint8_t {
  kExec,
  kRead,
  kWrite,
  kList,
  kStat,
  kChange,
  kDial,
  kPing,
  kJobWait
};
enum class State : std::uint8_t { kFree, kAsked, kRunning, kExited };
struct Output {
  std::uint64_t wanted = 0;   // what the client still takes, in whole frames
  std::uint32_t granted = 0;  // what init may still send of it
  bool used = false;          // some output has come
  bool ended = true;
};
struct Op {
  State state = State::kFree;
  Kind kind = Kind::kPing;
  int client = -1;  // -1: its client has gone
  std::uint32_t client_id = 0;
  std::uint32_t generation = 0;
  std::array<Output, 2> output;
  std::uint32_t stdin_credit = 0;  // what the client may still send
  bool has_stdin = false;
  bool has_terminal = false;
  bool stdin_open = false;    // the client has not sent its end
  bool stdin_closed = false;  // init has said that nobody reads it
  bool capped = false;
  bool truncated = false;
  bool timed_out = false;
  bool killed = false;
  bool starved = false;
  std::uint64_t output_left = ~std::uint64_t{0};
  box_wire::Exited exited;         // of a job: told with DONE, so that no rotation parts them
  std::uint32_t job = 0;           // that a kJobWait, of which init knows nothing, waits for
  Millis start_deadline = kNever;  // of an exec and a dial, while it is asked
  Millis deadline = kNever;
  Millis kill_deadline = kNever;
};
// One that is served, or a job: a client without a socket, whose reader is the spool.
struct Client {
  bool used = false;
  bool greeted = false;
  bool closing = false;
  bool waits_for_assembly = false;
  box_wire::FrameReader reader{box_wire::kMaxFrame};
  ByteQueue out;
  std::size_t granted = 0;         // to init for its operations
  std::uint32_t job = 0;           // its number; 0: a client
  Millis claim_deadline = kNever;  // of a job that no client has claimed yet
  std::vector<std::uint16_t> ops;
};

}  // namespace temenos::session
