#include "box/port_pump.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <unordered_map>

#include "base/try.h"
#include "box/session_channel.h"

namespace temenos {

using namespace box_wire;

namespace {

// Of what a port says. Session's memory is shared by all connections of a client, idle ones too.
constexpr std::uint32_t kPortWindow = 32 * 1024;
constexpr std::uint32_t kCreditStep = kPortWindow / 4;
constexpr std::size_t kOutHigh = 4 * kMaxPayload;       // waiting for session: then nobody is read
constexpr std::chrono::seconds kDialLimit{40};          // more than what init and session allow
constexpr std::chrono::milliseconds kAcceptPause{100};  // when there are no descriptors to be had

struct Connection {
  UniqueFd local;
  UniqueFd theirs;  // the other end of `local`, until dial() gets it
  std::unique_ptr<std::promise<Result<UniqueFd>>> dialed;
  std::string what;
  Clock::time_point deadline;  // for DIALED
  bool open = false;
  bool killed = false;      // only the last message is waited for
  bool sent_end = false;    // nothing more goes to the box
  bool box_ended = false;   // nothing more comes from it
  bool passed_end = false;  // and the local side knows
  bool over = false;        // session has forgotten it
  std::size_t credit = kWindow;
  ByteQueue queue;  // for the local side
  std::uint32_t granted = kPortWindow;
  std::uint32_t due = 0;
};

struct Listener {
  UniqueFd fd;
  PortTarget target;
};

std::string name_of(const PortTarget& target) {
  return target.port != 0 ? "port " + std::to_string(target.port) + " of the box"
                          : "socket " + target.socket_path + " of the box";
}

tl::unexpected<Error> refused(const ErrorReply& reply, const std::string& what) {
  if (reply.stage != Stage::kFile) return error_of(reply, what);
  return fail_errno(reply.error, "cannot connect to " + what,
                    "start the server in the box; it must listen on 127.0.0.1, ::1 or that socket");
}

// The peer shall see that this is no orderly end.
void reset(UniqueFd& local) {
  const linger now{1, 0};
  if (local) setsockopt(local.get(), SOL_SOCKET, SO_LINGER, &now, sizeof now);
  local.reset();
}

Result<void> check(const PortTarget& target) {
  const std::string& path = target.socket_path;
  const bool good = target.port != 0
                        ? path.empty()
                        : !path.empty() && path[0] == '/' && path.size() <= kMaxSocketPath &&
                              path.find('\0') == std::string::npos;
  if (good) return {};
  return fail(Code::kInvalidArgument, "target in the box",
              "give a port, 1 to 65535, or the absolute path of a socket, at most 107 bytes");
}

}  // namespace

// What the thread does. Nothing of it is touched by another one.
class PortPump::Loop {
 public:
  Loop(PortPump& pump, UniqueFd session) : pump_(pump), session_(std::move(session)) {}
  void run();

 private:
  struct Watch {
    std::uint32_t id;  // 0: one of the listeners
    std::size_t listener;
  };
  bool take_orders();
  void collect();
  int timeout_ms() const;
  void dispatch();
  void expire();
  void flush();
  bool receive();
  bool frame(const Frame& frame);
  bool end_frame(std::uint32_t id, Connection& connection, const Frame& frame);
  void accept_one(Listener& listener);
  void begin(const PortTarget& target, Connection connection);
  void begin_dial(Order order);
  void local_ready(std::uint32_t id, Connection& connection, short revents);
  void read_local(std::uint32_t id, Connection& connection);
  void write_local(std::uint32_t id, Connection& connection);
  void pass_end(std::uint32_t id, Connection& connection);
  void cut(std::uint32_t id, Connection& connection);
  bool is_full() const { return connections_.size() >= kMaxConnections; }
  void stop(const Error& why);

