// SessionClient::exec: four streams, signals and credit around one poll(2).
#include <fcntl.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>

#include "base/try.h"
#include "box/head_tail.h"
#include "box/session_channel.h"
#include "sys/terminal_sys.h"
#include "wire/job_messages.h"

namespace temenos {

using namespace box_wire;

namespace {

constexpr std::uint32_t kCreditStep = kWindow / 4;
constexpr std::size_t kStdinAhead =
    2 * kMaxPayload;  // queued for session before stdin is read again

// A write to a pipe without a reader must give EPIPE, and the process may not have ignored SIGPIPE.
class SigpipeHeld {
 public:
  SigpipeHeld() {
    sigset_t pending;
    sigpending(&pending);
    was_pending_ = sigismember(&pending, SIGPIPE) == 1;
    sigset_t pipe = set();
    pthread_sigmask(SIG_BLOCK, &pipe, &before_);
  }
  ~SigpipeHeld() {
    sigset_t pipe = set();
    const timespec now{0, 0};
    if (!was_pending_) (void)sigtimedwait(&pipe, nullptr, &now);
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }

 private:
  static sigset_t set() {
    sigset_t pipe;
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    return pipe;
  }
  sigset_t before_{};
  bool was_pending_ = false;
};

// Where one output stream goes. Never blocks, and never changes the flags of the caller's
// descriptor, which others may share.
class Sink {
 public:
  Sink(int fd, const ExecIo& io) : fd_(fd), capture_(io.capture_head, io.capture_tail) {
    if (fd < 0) return;
    struct stat info{};
    const bool known = fstat(fd, &info) == 0;
    if (known && S_ISFIFO(info.st_mode)) {
      // A description of our own, so that it can be non-blocking.
      const std::string path = "/proc/self/fd/" + std::to_string(fd);
      own_.reset(open(path.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY));
    }
    if (own_) fd_ = own_.get();
    socket_ = known && S_ISSOCK(info.st_mode);
    const bool never_blocks =
        own_ || (known && (S_ISREG(info.st_mode) || (S_ISCHR(info.st_mode) && isatty(fd) == 0)));
    patient_ = !never_blocks && !socket_;
  }

