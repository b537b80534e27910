#include "keeper/deadline.h"

#include <poll.h>
#include <sys/timerfd.h>

#include <cerrno>

namespace temenos::keeper {

Result<void> Deadline::set(std::int64_t seconds) {
  if (!timer_) {
    timer_ = UniqueFd(timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK));
    if (!timer_) return fail_errno(errno, "timerfd_create", "this is a fault of the host");
  }
  itimerspec when{};
  when.it_value.tv_sec = seconds;
  if (timerfd_settime(timer_.get(), 0, &when, nullptr) != 0) {
    return fail_errno(errno, "timerfd_settime", "this is a fault of the host");
  }
  return {};
}

bool Deadline::over() const {
  pollfd timer{timer_.get(), POLLIN, 0};
  return poll(&timer, 1, 0) > 0;
}

}  // namespace temenos::keeper
