#include "init/exec.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <utility>

#include "init/spawn.h"

namespace temenos::init {

using namespace box_wire;

namespace {

constexpr Millis kDrainGrace = 250;  // after the leader's end, for what holds its pipes open
constexpr Millis kKillRound = 2;
constexpr std::size_t kFewWords = 4096;    // of output at once, in most execs
constexpr int kFlowingPipe = 1024 * 1024;  // of one that was full once: fewer wake-ups
constexpr std::uint32_t kCreditStep = kWindow / 4;
constexpr int kTerminalKeeps = 160 * 1024;  // gVisor: 128 KiB and 4 KiB, of which FIONREAD tells 4

Type type_of(int stream) { return stream == 0 ? Type::kStdout : Type::kStderr; }

int readable_bytes(int fd) {
  int count = 0;
  return ioctl(fd, FIONREAD, &count) == 0 ? count : 0;
}

bool readable_now(int fd) {
  pollfd entry{fd, POLLIN, 0};
  return poll(&entry, 1, 0) == 1 && (entry.revents & POLLIN) != 0;
}

// Gives 0 or errno.
int make_pipe(UniqueFd& read_end, UniqueFd& write_end) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return errno;
  read_end.reset(ends[0]);
  write_end.reset(ends[1]);
  return 0;
}

}  // namespace

std::unique_ptr<Exec> Exec::start(std::uint32_t id, const box_wire::Exec& request,
                                  const rlimit* descriptors, ProcessTrees& trees, ByteQueue& out) {
  std::unique_ptr<Exec> exec(new Exec(id, trees, out));
  std::array<UniqueFd, 3> child;
  const bool tty = (request.flags & kExecTty) != 0;
  int error = tty ? open_terminal(*exec, request, child) : open_pipes(*exec, request, child);
  if (error == 0 && !trees.add(id)) error = errno;
  if (error != 0) {
    put(out, id, ErrorReply{Stage::kSpawn, static_cast<std::uint16_t>(error)});
    return nullptr;
  }
  SpawnRequest plan;
  plan.exec = &request;
  for (int fd = 0; fd < 3; ++fd) plan.stdio[fd] = child[tty ? 0 : fd].get();
  plan.terminal = tty;
  plan.group_dir = trees.group_dir();
  plan.group_file = trees.group_file(id);
  plan.descriptors = descriptors;
  SpawnFailure failure;
  exec->pid_ = spawn(plan, failure);
  if (exec->pid_ < 0) {
    trees.finish(id);
    put(out, id, ErrorReply{failure.stage, static_cast<std::uint16_t>(failure.error)});
    return nullptr;
  }
  trees.set_leader(id, exec->pid_);
  put(out, id, Started{static_cast<std::uint32_t>(exec->pid_)});
  if (tty) put(out, id, OutputEof{Stream::kStderr});  // all of a terminal is stdout
  return exec;
}

int Exec::open_pipes(Exec& exec, const box_wire::Exec& request, std::array<UniqueFd, 3>& child) {
  int error = 0;
  if ((request.flags & kExecStdin) != 0) {
    error = make_pipe(child[0], exec.stdin_);
    // Only our end: programs do not expect a non-blocking stdin.
    if (error == 0 && fcntl(exec.stdin_.get(), F_SETFL, O_WRONLY | O_NONBLOCK) != 0) error = errno;
  } else {
    child[0].reset(open("/dev/null", O_RDONLY | O_CLOEXEC));
    if (!child[0]) error = errno;
  }
  for (int stream = 0; stream < 2 && error == 0; ++stream) {
    error = make_pipe(exec.output_[stream].fd, child[stream + 1]);
    exec.output_[stream].credit = request.window;
  }
  return error;
}

int Exec::open_terminal(Exec& exec, const box_wire::Exec& request, std::array<UniqueFd, 3>& child) {
  exec.terminal_ = Terminal::open({request.rows, request.cols}, child[0]);
  if (!exec.terminal_) return errno;
  exec.stdin_.reset(fcntl(exec.terminal_->fd(), F_DUPFD_CLOEXEC, 3));
  exec.output_[0].fd.reset(fcntl(exec.terminal_->fd(), F_DUPFD_CLOEXEC, 3));
  exec.output_[0].credit = request.window;
  return exec.stdin_ && exec.output_[0].fd ? 0 : errno;
}