  PortPump& pump_;
  UniqueFd session_;
  FrameReader reader_{2 * kMaxFrame};
  ByteQueue out_;
  std::unordered_map<std::uint32_t, Connection> connections_;
  std::vector<Listener> listeners_;
  std::vector<std::uint32_t> finished_;
  std::uint32_t last_id_ = 0;
  Clock::time_point accept_after_{};
  std::vector<pollfd> polls_;
  std::vector<Watch> watches_;
};

// ---- the thread's side ----

void PortPump::Loop::run() {
  while (take_orders()) {
    flush();
    collect();
    if (poll(polls_.data(), polls_.size(), timeout_ms()) < 0) continue;
    if (polls_[1].revents != 0) {
      eventfd_t count = 0;
      (void)eventfd_read(polls_[1].fd, &count);
    }
    dispatch();
    if ((polls_[0].revents & ~POLLOUT) != 0 && !receive()) break;
    expire();
    for (const auto id : std::exchange(finished_, {})) connections_.erase(id);
  }
  Error why;
  why.code = Code::kBoxDied;
  why.what = "the box's session ended";
  why.hint = "start the box again";
  stop(why);
}

// False: it is time to stop.
bool PortPump::Loop::take_orders() {
  std::vector<Order> orders;
  {
    const std::lock_guard lock(pump_.mutex_);
    if (pump_.stopping_) return false;
    orders.swap(pump_.orders_);
  }
  for (Order& order : orders) {
    if (order.listener) {
      listeners_.push_back({std::move(order.listener), order.target});
    } else {
      begin_dial(std::move(order));
    }
  }
  return true;
}

void PortPump::Loop::stop(const Error& why) {
  std::vector<Order> orders;
  {
    const std::lock_guard lock(pump_.mutex_);
    pump_.ended_ = std::make_unique<Error>(why);
    orders.swap(pump_.orders_);
  }
  for (auto& [id, connection] : connections_) {
    if (connection.dialed) connection.dialed->set_value(tl::make_unexpected(why));
    reset(connection.local);
  }
  for (Order& order : orders) {
    if (order.dialed) order.dialed->set_value(tl::make_unexpected(why));
  }
  connections_.clear();
  listeners_.clear();
  session_.reset();
}

void PortPump::Loop::begin_dial(Order order) {
  int ends[2];
  Connection connection;
  if (is_full()) {
    order.dialed->set_value(fail(Code::kExhausted, "256 connections to the box are open",
                                 "close some, or use a further PortPump"));
  } else if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    order.dialed->set_value(fail_errno(errno, "socketpair", "close some descriptors"));
  } else {
    connection.local.reset(ends[0]);
    connection.theirs.reset(ends[1]);
    connection.dialed = std::move(order.dialed);
    begin(order.target, std::move(connection));
  }
}

void PortPump::Loop::begin(const PortTarget& target, Connection connection) {
  do {
    ++last_id_;
  } while (last_id_ == 0 || connections_.contains(last_id_));
  connection.what = name_of(target);
  connection.deadline = Clock::now() + kDialLimit;
  Dial dial;
  dial.to = target.port != 0 ? Dial::To::kTcp : Dial::To::kUnix;
  dial.port = target.port;
  dial.window = kPortWindow;
  dial.path = target.socket_path;
  put(out_, last_id_, dial);
  connections_.emplace(last_id_, std::move(connection));
}

void PortPump::Loop::accept_one(Listener& listener) {
  Connection connection;
  connection.local.reset(accept4(listener.fd.get(), nullptr, nullptr, SOCK_CLOEXEC));
  if (connection.local) {
    begin(listener.target, std::move(connection));
  } else if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) {
    accept_after_ = Clock::now() + kAcceptPause;
  }
}

void PortPump::Loop::collect() {
  polls_.clear();
  watches_.clear();
  polls_.push_back({session_.get(), static_cast<short>(POLLIN | (out_.empty() ? 0 : POLLOUT)), 0});
  polls_.push_back({pump_.wake_.get(), POLLIN, 0});
  watches_.resize(2);
  const bool accepts = !is_full() && Clock::now() >= accept_after_;
  for (std::size_t i = 0; i < listeners_.size() && accepts; ++i) {
    polls_.push_back({listeners_[i].fd.get(), POLLIN, 0});
    watches_.push_back({0, i});
  }
  for (const auto& [id, connection] : connections_) {
    if (!connection.open || !connection.local) continue;
    const bool reads =
        !connection.sent_end && connection.credit > kHeaderSize && out_.size() < kOutHigh;
    const auto events =
        static_cast<short>((reads ? POLLIN : 0) | (connection.queue.empty() ? 0 : POLLOUT));
    // One that waits for the box alone is still told of a peer that has gone. One that has said its
    // end and heard the other's always looks gone; and one that may not be read may have more to
    // say.
    if (events == 0 && (!connection.sent_end || connection.passed_end)) continue;
    polls_.push_back({connection.local.get(), events, 0});
    watches_.push_back({id, 0});
  }
}

