// The socket of a SessionClient with its buffers. Private to session_*.cc and port_pump.cc.
#pragma once

#include <poll.h>

#include <chrono>
#include <span>

#include "box/session_client.h"
#include "wire/box_frame.h"
#include "wire/box_protocol.h"
#include "wire/byte_queue.h"

namespace temenos {

using Clock = std::chrono::steady_clock;

struct SessionClient::Channel {
  explicit Channel(UniqueFd fd) : socket(std::move(fd)) {}

  // A new operation: its id, or the error that the connection already ended with.
  Result<std::uint32_t> begin();
  // Sends what is queued, waits for the socket or any of `others`, reads once. `deadline` may be
  // max().
  Result<void> wait(std::span<pollfd> others, Clock::time_point deadline);
  // The next frame of operation `id` that has already come. True: `frame` holds until the next
  // call.
  Result<bool> next(std::uint32_t id, box_wire::Frame& frame);
  Result<void> flush();
  // The one frame that ends operation `id`. Once `cancel_fd` is readable, session is asked to end
  // it.
  Result<box_wire::Frame> answer(std::uint32_t id, Clock::time_point deadline, int cancel_fd = -1);
  tl::unexpected<Error> lost();
  tl::unexpected<Error> broken(const char* what);

  UniqueFd socket;
  box_wire::FrameReader reader{2 * box_wire::kMaxFrame};
  ByteQueue out;
  bool popped = true;
  bool unusable = false;
  std::uint32_t last_id = 0;
  std::uint32_t features = 0;
  std::chrono::milliseconds file_deadline{60'000};
  std::vector<pollfd> polls;
};

// The Error for an ErrorReply; `what` says what was asked for.
tl::unexpected<Error> error_of(const box_wire::ErrorReply& reply, const std::string& what);
// The same for what was asked of job `job`.
tl::unexpected<Error> job_error(const box_wire::ErrorReply& reply, std::uint32_t job);
// How an exec ended, from its last two messages.
void set_exited(ExecResult& result, const box_wire::Exited& exited);
void set_done(ExecResult& result, box_wire::Done done);
// That a job's number is in its range.
Result<void> check_job(std::uint32_t job);

}  // namespace temenos
