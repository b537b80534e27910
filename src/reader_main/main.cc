// temenos-reader: parses files that a box may have written (git configurations and indexes), so
// that no process with rights on the host does. Its one descriptor is a socket on which it is given
// each file open; it locks itself down before it reads a byte of one.
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <string>

#include "base/try.h"
#include "base/unique_fd.h"
#include "git/answer.h"
#include "jail/session_jail.h"
#include "sys/file_sys.h"
#include "sys/process_sys.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
// The leak check at exit starts a thread and traces it: the jail forbids both.
extern "C" const char* __asan_default_options() { return "detect_leaks=0"; }
#endif
#endif

namespace temenos {
namespace {

constexpr int kSocket = 0;

Result<std::string> answer_next(const sys::Received& received) {
  const auto question = TRY(git::decode_question(received.bytes));
  if (received.fds.size() != 1) return fail(Code::kProtocol, "no file");
  const std::size_t most = git::max_file_bytes(question.kind);
  if (question.size > most) {
    return fail(Code::kExhausted, "it is larger than " + std::to_string(most) + " bytes");
  }
  // Who asks is trusted with the size, and within the bound; growing by doubling would not fit.
  std::string bytes;
  bytes.resize(question.size + 1);
  std::size_t have = 0;
  while (have < bytes.size()) {
    const ssize_t n = read(received.fds[0].get(), bytes.data() + have, bytes.size() - have);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return fail_errno(errno, "reading it");
    if (n == 0) break;
    have += static_cast<std::size_t>(n);
  }
  if (have > question.size) return fail(Code::kConflict, "it grew while it was read");
  bytes.resize(have);
  return git::answer(question.kind, bytes);
}

int serve() {
  if (auto jailed = jail::enter_session_jail(); !jailed) {
    (void)sys::send_with_fds(kSocket, git::answer_error(jailed.error()), {});
    return 125;
  }
  for (;;) {
    const auto received = sys::receive_with_fds(kSocket, 64, 1);
    if (!received) return 125;
    if (received->bytes.empty()) return 0;
    const auto reply = answer_next(*received);
    const auto sent =
        sys::send_with_fds(kSocket, reply ? *reply : git::answer_error(reply.error()), {});
    if (!sent) return 125;
  }
}

}  // namespace
}  // namespace temenos

int main(int argc, char** argv) {
  if (argc == 2 && std::strcmp(argv[1], "--version") == 0) {
    std::puts("temenos-reader " TEMENOS_VERSION);
    return 0;
  }
  std::signal(SIGPIPE, SIG_IGN);
  return temenos::serve();
}