  // False: more was sent than is open.
  bool take(Bytes bytes) {
    const std::size_t cost = kHeaderSize + bytes.size();
    if (cost > granted_) return false;
    granted_ -= static_cast<std::uint32_t>(cost);
    due_ += kHeaderSize;
    if (fd_ < 0) {
      capture_.add({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
      due_ += static_cast<std::uint32_t>(bytes.size());
    } else if (error_ != 0) {
      due_ += static_cast<std::uint32_t>(bytes.size());
    } else {
      const std::size_t done = queue_.empty() && !patient_ ? write_some({iov(bytes)}) : 0;
      if (error_ == 0) queue_.append(bytes.subspan(done));
      due_ += static_cast<std::uint32_t>(error_ == 0 ? done : bytes.size());
    }
    return true;
  }

  int poll_fd() const { return queue_.empty() ? -1 : fd_; }
  // poll(2) said that it can be written.
  void ready() {
    while (!queue_.empty() && error_ == 0) {
      std::array<iovec, 16> parts;
      std::size_t count = queue_.peek(parts);
      if (patient_) {
        // At least PIPE_BUF bytes fit after POLLOUT; more could block.
        count = 1;
        parts[0].iov_len = std::min<std::size_t>(parts[0].iov_len, PIPE_BUF);
      }
      const std::size_t done = write_some({parts.data(), count});
      queue_.consume(done);
      due_ += static_cast<std::uint32_t>(done);
      if (done == 0 || patient_) break;
    }
    if (error_ != 0) {
      due_ += static_cast<std::uint32_t>(queue_.size());
      queue_.clear();
    }
  }

  void give_credit(ByteQueue& out, std::uint32_t id, Stream stream) {
    if (due_ < kCreditStep) return;
    put(out, id, Credit{stream, due_});
    granted_ += due_;
    due_ = 0;
  }
  bool idle() const { return queue_.empty(); }
  int error() const { return error_; }
  Omitted omitted() const { return capture_.omitted(); }
  std::string take_captured() { return capture_.take(); }

 private:
  static iovec iov(Bytes bytes) { return {const_cast<std::uint8_t*>(bytes.data()), bytes.size()}; }
  struct Parts {
    Parts(iovec one) : single(one), data(&single), count(1) {}  // NOLINT: a view
    Parts(iovec* many, std::size_t n) : data(many), count(n) {}
    Parts(const Parts&) = delete;
    iovec single{};
    iovec* data;
    std::size_t count;
  };
  std::size_t write_some(const Parts& parts) {
    for (;;) {
      ssize_t written = 0;
      if (socket_) {
        msghdr message{};
        message.msg_iov = parts.data;
        message.msg_iovlen = parts.count;
        written = sendmsg(fd_, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
      } else {
        written = writev(fd_, parts.data, static_cast<int>(parts.count));
      }
      if (written >= 0) return static_cast<std::size_t>(written);
      if (errno == EINTR) continue;
      if (errno != EAGAIN) error_ = errno;
      return 0;
    }
  }

  int fd_;
  UniqueFd own_;
  bool socket_ = false;
  bool patient_ = false;  // a descriptor that may block: small writes, each after POLLOUT
  HeadTail capture_;
  ByteQueue queue_;
  std::uint32_t granted_ = kWindow;
  std::uint32_t due_ = 0;
  int error_ = 0;
};

}  // namespace

std::optional<TerminalSize> terminal_size(int fd) {
  const auto size = sys::window_size(fd);
  if (!size) return std::nullopt;
  return TerminalSize{size->rows, size->cols};
}

void set_exited(ExecResult& result, const Exited& exited) {
  if (exited.signaled) {
    result.signal = signal_name(exited.value);
  } else {
    result.exit_code = exited.value;
  }
  result.user_time = std::chrono::microseconds(exited.user_us);
  result.system_time = std::chrono::microseconds(exited.system_us);
  result.max_rss_kb = exited.max_rss_kb;
}

void set_done(ExecResult& result, Done done) {
  result.timed_out = (done.flags & kDoneTimedOut) != 0;
  result.truncated = (done.flags & (kDoneTruncated | kDoneOutputLost)) != 0;
  result.left_running = std::move(done.left_running);
  result.left_running_total = done.left_total;
}

struct SessionClient::ExecCall {
  ExecCall(Channel& to, const ExecRequest& wanted, const ExecIo& with)
      : channel(to),
        request(wanted),
        io(with),
        sinks{Sink(io.stdout_fd, io), Sink(io.stderr_fd, io)} {}

  Channel& channel;
  const ExecRequest& request;
  const ExecIo& io;
  std::array<Sink, 2> sinks;
  std::uint32_t id = 0;
  std::uint32_t window = kWindow;  // what each output may send before we say more
  std::size_t stdin_credit = kWindow;
  const std::function<Result<std::uint32_t>()>* make_job = nullptr;
  std::uint32_t job = 0;  // that it becomes
  bool detaching = false;
  bool stdin_open = false;
  bool stdin_flows = false;  // the last read filled all the room: the next asks for more
  bool killed = false;
  bool cancellable = true;
  bool done = false;
  ExecResult result;

  Result<void> send_request() {
    std::size_t size = request.cwd.size() + 64;
    Exec exec;
    exec.flags = stdin_open || request.terminal ? kExecStdin : 0;
    if (request.terminal) {
      exec.flags |= kExecTty;
      exec.rows = request.terminal->rows;
      exec.cols = request.terminal->cols;
    }
    exec.timeout_ms = static_cast<std::uint32_t>(
        std::clamp<std::int64_t>(request.timeout.count(), 0, UINT32_MAX));
    exec.output_cap = request.output_cap;
    exec.window = window;
    exec.cwd = request.cwd.empty() ? std::string_view("/") : std::string_view(request.cwd);
    exec.argv.assign(request.argv.begin(), request.argv.end());
    exec.env.assign(request.env.begin(), request.env.end());
    bool nul = request.cwd.find('\0') != std::string::npos;
    for (const auto* list : {&request.argv, &request.env}) {
      for (const auto& text : *list) {
        size += text.size() + 4;
        nul = nul || text.find('\0') != std::string::npos;
      }
    }
    if (request.argv.empty() || nul || (!request.cwd.empty() && request.cwd[0] != '/') ||
        request.cwd.size() > kMaxPath) {
      return fail(Code::kInvalidArgument, "exec request",
                  "give a command, an absolute working directory, and no NUL bytes");
    }
    if (size > kMaxMessage || exec.argv.size() > kMaxArgs || exec.env.size() > kMaxArgs) {
      return fail(Code::kInvalidArgument, "arguments and environment are over 2 MiB",
                  "pass the data by stdin or by a file");
    }
    put(channel.out, id, exec);
    if (request.terminal && !stdin_open) put(channel.out, id, Type::kStdinEof);
    return {};
  }

  void kill() {
    if (killed) return;
    killed = true;
    put(channel.out, id, Type::kKill);
  }

  // What it reads is nobody's any more: session closes its stdin.
  void detach(std::uint32_t number) {
    job = number;
    detaching = true;
    stdin_open = false;
    put(channel.out, id, Detach{job});
  }

  void read_stdin() {
    const std::size_t want = std::min(stdin_credit - kHeaderSize, kMaxPayload);
    const std::size_t least = stdin_flows ? want : std::min<std::size_t>(want, 4096);
    const auto room = channel.out.prepare(kHeaderSize + least, kHeaderSize + want);
    const ssize_t count = read(io.stdin_fd, room.data() + kHeaderSize, room.size() - kHeaderSize);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (count <= 0) {
      stdin_open = false;
      put(channel.out, id, Type::kStdinEof);
      return;
    }
    const auto size = static_cast<std::size_t>(count);
    stdin_flows = size == room.size() - kHeaderSize;
    put_header({static_cast<std::uint32_t>(size), static_cast<std::uint16_t>(Type::kStdin), 0, id},
               room.data());
    channel.out.commit(kHeaderSize + size);
    stdin_credit -= kHeaderSize + size;
  }

  void forward_signals() {
    signalfd_siginfo info{};
    if (read(io.signal_fd, &info, sizeof info) != sizeof info) return;
    const bool resized = info.ssi_signo == SIGWINCH && request.terminal && io.terminal_fd >= 0;
    if (!resized) {
      put(channel.out, id, Signal{static_cast<std::uint8_t>(info.ssi_signo), true});
    } else if (const auto size = terminal_size(io.terminal_fd)) {
      put(channel.out, id, Resize{size->rows, size->cols});
    }
  }

  Result<void> turn() {
    const bool wants_stdin =
        stdin_open && !done && stdin_credit > kHeaderSize && channel.out.size() < kStdinAhead;
    std::array<pollfd, 6> polls{{
        {wants_stdin ? io.stdin_fd : -1, POLLIN, 0},
        {sinks[0].poll_fd(), POLLOUT, 0},
        {sinks[1].poll_fd(), POLLOUT, 0},
        {done ? -1 : io.signal_fd, POLLIN, 0},
        {cancellable ? io.cancel_fd : -1, POLLIN, 0},
        {done || detaching || make_job == nullptr ? -1 : io.detach_fd, POLLIN, 0},
    }};
    if (!done) {
      TRY(channel.wait(polls, Clock::time_point::max()));
    } else if (poll(polls.data(), polls.size(), -1) < 0) {
      // The result is complete: what becomes of the session no longer matters, only the writing
      // out.
      if (errno != EINTR) return fail_errno(errno, "poll", "this is a fault of the host");
      return {};
    }
    if (polls[0].revents != 0) read_stdin();
    for (const int stream : {0, 1}) {
      if (polls[stream + 1].revents != 0) sinks[stream].ready();
    }
    if (polls[3].revents != 0) forward_signals();
    if (polls[5].revents != 0) {
      // Once: what cannot be made goes on as it is.
      if (const auto number = (*std::exchange(make_job, nullptr))()) detach(*number);
    }
    if (polls[4].revents != 0) {
      cancellable = false;
      kill();
    }
    return {};
  }

  Result<void> frame(const Frame& frame) {
    const auto type = static_cast<Type>(frame.header.type);
    if (type == Type::kStdout || type == Type::kStderr) {
      if (!sinks[type == Type::kStdout ? 0 : 1].take(frame.payload)) {
        return channel.broken("output beyond its credit");
      }
      return {};
    }
    Started started;
    OutputEof eof;
    Credit credit;
    Exited exited;
    Done over;
    ErrorReply reply;
    if (type == Type::kStarted && decode(frame.payload, started)) return {};
    if (type == Type::kOutputEof && decode(frame.payload, eof)) return {};
    if (type == Type::kStdinClosed) {
      stdin_open = false;
    } else if (type == Type::kCredit && decode(frame.payload, credit)) {
      stdin_credit += credit.bytes;
    } else if (type == Type::kExited && decode(frame.payload, exited)) {
      set_exited(result, exited);
    } else if (type == Type::kDone && decode(frame.payload, over)) {
      set_done(result, std::move(over));
      done = true;
    } else if (type == Type::kDetached && detaching) {
      result.job = std::to_string(job);
      done = true;
    } else if (type == Type::kError && decode(frame.payload, reply)) {
      // Of an exec only session says this, of a job that it does not have.
      if (detaching && reply.stage == Stage::kFile) return job_error(reply, job);
      return error_of(reply, request.argv[0]);
    } else {
      return channel.broken("a message that is no exec's");
    }
    return {};
  }

  Result<void> run() {
    for (;;) {
      Frame next;
      while (!done && TRY(channel.next(id, next))) TRY(frame(next));
      if (done && sinks[0].idle() && sinks[1].idle()) return {};
      for (const int stream : {0, 1}) {
        if (sinks[stream].error() != 0) kill();
        sinks[stream].give_credit(channel.out, id, stream == 0 ? Stream::kStdout : Stream::kStderr);
      }
      TRY(turn());
      // Nobody reads what is left: the caller has cancelled and its reader does not take it.
      if (done && !cancellable) return {};
    }
  }

  ExecResult collect(Clock::time_point begun) {
    result.duration = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - begun);
    result.stdout_omitted = sinks[0].omitted();
    result.stderr_omitted = sinks[1].omitted();
    result.truncated =
        result.truncated || result.stdout_omitted.bytes != 0 || result.stderr_omitted.bytes != 0;
    result.stdout_data = sinks[0].take_captured();
    result.stderr_data = sinks[1].take_captured();
    return std::move(result);
  }
};

// The window is 0: what comes before DETACH is read could only be lost.
Result<void> SessionClient::start_job(const ExecRequest& request, std::uint32_t job) {
  TRY(check_job(job));
  const ExecIo io;
  ExecCall call(*channel_, request, io);
  call.id = TRY(channel_->begin());
  call.window = 0;
  TRY(call.send_request());
  call.detach(job);
  TRY(call.run());
  if (!call.result.job) return channel_->broken("the end of an exec that was detached");
  return {};
}

Result<ExecResult> SessionClient::exec(const ExecRequest& request, const ExecIo& io,
                                       ExecResult* so_far,
                                       const std::function<Result<std::uint32_t>()>& make_job) {
  const SigpipeHeld held;
  const auto begun = Clock::now();
  ExecCall call(*channel_, request, io);
  call.id = TRY(channel_->begin());
  call.stdin_open = io.stdin_fd >= 0;
  if (make_job) call.make_job = &make_job;
  TRY(call.send_request());
  if (auto ran = call.run(); !ran) {
    if (so_far != nullptr) *so_far = call.collect(begun);
    return tl::make_unexpected(std::move(ran).error());
  }
  for (const Sink& sink : call.sinks) {
    if (sink.error() != 0 && sink.error() != EPIPE) {
      return fail_errno(sink.error(), "cannot write the output of " + request.argv[0],
                        "the command was ended; check where its output goes");
    }
  }
  // We ended it because its reader had gone: to the caller that is what SIGPIPE does, not a SIGKILL
  // from nowhere.
  const bool reader_gone = call.sinks[0].error() == EPIPE || call.sinks[1].error() == EPIPE;
  ExecResult& result = call.result;
  if (reader_gone && result.signal == "SIGKILL" && !result.timed_out) result.signal = "SIGPIPE";
  // What was still in the pipes is missed by nobody.
  if (reader_gone) result.truncated = false;
  return call.collect(begun);
}

}  // namespace temenos