bool Exec::stdin_data(Bytes payload) {
  if (stdin_ended_ || payload.empty()) return false;
  if (!stdin_) return true;  // said so by STDIN_CLOSED; this was on its way
  if (stdin_queue_.size() + kHeaderSize + payload.size() > kWindow) return false;
  stdin_done_ += kHeaderSize;
  stdin_queue_.append(payload);
  write_stdin();
  return true;
}

void Exec::stdin_eof() {
  stdin_ended_ = true;
  end_due_ = terminal_ && stdin_;
  if (stdin_) write_stdin();
}

void Exec::write_stdin() {
  if (terminal_) {
    type();
  } else if (!write_to_pipe()) {
    return;
  }
  if (stdin_done_ >= kCreditStep && !stdin_ended_) {
    put(out_, id_, Credit{Stream::kStdin, stdin_done_});
    stdin_done_ = 0;
  }
}

// A terminal stays open when the client has no more: only the program can close it.
void Exec::type() {
  while (!stdin_queue_.empty()) {
    iovec part[1];
    stdin_queue_.peek(part);
    const auto* bytes = static_cast<const std::uint8_t*>(part[0].iov_base);
    const std::size_t typed = terminal_->type({bytes, part[0].iov_len});
    if (typed == 0) return;
    stdin_queue_.consume(typed);
    stdin_done_ += static_cast<std::uint32_t>(typed);
  }
  if (end_due_) end_due_ = !terminal_->type_end();
}

// False: it is closed now.
bool Exec::write_to_pipe() {
  while (!stdin_queue_.empty()) {
    iovec parts[16];
    const std::size_t count = stdin_queue_.peek(parts);
    const ssize_t written = writev(stdin_.get(), parts, static_cast<int>(count));
    if (written < 0) {
      if (errno == EINTR) continue;
      if (errno != EAGAIN) {
        close_stdin(true);
      } else if (!std::exchange(stdin_flows_, true)) {
        fcntl(stdin_.get(), F_SETPIPE_SZ, kFlowingPipe);
        continue;
      }
      break;
    }
    stdin_queue_.consume(static_cast<std::size_t>(written));
    stdin_done_ += static_cast<std::uint32_t>(written);
  }
  if (stdin_ && stdin_queue_.empty() && stdin_ended_) stdin_.reset();
  return static_cast<bool>(stdin_);
}

void Exec::close_stdin(bool nobody_reads) {
  if (!stdin_) return;
  stdin_.reset();
  stdin_queue_.clear();
  end_due_ = false;
  if (nobody_reads && !stdin_ended_) put(out_, id_, Type::kStdinClosed);
}

void Exec::stdin_ready() {
  if (!stdin_waits()) {
    close_stdin(true);  // polled for errors only: its last reader has gone
  } else {
    write_stdin();
  }
}

bool Exec::credit(const Credit& credit) {
  if (credit.stream == Stream::kStdin) return false;
  Output& output = output_[credit.stream == Stream::kStdout ? 0 : 1];
  output.credit += credit.bytes;
  return output.credit <= kWindow;
}

int Exec::output_fd(int stream) const {
  const Output& output = output_[stream];
  return output.credit > kHeaderSize ? output.fd.get() : -1;
}

// Only after poll(2) said that a read does not block: the descriptor is a blocking one, since that
// saves two system calls for each pipe of each exec.
void Exec::output_ready(int stream) {
  Output& output = output_[stream];
  std::size_t want = std::min<std::size_t>(output.credit - kHeaderSize, kMaxPayload);
  if (output.draining) want = std::min(want, static_cast<std::size_t>(output.owed));
  // Room for a few words, which the usual chunk has; a whole frame's for what keeps coming.
  const std::size_t least = output.flows ? want : std::min(want, kFewWords);
  const auto room = out_.prepare(kHeaderSize + least, kHeaderSize + want);
  const ssize_t count = read(output.fd.get(), room.data() + kHeaderSize, room.size() - kHeaderSize);
  if (count < 0 && (errno == EINTR || (errno == EAGAIN && !output.draining))) return;
  if (count <= 0) {
    end_output(stream);
    return;
  }
  put_header(
      {static_cast<std::uint32_t>(count), static_cast<std::uint16_t>(type_of(stream)), 0, id_},
      room.data());
  out_.commit(kHeaderSize + static_cast<std::size_t>(count));
  const bool filled = static_cast<std::size_t>(count) == room.size() - kHeaderSize;
  if (filled && !output.flows) fcntl(output.fd.get(), F_SETPIPE_SZ, kFlowingPipe);
  output.flows = filled || (output.flows && static_cast<std::size_t>(count) > kFewWords);
  output.credit -= static_cast<std::uint32_t>(kHeaderSize + static_cast<std::size_t>(count));
  if (!output.draining) return;
  output.owed -= static_cast<int>(count);
  if (is_drained(output)) end_output(stream);
}

