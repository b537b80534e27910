#include "egress/netns_answer.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

#include "base/try.h"
#include "sys/process_sys.h"

namespace temenos::egress {
namespace {

struct Kind {
  int family, type;
};
constexpr Kind kKinds[kListeners] = {{AF_INET, SOCK_STREAM}, {AF_INET6, SOCK_STREAM},
                                     {AF_INET, SOCK_DGRAM},  {AF_INET6, SOCK_DGRAM},
                                     {AF_INET, SOCK_STREAM}, {AF_INET6, SOCK_STREAM}};

int option_of(int socket, int option) {
  int value = -1;
  socklen_t size = sizeof value;
  return getsockopt(socket, SOL_SOCKET, option, &value, &size) == 0 ? value : -1;
}

template <std::size_t N>
void put(char (&field)[N], std::string_view text) {
  memcpy(field, text.data(), std::min(text.size(), N - 1));
}

template <std::size_t N>
std::string get(const char (&field)[N]) {
  return std::string(field, strnlen(field, N));
}

Result<void> send_answer(int socket, const Answer& answer, std::span<const int> fds) {
  return sys::send_with_fds(socket, {reinterpret_cast<const char*>(&answer), sizeof answer}, fds);
}

}  // namespace

Result<void> send_listeners(int socket, const Listeners& listeners, std::uint32_t microseconds) {
  Answer answer;
  answer.microseconds = microseconds;
  std::vector<int> fds;
  for (const auto& listener : listeners) fds.push_back(listener.get());
  return send_answer(socket, answer, fds);
}

Result<void> send_failure(int socket, const Failure& failure) {
  Answer answer;
  answer.step = failure.step;
  answer.code = static_cast<std::uint32_t>(failure.error.code);
  answer.sys_errno = failure.error.sys_errno;
  put(answer.what, failure.error.what);
  put(answer.hint, failure.error.hint);
  return send_answer(socket, answer, {});
}

Result<Listeners> checked_listeners(std::vector<UniqueFd> fds) {
  if (fds.size() != kListeners) return fail(Code::kProtocol, "the wrong number of listeners");
  Listeners out;
  for (std::size_t i = 0; i < kListeners; ++i) {
    const int fd = fds[i].get();
    const bool stream = kKinds[i].type == SOCK_STREAM;
    if (option_of(fd, SO_DOMAIN) != kKinds[i].family || option_of(fd, SO_TYPE) != kKinds[i].type ||
        option_of(fd, SO_ACCEPTCONN) != (stream ? 1 : 0)) {
      return fail(Code::kProtocol, "a listener that is none");
    }
    out[i] = std::move(fds[i]);
  }
  return out;
}

Result<Received> receive_answer(int socket, int timeout_ms) {
  pollfd fd{socket, POLLIN, 0};
  int ready;
  do {
    ready = poll(&fd, 1, timeout_ms);
  } while (ready < 0 && errno == EINTR);
  if (ready == 0) {
    return fail(Code::kTimedOut, "setting up the box's network takes too long", "try again");
  }
  auto datagram = TRY(sys::receive_with_fds(socket, sizeof(Answer), kListeners));
  if (datagram.bytes.empty()) {
    return fail(Code::kInternal, "temenos-netsetup ended without an answer",
                "run ./scripts/setup again: it needs libnftables1 and libmnl0");
  }
  if (datagram.bytes.size() != sizeof(Answer)) {
    return fail(Code::kProtocol, "an answer of the wrong size from temenos-netsetup");
  }
  Received out;
  memcpy(&out.answer, datagram.bytes.data(), sizeof(Answer));
  if (out.answer.step == Step::kDone) {
    out.listeners = TRY(checked_listeners(std::move(datagram.fds)));
  }
  return out;
}

Result<Listeners> receive_listeners(int socket, int timeout_ms) {
  auto received = TRY(receive_answer(socket, timeout_ms));
  if (received.answer.step != Step::kDone) return tl::make_unexpected(to_error(received.answer));
  return std::move(received.listeners);
}

Error to_error(const Answer& answer) {
  Error error;
  error.code = answer.code <= static_cast<std::uint32_t>(Code::kInternal)
                   ? static_cast<Code>(answer.code)
                   : Code::kInternal;
  error.sys_errno = std::clamp(answer.sys_errno, 0, 4095);
  error.what = get(answer.what);
  error.hint = get(answer.hint);
  return error;
}

}  // namespace temenos::egress
