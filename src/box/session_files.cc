// SessionClient's file operations: one question, its answer or its stream, and a deadline.
#include <cerrno>

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

  // The answer of an operation that has no other.
  Result<std::uint64_t> count() {
    const Frame frame = TRY(next());
    FileDone done;
    if (static_cast<Type>(frame.header.type) != Type::kFileDone || !decode(frame.payload, done)) {
      return channel.broken("no answer to a change");
    }
    return done.count;
  }

  Result<void> give_credit(std::uint32_t& due) {
    if (due < kCreditStep) return {};
    put(channel.out, id, Credit{Stream::kStdout, due});
    due = 0;
    return channel.flush();
  }
};

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

Result<bool> SessionClient::mkdir(std::string_view path, std::uint32_t mode, bool parents) {
  auto call = TRY(FileCall::make(*channel_, "make directory", path));
  if (mode > 07777) {
    return fail(Code::kInvalidArgument, "mode of a directory", "give permission bits, 0 to 07777");
  }
  put(channel_->out, call.id, Mkdir{parents, mode, path});
  return TRY(call.count()) != 0;
}

Result<std::uint64_t> SessionClient::remove(std::string_view path, bool recursive) {
  auto call = TRY(FileCall::make(*channel_, "remove", path));
  if (recursive) call.deadline += 9 * channel_->file_deadline;
  put(channel_->out, call.id, Remove{recursive, path});
  return call.count();
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
