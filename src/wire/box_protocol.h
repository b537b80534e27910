// The messages of the box protocol, version 1: docs/box-protocol.md says who sends what, when, and
// who checks it. Encoders write a frame into a ByteQueue; decoders take one payload and refuse
// every length over its cap, every value out of its range and every trailing byte. Trusts nothing.
// No I/O, no exceptions: init is built without them. Knows no state: an engine does.
//
// Thread-safety: plain functions and values. Ownership: string_views point into the decoded
// payload.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "wire/box_frame.h"
#include "wire/box_types.h"

namespace temenos::box_wire {

using Bytes = std::span<const std::uint8_t>;

struct Hello {
  std::uint32_t magic = kMagic;
  std::uint16_t version = kVersion;
  std::uint32_t features = 0;
};
struct Ping {  // also PONG
  std::uint64_t token = 0;
};
struct FileDone {
  std::uint64_t count = 0;  // bytes read or written; entries listed, made, removed
};
inline constexpr std::uint32_t kExecStdin = 1;  // the exec has a stdin; else it is /dev/null
inline constexpr std::uint32_t kExecTty = 2;    // a terminal; only together with kExecStdin
struct Exec {
  std::uint32_t flags = 0;
  std::uint32_t timeout_ms = 0;    // 0: none; session enforces it, init ignores it
  std::uint64_t output_cap = 0;    // bytes of both streams; 0: none; session enforces it
  std::uint32_t window = kWindow;  // initial credit of stdout and of stderr; 0: none yet
  std::string_view cwd;            // absolute
  std::vector<std::string_view> argv, env;
  std::uint16_t rows = 0, cols = 0;  // of the terminal; 0 without one, and where it is not known
};
struct Resize {
  std::uint16_t rows = 0, cols = 0;
};
struct Started {
  std::uint32_t pid = 0;
};
struct OutputEof {
  Stream stream = Stream::kStdout;
};
struct Credit {
  Stream stream = Stream::kStdout;
  std::uint32_t bytes = 0;  // 1 to kWindow
};
struct Signal {
  std::uint8_t signal = 0;  // 1 to 64
  bool tree = false;        // else the leader alone
};
struct Exited {
  bool signaled = false;
  std::uint8_t value = 0;  // exit code, or signal 1 to 64
  std::uint64_t user_us = 0, system_us = 0, max_rss_kb = 0;
};
// Bits of Done::flags; the first is set by init, the others by session only.
inline constexpr std::uint32_t kDoneOutputLost = 1;  // killed with output still in its pipes
inline constexpr std::uint32_t kDoneTimedOut = 2;
inline constexpr std::uint32_t kDoneTruncated = 4;  // output_cap reached
inline constexpr std::uint32_t kDoneBoxKilled = 8;  // the tree would not die, so the box did
struct Done {
  std::uint32_t flags = 0;
  std::uint32_t left_total = 0;             // processes of the exec that live on
  std::vector<std::uint32_t> left_running;  // the first kMaxLeftRunning of them
};
enum class Stage : std::uint8_t {
  kNotFound = 1,   // no such program (exit status 127)
  kNotExecutable,  // there, but exec refused it (126)
  kCwd,
  kSpawn,      // pipes, processes, memory
  kFile,       // a file operation; `error` is its errno
  kCancelled,  // ended by KILL before it was done
  kBusy,       // session's limit of operations
  kBoxLost,    // init or its box is gone
  kProtocol,   // the peer broke the protocol; id 0, and the connection ends
};
struct ErrorReply {
  Stage stage = Stage::kFile;
  std::uint16_t error = 0;  // errno, 0 when there is none
};
struct Read {
  std::uint64_t offset = 0;
  std::uint64_t length = ~std::uint64_t{0};  // at most
  std::uint32_t window = kWindow;
  std::string_view path;  // absolute, as in all below
};
inline constexpr std::uint32_t kKeepMode = ~std::uint32_t{0};
struct Write {
  enum class How : std::uint8_t {
    kReplace,  // whole or not at all: a temporary file in the same directory, then rename
    kCreate,   // the same, but EEXIST when there is one
    kAppend,
  };
  How how = How::kReplace;
  std::uint32_t mode = kKeepMode;  // permission bits; kKeepMode: those there, else 0644
  std::string_view path;
};
struct List {
  std::uint32_t window = kWindow;
  std::string_view path;
};
struct Stat {
  bool follow = false;
  std::string_view path;
};
enum class FileType : std::uint8_t {
  kOther,
  kRegular,
  kDirectory,
  kSymlink,
  kFifo,
  kSocket,
  kDevice
};
struct Mkdir {
  bool parents = false;       // make what is missing above it; one that is there is no error
  std::uint32_t mode = 0755;  // permission bits
  std::string_view path;
};
struct Remove {
  bool recursive = false;
  std::string_view path;
};
struct Dial {
  enum class To : std::uint8_t { kTcp = 1, kUnix };
  To to = To::kTcp;
  std::uint16_t port = 0;  // on the box's loopback; 0 for kUnix
  std::uint32_t window = kWindow;
  std::string_view path;  // of kUnix, at most kMaxSocketPath bytes, else empty
};
struct StatReply {
  FileType type = FileType::kOther;
  std::uint32_t mode = 0;  // permission bits with setuid, setgid, sticky
  std::uint32_t uid = 0, gid = 0;
  std::uint64_t size = 0;
  std::int64_t mtime_ns = 0;
  std::string_view target;  // of a symlink, else empty
};
struct Entry {
  FileType type = FileType::kOther;
  std::uint32_t mode = 0;
  std::uint64_t size = 0;
  std::int64_t mtime_ns = 0;
  std::string_view name;  // 1 to kMaxName bytes, no '/', not "." or ".."
};

// Messages without payload, and raw bytes.
void put(ByteQueue& out, std::uint32_t id, Type type, Bytes payload = {});
// Exec may take several frames. What is over a limit is the caller's fault, found by the peer's
// decoder.
#define TEMENOS_BOX_MESSAGES(X) \
  X(Hello)                      \
  X(Ping)                       \
  X(Exec)                       \
  X(Started)                    \
  X(OutputEof)                  \
  X(Credit)                     \
  X(Signal)                     \
  X(Exited)                     \
  X(Done)                       \
  X(ErrorReply)                 \
  X(Read)                       \
  X(Write)                      \
  X(List) X(Stat) X(Mkdir) X(Remove) X(FileDone) X(StatReply) X(Resize) X(Dial)
#define TEMENOS_DECLARE(M)                                      \
  void put(ByteQueue& out, std::uint32_t id, const M& message); \
  bool decode(Bytes payload, M& message);
TEMENOS_BOX_MESSAGES(TEMENOS_DECLARE)
#undef TEMENOS_DECLARE
void put_pong(ByteQueue& out, std::uint32_t id, const Ping& message);

// Checks an EXEC as decode() does, without keeping the lists: `exec.argv` and `exec.env` stay
// empty.
bool check_exec(Bytes payload, Exec& exec);
// Sends a checked EXEC on with another window, the rest as it came.
void put_exec_again(ByteQueue& out, std::uint32_t id, Bytes payload, std::uint32_t window);

// One whole entry, kMaxEntry bytes at most; a LIST frame holds whole entries.
inline constexpr std::size_t kMaxEntry = 23 + kMaxName;
std::size_t put_entry(std::span<std::uint8_t, kMaxEntry> out, const Entry& entry);
// Takes the first entry off `payload`; false when what is there is not one.
bool take_entry(Bytes& payload, Entry& entry);

}  // namespace temenos::box_wire
