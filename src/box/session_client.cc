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

namespace {

// Public names for what the wire says (temenos/files.h), value for value.
static_assert(static_cast<int>(temenos::FileType::kDevice) ==
              static_cast<int>(box_wire::FileType::kDevice));
static_assert(static_cast<int>(WriteOptions::How::kAppend) ==
              static_cast<int>(Write::How::kAppend));
temenos::FileType public_type(box_wire::FileType type) {
  return static_cast<temenos::FileType>(type);
}

constexpr std::uint32_t kCreditStep = kWindow / 4;
constexpr std::chrono::seconds kCancelGrace{5};

std::string_view text_of(Bytes bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

Result<void> check_path(std::string_view path) {
  if (path.empty() || path[0] != '/' || path.size() > kMaxPath ||
      path.find('\0') != std::string_view::npos) {
    return fail(Code::kInvalidArgument, "path " + std::string(path.substr(0, 200)),
                "give an absolute path inside the box, at most 4095 bytes, without NUL");
  }
  return {};
}

}  // namespace

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

// ---- file operations ----

struct SessionClient::FileCall {
  Channel& channel;
  std::string what;
  std::uint32_t id = 0;
  Clock::time_point deadline;

  static Result<FileCall> make(Channel& channel, const char* verb, std::string_view path) {
    TRY(check_path(path));
    FileCall call{channel, std::string(verb) + " " + std::string(path)};
    call.id = TRY(channel.begin());
    call.deadline = Clock::now() + channel.file_deadline;
    return call;
  }

  // The next frame of the operation that is not an ERROR.
  Result<Frame> next() {
    Frame frame;
    while (!TRY(channel.next(id, frame))) {
      if (Clock::now() >= deadline) return cancel();
      TRY(channel.wait({}, deadline));
    }
    if (static_cast<Type>(frame.header.type) != Type::kError) return frame;
    ErrorReply reply;
    if (!decode(frame.payload, reply)) return channel.broken("an error of no form");
    return error_of(reply, what);
  }

  // The session ends what does not answer; a box that does not even do that is not waited for.
  tl::unexpected<Error> cancel() {
    put(channel.out, id, Type::kKill);
    const auto end = Clock::now() + kCancelGrace;
    Frame frame;
    bool over = false;
    while (!over && Clock::now() < end) {
      const auto got = channel.next(id, frame);
      if (!got) break;
      if (*got) {
        const auto type = static_cast<Type>(frame.header.type);
        over = type == Type::kError || type == Type::kFileDone || type == Type::kStatReply ||
               type == Type::kPong;
      } else if (!channel.wait({}, end)) {
        break;
      }
    }
    channel.unusable = channel.unusable || !over;
    return fail(Code::kTimedOut, what + ": no answer from the box in time",
                "the box may be overloaded; try again");
  }

