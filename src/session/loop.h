// The thin loop around session/engine.h: one poll(2), recvmsg and send, and for the spools of jobs
// write and ftruncate, nothing else. After it has begun the process opens, connects, starts
// and signals nothing, so the jail may forbid all of that. System calls used: poll, recvmsg,
// sendto, write, ftruncate, fcntl (F_GETFL), close, clock_gettime, memory, exit. A write over
// RLIMIT_FSIZE must be an error and not a signal: ignore SIGXFSZ.
#pragma once

#include <span>

#include "base/unique_fd.h"
#include "session/control.h"
#include "session/engine.h"
#include "temenos/error.h"

namespace temenos::session {

// Serves until keeper says STOP or goes, or the box is lost; then tells clients, for a second at
// most, and says BYE. Single-threaded. An error is a failure of the host (poll), not of a peer.
Result<void> serve(UniqueFd init, UniqueFd control, const EngineConfig& config = {});

// One datagram to the other end of a control socket, with at most two descriptors.
Result<void> send_control(int control, const ControlMessage& message,
                          std::span<const int> passed_fds = {});
inline Result<void> send_control(int control, const ControlMessage& message, int passed_fd) {
  return send_control(control, message, {&passed_fd, 1});
}

}  // namespace temenos::session