void Exec::end_output(int stream) {
  output_[stream].fd.reset();
  put(out_, id_, OutputEof{stream == 0 ? Stream::kStdout : Stream::kStderr});
}

void Exec::signal(const Signal& signal) {
  if (signal.tree) {
    trees_.signal(id_, signal.signal);
  } else if (!exited_) {
    ::kill(pid_, signal.signal);
  }
}

// gVisor sets the size and tells nobody. Whose window it is, is told by session, since the group in
// the foreground is not to be known; a daemon of another session may take SIGWINCH for an order.
bool Exec::resize(const Resize& size) {
  if (!terminal_) return false;
  terminal_->resize(size);
  if (exited_) return true;
  for (const pid_t pid : trees_.members(id_)) {
    if (getsid(pid) == pid_) ::kill(pid, SIGWINCH);
  }
  return true;
}

void Exec::kill() {
  if (killing_) return;
  killing_ = true;
  close_stdin(false);
  deadline_ = 0;  // the first round is due now
}

void Exec::exited(int status, const rusage& usage, Millis now) {
  exited_ = true;
  auto microseconds = [](const timeval& time) {
    return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000 +
           static_cast<std::uint64_t>(time.tv_usec);
  };
  Exited message;
  message.signaled = WIFSIGNALED(status);
  message.value =
      static_cast<std::uint8_t>(message.signaled ? WTERMSIG(status) : WEXITSTATUS(status));
  message.user_us = microseconds(usage.ru_utime);
  message.system_us = microseconds(usage.ru_stime);
  message.max_rss_kb = static_cast<std::uint64_t>(usage.ru_maxrss);
  put(out_, id_, message);
  if (terminal_) {
    // The kernel's part at the end of a session's leader, which gVisor leaves out.
    ::kill(-pid_, SIGHUP);
    ::kill(-pid_, SIGCONT);
    close_stdin(false);
    terminal_->release();
  }
  if (!killing_) deadline_ = now + kDrainGrace;
}

// What lies in the pipes now is still owed, what is written from here on is not.
void Exec::begin_drain() {
  drained_ = true;
  for (int stream = 0; stream < 2; ++stream) {
    Output& output = output_[stream];
    if (!output.fd) continue;
    output.draining = true;
    output.owed = terminal_ ? kTerminalKeeps : readable_bytes(output.fd.get());
    if (is_drained(output)) end_output(stream);
  }
}

bool Exec::is_drained(const Output& output) const {
  return output.owed <= 0 || (terminal_ && !readable_now(output.fd.get()));
}

void Exec::on_time(Millis now) {
  if (now < deadline_) return;
  deadline_ = kNever;
  if (killing_ && !tree_gone_) {
    tree_gone_ = trees_.kill_round(id_);
    if (!tree_gone_) deadline_ = now + kKillRound;
  } else if (exited_ && !drained_) {
    begin_drain();
  }
}

bool Exec::finish_if_over(Millis now) {
  if (!exited_ || (killing_ && !tree_gone_)) {
    // A leader that was killed is reaped a moment after the round that found nothing left.
    if (killing_ && tree_gone_ && deadline_ == kNever) deadline_ = now + kKillRound;
    return false;
  }
  if (killing_ && !drained_) begin_drain();
  for (int stream = 0; stream < 2; ++stream) {
    Output& output = output_[stream];
    // Nobody waits for the reader of a killed exec: what does not fit its credit is lost.
    if (killing_ && output.fd && output.credit <= kHeaderSize) {
      lost_ = true;
      end_output(stream);
    }
  }
  if (output_[0].fd || output_[1].fd) return false;
  const auto left = trees_.finish(id_);
  Done done;
  done.flags = lost_ ? kDoneOutputLost : 0;
  done.left_total = static_cast<std::uint32_t>(left.size());
  for (const pid_t pid : left) {
    if (done.left_running.size() == kMaxLeftRunning) break;
    done.left_running.push_back(static_cast<std::uint32_t>(pid));
  }
  put(out_, id_, done);
  return true;
}

}  // namespace temenos::init
