#include "init/server.h"

#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>

#include <algorithm>
#include <cerrno>

namespace temenos::init {

using namespace box_wire;

namespace {

// Above this no pipe and no file is read: session takes less than the box makes.
constexpr std::size_t kOutHigh = 512 * 1024;
constexpr Millis kLastRounds = 5'000;  // to end what still runs, when that is init's to do

volatile sig_atomic_t child_ended = 0;
void on_child(int) { child_ended = 1; }

Millis monotonic_ms() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<Millis>(now.tv_sec) * 1000 + static_cast<Millis>(now.tv_nsec) / 1'000'000;
}

}  // namespace

void prepare_signals() {
  struct sigaction action{};
  action.sa_handler = SIG_DFL;
  for (int signal = 1; signal <= 64; ++signal) sigaction(signal, &action, nullptr);
  action.sa_handler = on_child;
  action.sa_flags = SA_NOCLDSTOP;
  sigaction(SIGCHLD, &action, nullptr);
  sigset_t blocked;
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGCHLD);
  sigaddset(&blocked, SIGPIPE);
  sigprocmask(SIG_SETMASK, &blocked, nullptr);
}

Server::Server(UniqueFd socket, ProcessTrees trees, const rlimit* descriptors)
    : socket_(std::move(socket)), trees_(std::move(trees)), descriptors_(descriptors) {
  put(out_, 0, Hello{kMagic, kVersion, trees_.grouped() ? kFeatureCgroup : 0});
}

int Server::run() {
  sigset_t open_mask;
  sigprocmask(SIG_SETMASK, nullptr, &open_mask);
  sigdelset(&open_mask, SIGCHLD);
  int result = 0;
  for (;;) {
    if (!flush()) break;
    collect_watches();
    const int wait_ms = timeout_ms(monotonic_ms());
    const timespec limit{wait_ms / 1000, (wait_ms % 1000) * 1'000'000L};
    const int ready =
        ppoll(polls_.data(), polls_.size(), wait_ms < 0 ? nullptr : &limit, &open_mask);
    if (ready < 0 && errno != EINTR && errno != EAGAIN) break;
    if (ready > 0) {
      dispatch();
      if ((polls_[0].revents & POLLOUT) != 0) blocked_ = false;
      if ((polls_[0].revents & (POLLIN | POLLHUP | POLLERR)) != 0 && !receive()) {
        result = socket_ ? 1 : 0;
        break;
      }
    }
    const Millis now = monotonic_ms();
    reap(now);
    run_due(now);
  }
  end_all();
  return result;
}

