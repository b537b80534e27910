// The process that counts what a box's files take, for a keeper that may not look at them itself.
//
// It is a child of helper: root of the box's user namespace, in helper's mount namespace, with the
// rights to read any directory, to see the sandbox's descriptors and to stop or kill its processes,
// and no others. It holds the directory of the box's files and one socket, and nothing of what the
// box made is parsed: the kernel gives names, sizes and numbers. It dies with helper, which is
// process 1 of its PID namespace. The sandbox cannot inspect it (sys::forbid_inspection holds over
// fork).
#pragma once

#include <sys/types.h>

#include <cstdint>

#include "disk/use.h"
#include "temenos/error.h"

namespace temenos::disk {

// keeper → meter: count.
struct Ask {
  std::uint64_t number = 0;  // comes back with the answer
  std::uint64_t max_bytes = 0;
  std::uint64_t max_files = 0;
  // It stands still, or is to be stopped meanwhile: what has more than that is killed at once, who
  // is in the middle of a large write, too. The answer is sent before.
  std::uint32_t still = 0;
  std::uint32_t stop = 0;
};
// meter → keeper. `sys_errno`: not counted. An Ask that another one follows before its answer gets
// none.
struct Answer {
  std::uint64_t number = 0;
  std::uint64_t bytes = 0;
  std::uint64_t files = 0;
  std::int32_t sys_errno = 0;
};

// The meter's whole life, until `socket` (SOCK_SEQPACKET) ends: its exit status. `overlay`: the
// device of the box's root as the sandbox sees it. Every other descriptor from 3 on is closed.
int meter_main(int socket, int directory, dev_t overlay);

Result<void> send(int socket, const Ask& ask);
Result<void> send(int socket, const Answer& answer);
// kBoxDied when the meter is gone.
Result<Answer> receive_answer(int socket);

}  // namespace temenos::disk
