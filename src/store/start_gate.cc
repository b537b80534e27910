#include "store/start_gate.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>

#include <cerrno>

#include "base/text.h"
#include "base/try.h"
#include "sys/file_sys.h"

namespace temenos::store {

Result<UniqueFd> wait_to_start(const std::string& directory, unsigned places,
                               std::chrono::milliseconds patience, int cancel_fd) {
  // flock(2) of any one of several has no call that waits.
  constexpr int kStepMs = 5;
  const UniqueFd root = TRY(sys::make_directories(directory, 0700));
  const auto end = std::chrono::steady_clock::now() + patience;
  for (;;) {
    for (unsigned i = 0; i < places; ++i) {
      UniqueFd place =
          TRY(sys::open_beneath(root.get(), std::to_string(i), O_RDONLY | O_CREAT, 0600));
      if (flock(place.get(), LOCK_EX | LOCK_NB) == 0) return place;
      if (errno != EWOULDBLOCK && errno != EINTR) {
        return fail_errno(errno, "flock in " + escape(directory));
      }
    }
    if (std::chrono::steady_clock::now() >= end) {
      return fail(Code::kExhausted, "too many boxes are starting at the same time",
                  "try again when the machine is less busy");
    }
    pollfd cancel{cancel_fd, POLLIN, 0};
    if (poll(&cancel, 1, kStepMs) > 0) {
      return fail(Code::kBoxDied, "the start was given up", "start it again");
    }
  }
}

}  // namespace temenos::store
