// What front, which reads the box's bytes, asks of dialer, which decides and connects. One
// SOCK_SEQPACKET socket; each datagram is one fixed-size record, a reply with at most one
// descriptor.
//
// front may have been taken over by the box: dialer believes nothing of a request. What it says it
// has seen (`app`, `name` of a report) is only for the log. Whatever it asks for, only what the
// allowlist names is connected to. `id` is front's own and comes back as it was.
//
// Thread-safety: plain values.
#pragma once

#include <cstddef>
#include <cstdint>

namespace temenos::egress {

inline constexpr std::size_t kMaxNameBytes = 253;  // RFC 1035, without the last dot

enum class Ask : std::uint32_t {
  // May a connection go to `name` or `address`, and what has to be seen of it before? Answered by
  // kAny (connected), kNeedsTls, kNeedsHttp, kRefused or kFailed.
  kDestination = 1,
  // Connect, since what had to be seen was seen: kConnected, kRefused or kFailed.
  kConnect = 2,
  kResolve = 3,  // the addresses of `name`: kResolved, or kRefused when the table is full
  kReverse = 4,  // the name of `address`: kNamed or kRefused
  // Connection `id` has ended or was refused by front: for the log. No answer.
  kReport = 5,
};

enum class Family : std::uint8_t { kName = 0, kV4 = 4, kV6 = 6 };
enum class App : std::uint8_t { kUnknown = 0, kTls = 1, kHttp = 2, kOther = 3 };
// How the destination was said.
enum class Via : std::uint8_t { kAddress = 0, kConnect = 1, kAbsolute = 2, kSocks = 3 };

enum class Why : std::uint32_t {
  kNone = 0,
  kNotAllowed = 1,      // no rule names it
  kPort = 2,            // a rule names the host, not this port
  kUnknownAddress = 3,  // of this box's names, and none has it (any more)
  kSpecialAddress = 4,  // loopback, link-local, metadata, multicast: no rule opens it
  kHostAddress = 5,     // the host's own
  kPrivateAddress = 6,  // needs `private:`
  kBadName = 7,         // no name in canonical form
  kForeignName = 8,     // the SNI or Host is another than the destination
  kNotTls = 9,          // a rule without a port allows TLS on 443 only
  kNotHttp = 10,        // and HTTP/1 on 80
  kSilent = 11,         // nothing, or not all of it, came in time
  kMalformed = 12,      // no TLS hello or HTTP head that everybody would read the same way
  kNested = 13,         // CONNECT inside of a connection
  kNoSuchName = 14,     // failed: the host's resolver says so
  kResolver = 15,       // failed: the host's resolver did not answer
  kUnreachable = 16,    // failed: sys_errno says how
  kTooMany = 17,        // connections, names or questions
  kSelfTest = 18,
};

enum class Verdict : std::uint32_t {
  kAny = 1,        // any protocol; carries the connected descriptor
  kNeedsTls = 2,   // a TLS hello whose server name is `name` (none, for an address)
  kNeedsHttp = 3,  // HTTP/1 requests whose host is `name`
  kConnected = 4,  // carries the connected descriptor
  kRefused = 5,
  kFailed = 6,    // allowed, and there is no connection
  kResolved = 7,  // `number` is the name's; `allowed`
  kNamed = 8,
  // Asked for by nobody: connection `id`, which was made, is not allowed any more. It is to be
  // ended and reported, also when it has ended already.
  kEnd = 9,
};

struct Request {
  std::uint64_t id = 0;
  Ask ask = Ask::kDestination;
  Why why = Why::kNone;  // kReport: kNone for a connection that was forwarded
  std::uint16_t port = 0;
  Family family = Family::kName;
  App app = App::kUnknown;
  Via via = Via::kAddress;
  std::uint8_t name_size = 0;
  std::uint8_t reserved[2] = {};
  std::uint8_t address[16] = {};  // network order; IPv4 uses the first four
  std::uint64_t up = 0;           // kReport: bytes from the box and to it
  std::uint64_t down = 0;
  std::uint64_t duration_ms = 0;
  char name[256] = {};
};
static_assert(sizeof(Request) == 320);

struct Reply {
  std::uint64_t id = 0;
  Verdict verdict = Verdict::kRefused;
  Why why = Why::kNone;
  std::int32_t sys_errno = 0;
  std::uint32_t number = 0;  // kResolved (egress/plan.h)
  std::uint16_t port = 0;
  std::uint8_t name_size = 0;   // what the connection's own bytes are compared with, canonical
  std::uint8_t is_address = 0;  // `name` is an address written out
  std::uint8_t allowed = 0;     // kResolved: some rule names it
  std::uint8_t reserved[3] = {};
  char name[256] = {};
};
static_assert(sizeof(Reply) == 288);

}  // namespace temenos::egress
