// What helper, keeper and launcher tell each other: one fixed-size record, so that there is nothing
// to parse. The helper shares a user namespace with the sandbox, so its text is treated as
// anyone's: bounded, ended by us, escaped when printed.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/unique_fd.h"
#include "keeper/end_reason.h"
#include "temenos/error.h"

namespace temenos::keeper {

// What a box uses, in numbers. kUnknown: this host does not tell.
struct Numbers {
  static constexpr std::uint64_t kUnknown = ~std::uint64_t{0};
  std::uint64_t memory_bytes = kUnknown;
  std::uint64_t memory_peak_bytes = kUnknown;
  std::uint64_t cpu_us = kUnknown;
  std::uint64_t tasks = kUnknown;  // of the host
  std::uint64_t tasks_peak = kUnknown;
  std::uint64_t disk_bytes = kUnknown;
  // Hundredths of a per cent of the last 10 s.
  std::uint64_t memory_pressure = kUnknown;
  std::uint64_t cpu_pressure = kUnknown;
  std::uint64_t io_pressure = kUnknown;
  std::uint64_t oom_kills = 0;
  std::uint32_t driver = 0;  // cgroup::Driver
  std::uint32_t held = 0;    // of kHeld...: what the host's kernel keeps for this box
  static constexpr std::uint32_t kHeldMemory = 1, kHeldCpu = 2, kHeldTasks = 4, kHeldDisk = 8;
  static constexpr std::uint32_t kWatchedDisk = 16;  // by us
};

// Where the proxy on the host's loopback is, and what its clients have to say to it.
struct ProxyAddress {
  std::uint32_t port = 0;  // 0: there is none
  char password[36] = {};
};

struct Message {
  enum Kind : std::uint32_t {
    kNamespaces = 1,  // helper → keeper: the user namespace is there, waiting for its id maps
    kMapped,          // keeper → helper: go on
    kStarted,         // helper → keeper: runsc runs
    kReady,           // keeper → starter, helper: the box's init answered; `what` is a warning
    kFailed,          // helper → keeper → launcher: no box; code, sys_errno, what, hint say why
    kEnded,           // helper → keeper → launcher: the box is gone; value is the EndReason
    kStop,            // caller → keeper: end the box
    kAttach,          // caller → keeper: one descriptor, a new connection to the session
    kAddJob,          // caller → keeper: two descriptors, the spool of job `value`, each of at most
                      // `limit` bytes; to session
    kPing,            // caller → keeper: is the box alive?
    kStats,           // caller → keeper: what does the box use? The answer is a kOk with `numbers`
    kRules,           // caller → keeper: one descriptor, a sealed file with the rules of a filtered
             // network, one a line; `value` 1: some are left out, and what only they had allowed
             // ends. Answered when they hold, or with a `value` and why they do not
    kFlushNetworkLog,  // caller → keeper: answered when the log is whole; `value` grows with each
                       // connection and look-up that is refused, `what` says which of its parts
                       // have died; or with a `code`, and why it may not be whole
    kOk,               // keeper → caller: what was asked for is done
    kNetwork,          // helper → keeper: the box has its network; the listeners of its router
    kProxy,            // caller → keeper: where is the proxy? The answer is a kOk with `proxy`
  };
  std::uint32_t kind = 0;
  std::uint32_t value = 0;
  std::uint32_t code = 0;
  std::uint32_t limit = 0;
  std::int32_t sys_errno = 0;
  char what[768] = {};
  char hint[256] = {};
  char evidence[256] = {};  // kEnded for want of memory: which counter says so; `what` has it, too
  Numbers numbers;
  ProxyAddress proxy;  // kReady, kOk to kProxy
};

// How many descriptors come with a request of this kind.
std::size_t descriptors_of(std::uint32_t kind);
inline constexpr std::size_t kMaxMessageFds = 2;

// Cut to what fits.
void put_text(Message& message, std::string_view what);
std::string text_of(const Message& message);
void put_evidence(Message& message, std::string_view evidence);
std::string evidence_of(const Message& message);
void put_password(ProxyAddress& proxy, std::string_view password);
std::string password_of(const ProxyAddress& proxy);

Message failure(const Error& error);
Error to_error(const Message& message);

Result<void> send_message(int socket, const Message& message, std::span<const int> fds = {});
// kBoxDied when the peer has closed; kProtocol for anything that is not one whole Message.
Result<Message> receive_message(int socket);
// The same with at most `max_fds` descriptors.
struct MessageWithFds {
  Message message;
  std::vector<UniqueFd> fds;
};
Result<MessageWithFds> receive_message_with_fds(int socket, std::size_t max_fds);

}  // namespace temenos::keeper
