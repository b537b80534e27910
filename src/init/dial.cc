#include "init/dial.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace temenos::init {

using namespace box_wire;

namespace {

constexpr Millis kConnectLimit = 10'000;
constexpr Millis kRetry = 10;  // of a socket whose backlog is full
constexpr std::uint32_t kCreditStep = kWindow / 4;

}  // namespace

std::unique_ptr<DialJob> DialJob::start(std::uint32_t id, const Dial& request, Millis now,
                                        ByteQueue& out) {
  std::unique_ptr<DialJob> job(new DialJob(id, out));
  job->path_ = request.path;
  job->port_ = request.port;
  job->credit_ = request.window;
  job->limit_ = now + kConnectLimit;
  job->connect_next(now);
  if (job->over_) return nullptr;
  return job;
}

// 0: connected. EINPROGRESS: POLLOUT tells.
int DialJob::try_connect() {
  sockaddr_storage address{};
  socklen_t size = 0;
  if (!path_.empty()) {
    auto& to = reinterpret_cast<sockaddr_un&>(address);
    to.sun_family = AF_UNIX;
    std::memcpy(to.sun_path, path_.c_str(), path_.size());  // kMaxSocketPath leaves room for a NUL
    size = sizeof to;
  } else if (!second_) {
    auto& to = reinterpret_cast<sockaddr_in&>(address);
    to.sin_family = AF_INET;
    to.sin_port = htons(port_);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    size = sizeof to;
  } else {
    auto& to = reinterpret_cast<sockaddr_in6&>(address);
    to.sin6_family = AF_INET6;
    to.sin6_port = htons(port_);
    to.sin6_addr = in6addr_loopback;
    size = sizeof to;
  }
  socket_.reset(socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket_) return errno;
  if (::connect(socket_.get(), reinterpret_cast<sockaddr*>(&address), size) == 0) return 0;
  return errno == EINTR ? EINPROGRESS : errno;
}

void DialJob::connect_next(Millis now) {
  retry_at_ = kNever;
  int error = try_connect();
  if (error == ECONNREFUSED && path_.empty() && !second_) {
    second_ = true;
    error = try_connect();
    // A box without IPv6 has only said no.
    if (error != 0 && error != EINPROGRESS) error = ECONNREFUSED;
  }
  if (error == 0) {
    connected();
  } else if (error == EAGAIN) {
    socket_.reset();
    retry_at_ = now + kRetry;
  } else if (error != EINPROGRESS) {
    fail(error);
  }
}

void DialJob::connected() {
  connected_ = true;
  put(out_, id_, Type::kDialed);
  write_some();
}

void DialJob::on_time(Millis now) {
  if (connected_ || over_) return;
  if (now >= limit_) {
    fail(ETIMEDOUT);
  } else if (now >= retry_at_) {
    connect_next(now);
  }
}

short DialJob::events(bool may_read) const {
  if (!socket_ || over_) return 0;
  if (!connected_) return POLLOUT;
  const bool reads = may_read && !read_ended_ && credit_ > kHeaderSize;
  return static_cast<short>((reads ? POLLIN : 0) | (queue_.empty() ? 0 : POLLOUT));
}

void DialJob::ready(short revents) {
  if (over_) return;
  if (!connected_) {
    int error = 0;
    socklen_t size = sizeof error;
    if (getsockopt(socket_.get(), SOL_SOCKET, SO_ERROR, &error, &size) != 0) error = errno;
    if (error == ECONNREFUSED && path_.empty() && !second_) {
      second_ = true;
      error = try_connect();
      if (error == EINPROGRESS) return;
      if (error != 0) error = ECONNREFUSED;
    }
    return error == 0 ? connected() : fail(error);
  }
  if ((revents & (POLLOUT | POLLERR | POLLHUP)) != 0 && !queue_.empty()) write_some();
  const bool readable = (revents & (POLLIN | POLLERR | POLLHUP)) != 0;
  if (readable && !over_ && !read_ended_ && credit_ > kHeaderSize) read_some();
}

bool DialJob::data(Bytes payload) {
  if (end_due_ || payload.empty()) return false;
  if (write_ended_) return true;  // said so by STDIN_CLOSED; this was on its way
  if (queue_.size() + kHeaderSize + payload.size() > kWindow) return false;
  done_ += kHeaderSize;
  queue_.append(payload);
  if (connected_) write_some();
  return true;
}

void DialJob::data_end() {
  end_due_ = true;
  if (connected_ && !write_ended_) write_some();
}

bool DialJob::credit(const Credit& credit) {
  if (credit.stream != Stream::kStdout) return false;
  credit_ += credit.bytes;
  return credit_ <= kWindow;
}

void DialJob::write_some() {
  while (!queue_.empty()) {
    iovec parts[16];
    msghdr message{};
    message.msg_iov = parts;
    message.msg_iovlen = queue_.peek(parts);
    const ssize_t count = sendmsg(socket_.get(), &message, MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) break;
    if (count < 0 && errno == EPIPE) return stop_writing(true);
    if (count < 0) return fail(errno);
    queue_.consume(static_cast<std::size_t>(count));
    done_ += static_cast<std::uint32_t>(count);
  }
  if (queue_.empty() && end_due_) return stop_writing(false);
  if (done_ >= kCreditStep && !end_due_) {
    put(out_, id_, Credit{Stream::kStdin, done_});
    done_ = 0;
  }
}

void DialJob::stop_writing(bool peer_did) {
  write_ended_ = true;
  queue_.clear();
  if (!peer_did) shutdown(socket_.get(), SHUT_WR);
  if (peer_did && !end_due_) put(out_, id_, Type::kStdinClosed);
  end_if_both_ended();
}

void DialJob::read_some() {
  const std::size_t want = std::min<std::size_t>(credit_ - kHeaderSize, kMaxPayload);
  const auto room =
      out_.prepare(kHeaderSize + std::min<std::size_t>(want, 4096), kHeaderSize + want);
  const ssize_t got = recv(socket_.get(), room.data() + kHeaderSize, room.size() - kHeaderSize, 0);
  if (got < 0 && (errno == EINTR || errno == EAGAIN)) return;
  if (got < 0) return fail(errno);
  if (got == 0) {
    read_ended_ = true;
    put(out_, id_, OutputEof{Stream::kStdout});
    return end_if_both_ended();
  }
  const auto size = static_cast<std::size_t>(got);
  put_header({static_cast<std::uint32_t>(size), static_cast<std::uint16_t>(Type::kStdout), 0, id_},
             room.data());
  out_.commit(kHeaderSize + size);
  credit_ -= static_cast<std::uint32_t>(kHeaderSize + size);
  count_ += size;
}

void DialJob::end_if_both_ended() {
  if (!read_ended_ || !write_ended_) return;
  put(out_, id_, FileDone{count_});
  over_ = true;
}

void DialJob::fail(int error) {
  put(out_, id_, ErrorReply{Stage::kFile, static_cast<std::uint16_t>(error)});
  over_ = true;
}

void DialJob::kill() {
  const linger reset{1, 0};
  if (socket_) setsockopt(socket_.get(), SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
  put(out_, id_, ErrorReply{Stage::kCancelled, ECANCELED});
  over_ = true;
}

}  // namespace temenos::init
