#include "keeper/messages.h"

#include <algorithm>
#include <cstring>

#include "base/try.h"
#include "sys/process_sys.h"

namespace temenos::keeper {
namespace {

template <std::size_t N>
void put(char (&field)[N], std::string_view text) {
  const std::size_t size = std::min(text.size(), N - 1);
  memcpy(field, text.data(), size);
  field[size] = '\0';
}

template <std::size_t N>
std::string get(const char (&field)[N]) {
  return std::string(field, strnlen(field, N));
}

}  // namespace

std::size_t descriptors_of(std::uint32_t kind) {
  return kind == Message::kAttach || kind == Message::kRules ? 1 : kind == Message::kAddJob ? 2 : 0;
}

void put_text(Message& message, std::string_view what) { put(message.what, what); }
std::string text_of(const Message& message) { return get(message.what); }
void put_evidence(Message& message, std::string_view evidence) { put(message.evidence, evidence); }
std::string evidence_of(const Message& message) { return get(message.evidence); }
void put_password(ProxyAddress& proxy, std::string_view password) { put(proxy.password, password); }
std::string password_of(const ProxyAddress& proxy) { return get(proxy.password); }

Message failure(const Error& error) {
  Message message;
  message.kind = Message::kFailed;
  message.code = static_cast<std::uint32_t>(error.code);
  message.sys_errno = error.sys_errno;
  std::string what;
  for (const auto& part : error.context) what += part + ": ";
  put(message.what, what + error.what);
  put(message.hint, error.hint);
  return message;
}

Error to_error(const Message& message) {
  Error error;
  error.code = message.code <= static_cast<std::uint32_t>(Code::kInternal)
                   ? static_cast<Code>(message.code)
                   : Code::kInternal;
  error.sys_errno = std::clamp(message.sys_errno, 0, 4095);
  error.what = get(message.what);
  error.hint = get(message.hint);
  return error;
}

Result<void> send_message(int socket, const Message& message, std::span<const int> fds) {
  return sys::send_with_fds(
      socket, std::string_view(reinterpret_cast<const char*>(&message), sizeof message), fds);
}

Result<Message> receive_message(int socket) {
  return TRY(receive_message_with_fds(socket, 0)).message;
}

Result<MessageWithFds> receive_message_with_fds(int socket, std::size_t max_fds) {
  auto received = TRY(sys::receive_with_fds(socket, sizeof(Message), max_fds));
  if (received.bytes.empty()) return fail(Code::kBoxDied, "the other side has closed");
  if (received.bytes.size() != sizeof(Message)) {
    return fail(Code::kProtocol, "a control message of the wrong size");
  }
  MessageWithFds out;
  memcpy(&out.message, received.bytes.data(), sizeof out.message);
  out.fds = std::move(received.fds);
  return out;
}

}  // namespace temenos::keeper
