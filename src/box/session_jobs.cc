// SessionClient's part of jobs: session alone answers, init is not asked.
#include <cerrno>
#include <optional>

#include "base/try.h"
#include "box/session_channel.h"
#include "wire/job_messages.h"

namespace temenos {

using namespace box_wire;

tl::unexpected<Error> job_error(const ErrorReply& reply, std::uint32_t job) {
  const std::string what = "job " + std::to_string(job);
  if (reply.stage != Stage::kFile || reply.error != ENOENT) return error_of(reply, what);
  return fail(Code::kNotFound, what + " does not run in this box",
              "it is over, or never began; its log says which");
}

Result<void> check_job(std::uint32_t job) {
  if (job >= 1 && job <= kMaxJob) return {};
  return fail(Code::kInvalidArgument, "job number " + std::to_string(job),
              "give the number of a job, 1 to 2147483648");
}

Result<Frame> SessionClient::Channel::answer(std::uint32_t id, Clock::time_point deadline,
                                             int cancel_fd) {
  for (;;) {
    Frame frame;
    if (TRY(next(id, frame))) return frame;
    if (Clock::now() >= deadline) {
      unusable = true;
      return fail(Code::kTimedOut, "no answer from the box's session in time",
                  "the host may be overloaded; try again");
    }
    pollfd cancel{cancel_fd, POLLIN, 0};
    TRY(wait({&cancel, 1}, deadline));
    if (cancel.revents == 0) continue;
    put(out, id, Type::kKill);
    cancel_fd = -1;
  }
}

Result<bool> SessionClient::wait_job(std::uint32_t job, std::chrono::milliseconds timeout,
                                     int cancel_fd) {
  TRY(check_job(job));
  const auto ms = std::clamp<std::int64_t>(timeout.count(), 0, UINT32_MAX);
  const std::uint32_t id = TRY(channel_->begin());
  put(channel_->out, id, JobWait{job, static_cast<std::uint32_t>(ms)});
  const auto deadline = Clock::now() + std::chrono::milliseconds(ms) + channel_->file_deadline;
  const Frame frame = TRY(channel_->answer(id, deadline, cancel_fd));
  FileDone done;
  ErrorReply reply;
  const auto type = static_cast<Type>(frame.header.type);
  if (type == Type::kFileDone && decode(frame.payload, done)) return done.count != 0;
  if (type != Type::kError || !decode(frame.payload, reply)) {
    return channel_->broken("no answer to a wait for a job");
  }
  if (reply.stage == Stage::kCancelled) return false;
  return job_error(reply, job);
}

Result<void> SessionClient::signal_job(std::uint32_t job, int signal, bool tree) {
  TRY(check_job(job));
  if (signal < 0 || signal > 64) {
    return fail(Code::kInvalidArgument, "signal " + std::to_string(signal),
                "give a signal from 1 to 64, or 0 to end the job");
  }
  const std::uint32_t id = TRY(channel_->begin());
  put(channel_->out, id, JobSignal{job, static_cast<std::uint8_t>(signal), tree});
  const Frame frame = TRY(channel_->answer(id, Clock::now() + channel_->file_deadline));
  FileDone done;
  ErrorReply reply;
  const auto type = static_cast<Type>(frame.header.type);
  if (type == Type::kFileDone && decode(frame.payload, done)) return {};
  if (type == Type::kError && decode(frame.payload, reply)) return job_error(reply, job);
  return channel_->broken("no answer to a signal for a job");
}

}  // namespace temenos