bool Server::flush() {
  while (!out_.empty() && !blocked_) {
    iovec parts[16];
    msghdr message{};
    message.msg_iov = parts;
    message.msg_iovlen = out_.peek(parts);
    const ssize_t count = sendmsg(socket_.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (count >= 0) {
      out_.consume(static_cast<std::size_t>(count));
    } else if (errno == EAGAIN) {
      blocked_ = true;
    } else if (errno != EINTR) {
      return false;
    }
  }
  return true;
}

// EAGAIN and EINTR are "poll again": a socket that the sandbox was given may say so at any time.
bool Server::receive() {
  const auto space = reader_.space();
  const ssize_t count = recv(socket_.get(), space.data(), space.size(), MSG_DONTWAIT);
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return true;
  if (count <= 0) {
    // Gone; with something of ours unread it is ECONNRESET.
    socket_.reset();
    return false;
  }
  reader_.commit(static_cast<std::size_t>(count));
  Frame next;
  for (;;) {
    const auto status = reader_.peek(next);
    if (status == FrameReader::Status::kNeedMore) return true;
    if (status == FrameReader::Status::kBad || !frame(next)) return false;
    reader_.pop();
  }
}

bool Server::frame(const Frame& frame) {
  const auto type = static_cast<Type>(frame.header.type);
  const std::uint32_t id = frame.header.id;
  if (!greeted_) {
    Hello hello;
    greeted_ = type == Type::kHello && id == 0 && decode(frame.payload, hello) &&
               hello.magic == kMagic && hello.version == kVersion;
    return greeted_;
  }
  const bool more = (frame.header.flags & kFlagMore) != 0;
  if (!more && assembly_.empty()) {
    if (id == 0) return false;
    return type == Type::kExec ? start_exec(id, frame.payload) : request(id, type, frame.payload);
  }
  if (type != Type::kExec || id == 0 || (!assembly_.empty() && id != assembly_id_)) return false;
  if (assembly_.size() + frame.payload.size() > kMaxMessage || frame.payload.empty()) return false;
  assembly_id_ = id;
  assembly_.insert(assembly_.end(), frame.payload.begin(), frame.payload.end());
  if (more) return true;
  const auto whole = std::exchange(assembly_, {});
  return start_exec(id, whole);
}

bool Server::start_exec(std::uint32_t id, Bytes payload) {
  box_wire::Exec wanted;
  if (!is_free(id) || !decode(payload, wanted)) return false;
  auto exec = Exec::start(id, wanted, descriptors_, trees_, out_);
  if (!exec) return true;
  leaders_[exec->pid()] = id;
  execs_[id] = std::move(exec);
  return true;
}

bool Server::request(std::uint32_t id, Type type, Bytes payload) {
  switch (type) {
    case Type::kPing:
      return answer<Ping>(id, payload, [](std::uint32_t to, const Ping& ping, ByteQueue& out) {
        put_pong(out, to, ping);
      });
    case Type::kStat:
      return answer<Stat>(id, payload, stat_file);
    case Type::kMkdir:
      return answer<Mkdir>(id, payload, make_directory);
    case Type::kRead:
      return start_job<Read>(id, payload, FileJob::read);
    case Type::kWrite:
      return start_job<Write>(id, payload, FileJob::write);
    case Type::kList:
      return start_job<List>(id, payload, FileJob::list);
    case Type::kRemove:
      return start_job<Remove>(id, payload, FileJob::remove);
    case Type::kDial:
      return start_dial(id, payload);
    default:
      return stream(id, type, payload);
  }
}

template <typename Message, typename Function>
bool Server::answer(std::uint32_t id, Bytes payload, Function function) {
  Message message;
  if (!is_free(id) || !decode(payload, message)) return false;
  function(id, message, out_);
  return true;
}

template <typename Message, typename Function>
bool Server::start_job(std::uint32_t id, Bytes payload, Function function) {
  Message message;
  if (!is_free(id) || !decode(payload, message)) return false;
  if (auto job = function(id, message, out_)) jobs_[id] = std::move(job);
  return true;
}

bool Server::start_dial(std::uint32_t id, Bytes payload) {
  Dial wanted;
  if (!is_free(id) || !decode(payload, wanted)) return false;
  if (auto dial = DialJob::start(id, wanted, monotonic_ms(), out_)) dials_[id] = std::move(dial);
  return true;
}

bool Server::is_free(std::uint32_t id) const {
  return !execs_.contains(id) && !jobs_.contains(id) && !dials_.contains(id);
}

// Messages to an operation; it may have ended while they were on their way.
bool Server::stream(std::uint32_t id, Type type, Bytes payload) {
  if (const auto dial = dials_.find(id); dial != dials_.end()) {
    return dial_stream(*dial->second, type, payload);
  }
  const auto exec_at = execs_.find(id);
  const auto job_at = jobs_.find(id);
  Exec* exec = exec_at == execs_.end() ? nullptr : exec_at->second.get();
  FileJob* job = job_at == jobs_.end() ? nullptr : job_at->second.get();
  bool over = false;
  bool good = true;
  if (type == Type::kStdin) {
    if (exec != nullptr) good = exec->stdin_data(payload);
    if (job != nullptr) good = job->body(payload, over);
  } else if (type == Type::kStdinEof) {
    if (exec != nullptr) exec->stdin_eof();
    if (job != nullptr) good = over = job->body_end();
  } else if (type == Type::kCredit) {
    Credit credit;
    good = decode(payload, credit);
    if (good && exec != nullptr) good = exec->credit(credit);
    if (good && job != nullptr) good = job->credit(credit);
  } else if (type == Type::kSignal) {
    Signal signal;
    good = decode(payload, signal) && job == nullptr;
    if (good && exec != nullptr) exec->signal(signal);
  } else if (type == Type::kResize) {
    Resize resize;
    good = decode(payload, resize) && job == nullptr;
    if (good && exec != nullptr) good = exec->resize(resize);
  } else if (type == Type::kKill) {
    good = payload.empty();
    if (exec != nullptr) exec->kill();
    if (job != nullptr) job->cancel();
    over = true;
  } else {
    return false;
  }
  if (over && job != nullptr) jobs_.erase(job_at);
  return good;
}

bool Server::dial_stream(DialJob& dial, Type type, Bytes payload) {
  if (dial.over()) return true;  // its last message and this one have crossed
  Credit credit;
  switch (type) {
    case Type::kStdin:
      return dial.data(payload);
    case Type::kStdinEof:
      dial.data_end();
      return true;
    case Type::kCredit:
      return decode(payload, credit) && dial.credit(credit);
    case Type::kKill:
      dial.kill();
      return payload.empty();
    default:
      return false;
  }
}

void Server::collect_watches() {
  polls_.clear();
  watches_.clear();
  const auto to_session = static_cast<short>(POLLIN | (blocked_ ? POLLOUT : 0));
  polls_.push_back({socket_.get(), to_session, 0});
  watches_.push_back({Role::kSocket, 0});
  for (const auto& [id, exec] : execs_) {
    if (exec->stdin_fd() >= 0) {
      // Without POLLOUT it still tells when the last reader has gone.
      const auto events = static_cast<short>(exec->stdin_waits() ? POLLOUT : 0);
      polls_.push_back({exec->stdin_fd(), events, 0});
      watches_.push_back({Role::kStdin, id});
    }
    if (out_.size() > kOutHigh) continue;
    for (const int stream : {0, 1}) {
      if (exec->output_fd(stream) < 0) continue;
      polls_.push_back({exec->output_fd(stream), POLLIN, 0});
      watches_.push_back({stream == 0 ? Role::kStdout : Role::kStderr, id});
    }
  }
  for (const auto& [id, dial] : dials_) {
    // Without events it is not watched at all: a peer that has gone would be told of for ever.
    const short events = dial->events(out_.size() <= kOutHigh);
    if (events == 0) continue;
    polls_.push_back({dial->fd(), events, 0});
    watches_.push_back({Role::kDial, id});
  }
}

int Server::timeout_ms(Millis now) const {
  Millis until = kNever;
  for (const auto& [id, exec] : execs_) until = std::min(until, exec->next_deadline());
  for (const auto& [id, dial] : dials_) until = std::min(until, dial->next_deadline());
  if (out_.size() <= kOutHigh) {
    for (const auto& [id, job] : jobs_) {
      if (job->runnable()) return 0;
    }
  }
  if (until == kNever) return -1;
  return until <= now ? 0 : static_cast<int>(std::min<Millis>(until - now, 60'000));
}

void Server::dispatch() {
  for (std::size_t i = 1; i < polls_.size(); ++i) {
    if (polls_[i].revents == 0) continue;
    if (watches_[i].role == Role::kDial) {
      if (const auto dial = dials_.find(watches_[i].id); dial != dials_.end()) {
        dial->second->ready(polls_[i].revents);
      }
      continue;
    }
    const auto found = execs_.find(watches_[i].id);
    if (found == execs_.end()) continue;
    Exec& exec = *found->second;
    switch (watches_[i].role) {
      case Role::kSocket:
      case Role::kDial:
        break;
      case Role::kStdin:
        exec.stdin_ready();
        break;
      case Role::kStdout:
        exec.output_ready(0);
        break;
      case Role::kStderr:
        exec.output_ready(1);
        break;
    }
  }
}

void Server::reap(Millis now) {
  if (child_ended == 0) return;
  child_ended = 0;
  for (;;) {
    int status = 0;
    rusage usage{};
    const pid_t pid = wait4(-1, &status, WNOHANG, &usage);
    if (pid < 0 && errno == EINTR) continue;
    if (pid <= 0) break;
    const auto leader = leaders_.find(pid);
    if (leader == leaders_.end()) continue;
    if (const auto exec = execs_.find(leader->second); exec != execs_.end()) {
      exec->second->exited(status, usage, now);
    }
    leaders_.erase(leader);
  }
  trees_.sweep();
}

void Server::run_due(Millis now) {
  for (auto at = execs_.begin(); at != execs_.end();) {
    at->second->on_time(now);
    at = at->second->finish_if_over(now) ? execs_.erase(at) : std::next(at);
  }
  for (auto at = jobs_.begin(); at != jobs_.end();) {
    const bool over = out_.size() <= kOutHigh && at->second->runnable() && at->second->step();
    at = over ? jobs_.erase(at) : std::next(at);
  }
  for (auto at = dials_.begin(); at != dials_.end();) {
    at->second->on_time(now);
    at = at->second->over() ? dials_.erase(at) : std::next(at);
  }
}

// As PID 1 the end of init is the end of all; elsewhere nothing may be left behind. Init has taken
// all orphans over, so without a child it has no descendant either.
void Server::end_all() {
  jobs_.clear();
  dials_.clear();
  if (getpid() == 1) return;
  const Millis limit = monotonic_ms() + kLastRounds;
  while (monotonic_ms() < limit) {
    trees_.kill_all();
    pid_t pid = 0;
    while ((pid = waitpid(-1, nullptr, WNOHANG)) > 0) {
    }
    if (pid < 0 && errno == ECHILD) return;
    const timespec pause{0, 1'000'000};
    nanosleep(&pause, nullptr);
  }
}

}  // namespace temenos::init