  Result<void> give_credit(std::uint32_t& due) {
    if (due < kCreditStep) return {};
    put(channel.out, id, Credit{Stream::kStdout, due});
    due = 0;
    return channel.flush();
  }
};

SessionClient::SessionClient(std::unique_ptr<Channel> channel) : channel_(std::move(channel)) {}
SessionClient::SessionClient(SessionClient&&) noexcept = default;
SessionClient& SessionClient::operator=(SessionClient&&) noexcept = default;
SessionClient::~SessionClient() = default;

void SessionClient::set_file_deadline(std::chrono::milliseconds deadline) {
  channel_->file_deadline = deadline;
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

Result<std::string> SessionClient::read_file(std::string_view path, std::uint64_t max,
                                             std::uint64_t offset) {
  auto call = TRY(FileCall::make(*channel_, "read", path));
  if (offset > static_cast<std::uint64_t>(INT64_MAX)) {
    return fail(Code::kInvalidArgument, "read offset", "give an offset below 2^63");
  }
  put(channel_->out, call.id, Read{offset, max, kWindow, path});
  std::string data;
  std::uint32_t due = 0;
  for (;;) {
    const Frame frame = TRY(call.next());
    FileDone done;
    if (static_cast<Type>(frame.header.type) == Type::kFileDone && decode(frame.payload, done))
      return data;
    if (static_cast<Type>(frame.header.type) != Type::kStdout ||
        frame.payload.size() > max - data.size()) {
      return channel_->broken("more than was asked for");
    }
    data += text_of(frame.payload);
    due += static_cast<std::uint32_t>(kHeaderSize + frame.payload.size());
    TRY(call.give_credit(due));
  }
}

Result<void> SessionClient::write_file(std::string_view path, std::string_view data,
                                       const WriteOptions& options) {
  auto call = TRY(FileCall::make(*channel_, "write", path));
  put(channel_->out, call.id,
      Write{static_cast<Write::How>(options.how), options.mode.value_or(kKeepMode), path});
  std::size_t credit = kWindow;
  for (bool ended = false;;) {
    while (!data.empty() && credit > kHeaderSize) {
      const std::size_t size = std::min({data.size(), credit - kHeaderSize, kMaxPayload});
      put(channel_->out, call.id, Type::kStdin,
          {reinterpret_cast<const std::uint8_t*>(data.data()), size});
      credit -= kHeaderSize + size;
      data.remove_prefix(size);
    }
    if (data.empty() && !ended) put(channel_->out, call.id, Type::kStdinEof);
    ended = data.empty();
    const Frame frame = TRY(call.next());
    FileDone done;
    Credit more;
    if (static_cast<Type>(frame.header.type) == Type::kFileDone && decode(frame.payload, done)) {
      if (!ended) return channel_->broken("an early end");
      return {};
    }
    if (static_cast<Type>(frame.header.type) != Type::kCredit || !decode(frame.payload, more)) {
      return channel_->broken("no answer to a write");
    }
    credit += more.bytes;
  }
}

Result<std::vector<DirEntry>> SessionClient::list(std::string_view path, std::size_t max_entries) {
  auto call = TRY(FileCall::make(*channel_, "list", path));
  put(channel_->out, call.id, List{kWindow, path});
  std::vector<DirEntry> entries;
  std::uint32_t due = 0;
  for (;;) {
    const Frame frame = TRY(call.next());
    FileDone done;
    if (static_cast<Type>(frame.header.type) == Type::kFileDone && decode(frame.payload, done))
      return entries;
    if (static_cast<Type>(frame.header.type) != Type::kStdout)
      return channel_->broken("no entries");
    Bytes rest = frame.payload;
    while (!rest.empty()) {
      Entry entry;
      if (!take_entry(rest, entry)) return channel_->broken("a bad directory entry");
      if (entries.size() == max_entries) {
        (void)call.cancel();
        return fail(Code::kExhausted,
                    call.what + ": more than " + std::to_string(max_entries) + " entries",
                    "list a smaller directory");
      }
      entries.push_back({std::string(entry.name), public_type(entry.type), entry.mode, entry.size,
                         entry.mtime_ns});
    }
    due += static_cast<std::uint32_t>(kHeaderSize + frame.payload.size());
    TRY(call.give_credit(due));
  }
}

Result<FileInfo> SessionClient::stat(std::string_view path, bool follow) {
  auto call = TRY(FileCall::make(*channel_, "stat", path));
  put(channel_->out, call.id, Stat{follow, path});
  const Frame frame = TRY(call.next());
  StatReply reply;
  if (static_cast<Type>(frame.header.type) != Type::kStatReply || !decode(frame.payload, reply)) {
    return channel_->broken("no answer to a stat");
  }
  return FileInfo{
      public_type(reply.type),  reply.mode, reply.uid, reply.gid, reply.size, reply.mtime_ns,
      std::string(reply.target)};
}

Result<void> SessionClient::ping() {
  auto call = TRY(FileCall::make(*channel_, "ping", "/"));
  const Ping sent{call.id};
  put(channel_->out, call.id, sent);
  const Frame frame = TRY(call.next());
  Ping pong;
  if (static_cast<Type>(frame.header.type) != Type::kPong || !decode(frame.payload, pong) ||
      pong.token != sent.token) {
    return channel_->broken("no pong");
  }
  return {};
}

}  // namespace temenos
