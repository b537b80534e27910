#include "front/dial_client.h"

#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace temenos::front {

void DialClient::use(UniqueFd socket) {
  lose();
  socket_ = std::move(socket);
}

void DialClient::lose() {
  socket_.reset();
  queue_.clear();
}

bool DialClient::ask(const egress::Request& request) {
  if (!socket_ || queue_.size() >= kMaxQueued) return false;
  queue_.push_back(request);
  // A failure shows again when it is read from.
  (void)flush();
  return true;
}

void DialClient::report(const egress::Request& request) {
  if (!socket_ || queue_.size() >= kMaxQueuedReports) return;
  queue_.push_back(request);
  (void)flush();
}

bool DialClient::flush() {
  while (!queue_.empty()) {
    const egress::Request& request = queue_.front();
    const ssize_t count =
        send(socket_.get(), &request, sizeof request, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return errno == EAGAIN;
    queue_.pop_front();
  }
  return true;
}

DialClient::Got DialClient::receive_one(egress::Reply& reply, UniqueFd& passed) {
  iovec part{&reply, sizeof reply};
  alignas(cmsghdr) char room[CMSG_SPACE(sizeof(int))];
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = room;
  message.msg_controllen = CMSG_LEN(sizeof(int));  // the room behind it would hold another
  ssize_t count = -1;
  do {
    count = recvmsg(socket_.get(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  } while (count < 0 && errno == EINTR);
  if (count < 0 && errno == EAGAIN) return Got::kNothing;
  if (count > 0) {
    const cmsghdr* header = CMSG_FIRSTHDR(&message);
    if (header != nullptr && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS &&
        header->cmsg_len == CMSG_LEN(sizeof(int))) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(header), sizeof fd);
      passed.reset(fd);
    }
  }
  if (count != sizeof reply || (message.msg_flags & MSG_TRUNC) != 0) return Got::kLost;
  return Got::kReply;
}

bool DialClient::exchange(const Receive& receive) {
  while (socket_) {
    if (!flush()) return false;
    egress::Reply reply;
    UniqueFd passed;
    switch (receive_one(reply, passed)) {
      case Got::kReply:
        receive(reply, std::move(passed));
        break;
      case Got::kNothing:
        return true;
      case Got::kLost:
        return false;
    }
  }
  return true;
}

}  // namespace temenos::front
