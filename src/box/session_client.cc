#include "box/session_client.h"

#include <signal.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "base/text.h"
#include "base/try.h"
#include "box/session_channel.h"

namespace temenos {

using namespace box_wire;

std::string signal_name(int signal) {
  const char* name = sigabbrev_np(signal);
  return "SIG" + (name != nullptr ? std::string(name) : std::to_string(signal));
}

int exec_failure_status(const Error& error) {
  // Only the stages kNotFound and kNotExecutable of exec() give these two codes.
  if (error.code == Code::kNotFound) return 127;
  if (error.code == Code::kPermissionDenied) return 126;
  return exit_code(error.code);
}

tl::unexpected<Error> error_of(const ErrorReply& reply, const std::string& what) {
  const int err = reply.error;
  auto made = [&](Code code, const std::string& text, const char* hint) {
    auto error = fail(code, text, hint);
    error.value().sys_errno = err;
    return error;
  };
  switch (reply.stage) {
    case Stage::kNotFound:
      return made(Code::kNotFound, what + ": no such program in the box",
                  "check the name (a box has the host's /usr); for a shell line: sh -c '…'");
    case Stage::kNotExecutable:
      return made(Code::kPermissionDenied, what + ": cannot be executed in the box",
                  "check its mode, its #! line and its architecture");
    case Stage::kCwd:
      return made(Code::kInvalidArgument, what + ": cannot enter the working directory in the box",
                  "give a directory of the box with --cwd");
    case Stage::kSpawn:
      return made(Code::kExhausted, what + ": the box could not start a process",
                  "raise --pids or --memory, or end what runs in the box");
    case Stage::kFile:
      return fail_errno(err, what, "paths are those inside the box");
    case Stage::kCancelled:
      return made(Code::kTimedOut, what + ": cancelled", "try again");
    case Stage::kBusy:
      return made(Code::kExhausted, what + ": the box is busy with 1024 operations",
                  "wait for some to end");
    case Stage::kBoxLost:
      return made(Code::kBoxDied, what + ": the box ended",
                  "start it again; `temenos inspect` says why it ended");
    case Stage::kProtocol:
      break;
  }
  return made(Code::kProtocol, what + ": session refused a message of ours",
              "client and session must be of the same temenos version");
}

tl::unexpected<Error> SessionClient::Channel::lost() {
  unusable = true;
  return fail(Code::kBoxDied, "the box's session ended",
              "start the box again; `temenos inspect` says why it ended");
}

tl::unexpected<Error> SessionClient::Channel::broken(const char* what) {
  unusable = true;
  return fail(Code::kProtocol, std::string("the box's session sent what it may not: ") + what,
              "client and session must be of the same temenos version");
}

Result<std::uint32_t> SessionClient::Channel::begin() {
  if (unusable) return lost();
  if (++last_id == 0) ++last_id;
  return last_id;
}

Result<void> SessionClient::Channel::flush() {
  while (!out.empty()) {
    iovec parts[16];
    msghdr message{};
    message.msg_iov = parts;
    message.msg_iovlen = out.peek(parts);
    const ssize_t count = sendmsg(socket.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (count >= 0) {
      out.consume(static_cast<std::size_t>(count));
    } else if (errno == EAGAIN) {
      return {};
    } else if (errno == EPIPE || errno == ECONNRESET) {
      out.clear();  // why it closed may still be there to read
      return {};
    } else if (errno != EINTR) {
      return lost();
    }
  }
  return {};
}

Result<void> SessionClient::Channel::wait(std::span<pollfd> others, Clock::time_point deadline) {
  TRY(flush());
  polls.assign(others.begin(), others.end());
  polls.push_back({socket.get(), static_cast<short>(POLLIN | (out.empty() ? 0 : POLLOUT)), 0});
  int timeout = -1;
  if (deadline != Clock::time_point::max()) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
    timeout = static_cast<int>(std::clamp<long>(left, 0, 1'000'000));
  }
  const int ready = poll(polls.data(), polls.size(), timeout);
  if (ready < 0 && errno != EINTR) {
    return fail_errno(errno, "poll", "this is a fault of the host");
  }
  for (std::size_t i = 0; i < others.size(); ++i)
    others[i].revents = ready > 0 ? polls[i].revents : 0;
  if (ready <= 0 || (polls.back().revents & ~POLLOUT) == 0) return {};
  const auto space = reader.space();
  const ssize_t count = recv(socket.get(), space.data(), space.size(), MSG_DONTWAIT);
  if (count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR)) return lost();
  if (count > 0) reader.commit(static_cast<std::size_t>(count));
  return {};
}

Result<bool> SessionClient::Channel::next(std::uint32_t id, Frame& frame) {
  for (;;) {
    if (!popped) reader.pop();
    popped = true;
    const auto status = reader.peek(frame);
    if (status == FrameReader::Status::kNeedMore) return false;
    if (status == FrameReader::Status::kBad || frame.header.flags != 0)
      return broken("a bad frame");
    popped = false;
    if (frame.header.id == id) return true;
    ErrorReply reply;
    if (frame.header.id != 0 || static_cast<Type>(frame.header.type) != Type::kError ||
        !decode(frame.payload, reply)) {
      return broken("a foreign id");
    }
    unusable = true;
    return error_of(reply, "box");
  }
}

SessionClient::SessionClient(std::unique_ptr<Channel> channel) : channel_(std::move(channel)) {}
SessionClient::SessionClient(SessionClient&&) noexcept = default;
SessionClient& SessionClient::operator=(SessionClient&&) noexcept = default;
SessionClient::~SessionClient() = default;

void SessionClient::set_file_deadline(std::chrono::milliseconds deadline) {
  channel_->file_deadline = deadline;
}
Result<UniqueFd> SessionClient::take_socket() && {
  Channel& channel = *channel_;
  if (!std::exchange(channel.popped, true)) channel.reader.pop();
  if (channel.unusable) return channel.lost();
  if (channel.reader.buffered() != 0 || !channel.out.empty())
    return channel.broken("an extra frame");
  channel.unusable = true;
  return std::move(channel.socket);
}
bool SessionClient::groups() const { return (channel_->features & kFeatureCgroup) != 0; }

Result<SessionClient> SessionClient::connect(UniqueFd socket, std::chrono::milliseconds deadline) {
  auto channel = std::make_unique<Channel>(std::move(socket));
  put(channel->out, 0, Hello{});
  const auto end = Clock::now() + deadline;
  for (;;) {
    Frame frame;
    if (TRY(channel->next(0, frame))) {
      Hello hello;
      ErrorReply reply;
      const auto type = static_cast<Type>(frame.header.type);
      if (type == Type::kError && decode(frame.payload, reply))
        return error_of(reply, "connecting to the box");
      if (type != Type::kHello || !decode(frame.payload, hello) || hello.version != kVersion) {
        return channel->broken("no greeting");
      }
      channel->features = hello.features;
      return SessionClient(std::move(channel));
    }
    if (Clock::now() >= end) {
      return fail(Code::kTimedOut, "the box is not ready",
                  "look at `temenos inspect`, or try again");
    }
    TRY(channel->wait({}, end));
  }
}

}  // namespace temenos
