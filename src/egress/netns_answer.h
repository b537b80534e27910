// What temenos-netsetup answers to who started it: the listeners of a box's router, or why there
// are none. One SOCK_SEQPACKET datagram of fixed size, the listeners beside it.
//
// What it trusts: little. Who answers shares a user namespace with the sandbox: sizes, counts and
// kinds of sockets are checked, texts are bounded and escaped when printed.
// Thread-safety: none. Ownership: descriptors are the receiver's.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/unique_fd.h"
#include "netns/setup.h"
#include "temenos/error.h"

namespace temenos::egress {

using netns::Failure;
using netns::kListeners;
using netns::Listeners;
using netns::Step;

inline constexpr int kAnswerFd = 3;  // of temenos-netsetup

struct Answer {
  Step step = Step::kDone;  // kDone: the listeners come with it; else what failed
  std::uint32_t code = 0;   // Code
  std::int32_t sys_errno = 0;
  std::uint32_t microseconds = 0;  // what the set-up took
  char what[384] = {};
  char hint[256] = {};
};
static_assert(sizeof(Answer) == 656);

Result<void> send_listeners(int socket, const Listeners& listeners, std::uint32_t microseconds);
Result<void> send_failure(int socket, const Failure& failure);

struct Received {
  Answer answer;
  Listeners listeners;  // when answer.step is kDone
};
// Within `timeout_ms`. An error: no whole answer came, or listeners that are none.
Result<Received> receive_answer(int socket, int timeout_ms);
// The same, where a failure is an error like any other.
Result<Listeners> receive_listeners(int socket, int timeout_ms);
Error to_error(const Answer& answer);

// Six sockets of the kinds above, in this order; anything else is an error.
Result<Listeners> checked_listeners(std::vector<UniqueFd> fds);

}  // namespace temenos::egress