int PortPump::Loop::timeout_ms() const {
  auto until = Clock::time_point::max();
  if (Clock::now() < accept_after_) until = accept_after_;
  for (const auto& [id, connection] : connections_) {
    if (!connection.open && !connection.killed) until = std::min(until, connection.deadline);
  }
  if (until == Clock::time_point::max()) return -1;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now()).count();
  return static_cast<int>(std::clamp<long>(left, 0, 60'000));
}

void PortPump::Loop::expire() {
  for (auto& [id, connection] : connections_) {
    if (connection.open || connection.killed || Clock::now() < connection.deadline) continue;
    if (connection.dialed) {
      std::exchange(connection.dialed, nullptr)
          ->set_value(fail(Code::kTimedOut, "no answer about " + connection.what,
                           "the box may be overloaded; try again"));
    }
    cut(id, connection);
  }
}

void PortPump::Loop::dispatch() {
  for (std::size_t i = 2; i < polls_.size(); ++i) {
    if (polls_[i].revents == 0) continue;
    if (watches_[i].id == 0) {
      if (!is_full()) accept_one(listeners_[watches_[i].listener]);
    } else if (const auto found = connections_.find(watches_[i].id); found != connections_.end()) {
      local_ready(found->first, found->second, polls_[i].revents);
    }
  }
}

// ---- session's side ----

void PortPump::Loop::flush() {
  while (!out_.empty()) {
    iovec parts[16];
    msghdr message{};
    message.msg_iov = parts;
    message.msg_iovlen = out_.peek(parts);
    const ssize_t count = sendmsg(session_.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return;  // EAGAIN; and an end is found by reading
    out_.consume(static_cast<std::size_t>(count));
  }
}

// False: session has gone, or says what it may not.
bool PortPump::Loop::receive() {
  const auto space = reader_.space();
  const ssize_t count = recv(session_.get(), space.data(), space.size(), MSG_DONTWAIT);
  if (count < 0) return errno == EAGAIN || errno == EINTR;
  if (count == 0) return false;
  reader_.commit(static_cast<std::size_t>(count));
  for (;;) {
    Frame next;
    const auto status = reader_.peek(next);
    if (status == FrameReader::Status::kNeedMore) return true;
    if (status == FrameReader::Status::kBad || next.header.flags != 0 || !frame(next)) return false;
    reader_.pop();
  }
}

bool PortPump::Loop::frame(const Frame& frame) {
  const std::uint32_t id = frame.header.id;
  const auto found = connections_.find(id);
  if (found == connections_.end() || found->second.over) return false;
  Connection& connection = found->second;
  OutputEof eof;
  Credit credit;
  switch (static_cast<Type>(frame.header.type)) {
    case Type::kDialed:
      if (connection.open || !frame.payload.empty()) return false;
      connection.open = true;
      if (connection.dialed) {
        std::exchange(connection.dialed, nullptr)->set_value(std::move(connection.theirs));
      }
      return true;
    case Type::kStdout: {
      const std::size_t cost = kHeaderSize + frame.payload.size();
      if (!connection.open || connection.box_ended || cost > connection.granted) return false;
      connection.granted -= static_cast<std::uint32_t>(cost);
      connection.due += kHeaderSize;
      if (connection.killed) return true;
      connection.queue.append(frame.payload);
      write_local(id, connection);
      return true;
    }
    case Type::kOutputEof:
      if (!connection.open || connection.box_ended || !decode(frame.payload, eof)) return false;
      connection.box_ended = true;
      pass_end(id, connection);
      return true;
    case Type::kCredit:
      if (!decode(frame.payload, credit) || credit.stream != Stream::kStdin) return false;
      connection.credit += credit.bytes;
      return connection.credit <= kWindow;
    case Type::kStdinClosed:
      connection.sent_end = true;
      return connection.open;
    default:
      return end_frame(id, connection, frame);
  }
}

bool PortPump::Loop::end_frame(std::uint32_t id, Connection& connection, const Frame& frame) {
  FileDone done;
  ErrorReply reply;
  connection.over = true;
  if (static_cast<Type>(frame.header.type) == Type::kFileDone) {
    if (!connection.box_ended || !decode(frame.payload, done)) return false;
    connection.sent_end = true;
    if (connection.passed_end || connection.killed) finished_.push_back(id);
    return true;
  }
  if (static_cast<Type>(frame.header.type) != Type::kError || !decode(frame.payload, reply)) {
    return false;
  }
  if (connection.dialed) {
    std::exchange(connection.dialed, nullptr)->set_value(refused(reply, connection.what));
  }
  reset(connection.local);
  finished_.push_back(id);
  return true;
}

// ---- the local side ----

void PortPump::Loop::local_ready(std::uint32_t id, Connection& connection, short revents) {
  if (!connection.local) return;
  if (connection.sent_end && connection.queue.empty()) {
    if ((revents & (POLLHUP | POLLERR)) != 0) cut(id, connection);
    return;
  }
  if (!connection.queue.empty() && (revents & (POLLOUT | POLLHUP | POLLERR)) != 0) {
    write_local(id, connection);
  }
  const bool reads = connection.local && !connection.sent_end && connection.credit > kHeaderSize;
  if (reads && (revents & (POLLIN | POLLHUP | POLLERR)) != 0) read_local(id, connection);
}

void PortPump::Loop::read_local(std::uint32_t id, Connection& connection) {
  const std::size_t want = std::min(connection.credit - kHeaderSize, kMaxPayload);
  const auto room =
      out_.prepare(kHeaderSize + std::min<std::size_t>(want, 4096), kHeaderSize + want);
  const ssize_t count = recv(connection.local.get(), room.data() + kHeaderSize,
                             room.size() - kHeaderSize, MSG_DONTWAIT);
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (count < 0) return cut(id, connection);
  if (count == 0) {
    connection.sent_end = true;
    put(out_, id, Type::kStdinEof);
    return;
  }
  const auto size = static_cast<std::size_t>(count);
  put_header({static_cast<std::uint32_t>(size), static_cast<std::uint16_t>(Type::kStdin), 0, id},
             room.data());
  out_.commit(kHeaderSize + size);
  connection.credit -= kHeaderSize + size;
}

void PortPump::Loop::write_local(std::uint32_t id, Connection& connection) {
  while (!connection.queue.empty()) {
    iovec parts[16];
    msghdr message{};
    message.msg_iov = parts;
    message.msg_iovlen = connection.queue.peek(parts);
    const ssize_t count = sendmsg(connection.local.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) break;
    if (count < 0) return cut(id, connection);
    connection.queue.consume(static_cast<std::size_t>(count));
    connection.due += static_cast<std::uint32_t>(count);
  }
  if (connection.due >= kCreditStep && !connection.box_ended) {
    put(out_, id, Credit{Stream::kStdout, connection.due});
    connection.granted += std::exchange(connection.due, 0);
  }
  if (connection.box_ended) pass_end(id, connection);
}

void PortPump::Loop::pass_end(std::uint32_t id, Connection& connection) {
  if (!connection.queue.empty() || connection.passed_end || connection.killed) return;
  connection.passed_end = true;
  shutdown(connection.local.get(), SHUT_WR);
  if (connection.over) finished_.push_back(id);
}

// The local side has gone, or is given up: the box sees a reset.
void PortPump::Loop::cut(std::uint32_t id, Connection& connection) {
  reset(connection.local);
  connection.queue.clear();
  connection.sent_end = true;
  if (connection.over) {
    finished_.push_back(id);
  } else if (!std::exchange(connection.killed, true)) {
    put(out_, id, Type::kKill);
  }
}

// ---- the callers' side ----

Result<std::unique_ptr<PortPump>> PortPump::start(SessionClient client) {
  UniqueFd session = TRY(std::move(client).take_socket());
  UniqueFd wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake) return fail_errno(errno, "eventfd", "close some descriptors");
  std::unique_ptr<PortPump> pump(new PortPump(std::move(wake)));
  // Signals are for the caller's threads.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  pump->thread_ =
      std::thread([loop = std::make_unique<Loop>(*pump, std::move(session))] { loop->run(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return pump;
}

PortPump::~PortPump() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  (void)eventfd_write(wake_.get(), 1);
  if (thread_.joinable()) thread_.join();
}

Result<void> PortPump::give(Order order) {
  const std::lock_guard lock(mutex_);
  if (ended_) return tl::make_unexpected(*ended_);
  orders_.push_back(std::move(order));
  (void)eventfd_write(wake_.get(), 1);
  return {};
}

Result<UniqueFd> PortPump::dial(const PortTarget& target) {
  TRY(check(target));
  Order order;
  order.target = target;
  order.dialed = std::make_unique<Dialed>();
  auto dialed = order.dialed->get_future();
  TRY(give(std::move(order)));
  return dialed.get();
}

Result<std::uint16_t> PortPump::forward(UniqueFd listener, const PortTarget& target) {
  TRY(check(target));
  int listens = 0;
  socklen_t size = sizeof listens;
  sockaddr_storage address{};
  if (getsockopt(listener.get(), SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) != 0 || listens == 0) {
    return fail(Code::kInvalidArgument, "listener", "give a listening stream socket");
  }
  size = sizeof address;
  if (getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    return fail_errno(errno, "getsockname", "give a listening stream socket");
  }
  // A connection may be gone between poll(2) and accept(2).
  fcntl(listener.get(), F_SETFL, fcntl(listener.get(), F_GETFL) | O_NONBLOCK);
  std::uint16_t port = 0;
  if (address.ss_family == AF_INET) {
    port = ntohs(reinterpret_cast<const sockaddr_in&>(address).sin_port);
  } else if (address.ss_family == AF_INET6) {
    port = ntohs(reinterpret_cast<const sockaddr_in6&>(address).sin6_port);
  }
  Order order;
  order.target = target;
  order.listener = std::move(listener);
  TRY(give(std::move(order)));
  return port;
}

}  // namespace temenos
