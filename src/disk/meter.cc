#include "disk/meter.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <optional>
#include <string_view>

#include "base/try.h"
#include "jail/keeper_rights.h"
#include "sys/file_sys.h"
#include "sys/process_sys.h"

namespace temenos::disk {
namespace {

constexpr int kTries = 3;  // of a box that stands still and yet has just been moved about

template <typename T>
Result<void> send_whole(int socket, const T& message) {
  return sys::send_with_fds(
      socket, std::string_view(reinterpret_cast<const char*>(&message), sizeof message), {});
}

template <typename T>
Result<T> receive_whole(int socket) {
  const auto received = TRY(sys::receive_with_fds(socket, sizeof(T), 0));
  if (received.bytes.empty()) return fail(Code::kBoxDied, "the other side has closed");
  if (received.bytes.size() != sizeof(T)) {
    return fail(Code::kProtocol, "a message of the wrong size");
  }
  T message;
  memcpy(&message, received.bytes.data(), sizeof message);
  return message;
}

Result<Use> count(int directory, const std::vector<UniqueFd>& processes,
                  const std::array<dev_t, 2>& devices, const Ask& ask, int socket) {
  auto use = use_of_tree(directory, ask.max_files, socket);
  for (int i = 1; i < kTries && !use && use.error().code == Code::kConflict; ++i) {
    use = use_of_tree(directory, ask.max_files, socket);
  }
  if (!use) return use;
  const Use nameless = TRY(use_of_nameless(processes, devices));
  return Use{use->bytes + nameless.bytes, use->files + nameless.files};
}

std::int32_t errno_of(const Error& error) {
  return error.sys_errno != 0 ? error.sys_errno : EAGAIN;
}

Result<void> answer(int directory, const std::array<dev_t, 2>& devices, const Ask& ask,
                    int socket) {
  Answer out;
  out.number = ask.number;
  const auto processes = sandbox_processes();
  if (!processes) {
    out.sys_errno = errno_of(processes.error());
    return send(socket, out);
  }
  std::optional<StandStill> stopped;
  if (ask.stop != 0) stopped.emplace(*processes);
  const auto use = count(directory, *processes, devices, ask, socket);
  if (!use) out.sys_errno = errno_of(use.error());
  if (use) {
    out.bytes = use->bytes;
    out.files = use->files;
  }
  auto sent = send(socket, out);
  if (use && ask.still != 0 && Limit{ask.max_bytes, ask.max_files}.is_over(*use)) {
    kill_all(*processes);
  }
  return sent;
}

}  // namespace

int meter_main(int socket, int directory, dev_t overlay) {
  (void)prctl(PR_SET_NAME, "temenos-disk");
  const auto st = sys::stat_fd(directory);
  if (!st || !sys::close_all_except({socket, directory}) || !jail::keep_counting_rights()) return 1;
  const std::array<dev_t, 2> devices{overlay, st->st_dev};
  for (;;) {
    const auto ask = receive_whole<Ask>(socket);
    if (!ask) return 0;
    if (!answer(directory, devices, *ask, socket)) return 0;
  }
}

Result<void> send(int socket, const Ask& ask) { return send_whole(socket, ask); }
Result<void> send(int socket, const Answer& answer) { return send_whole(socket, answer); }
Result<Answer> receive_answer(int socket) { return receive_whole<Answer>(socket); }

}  // namespace temenos::disk
