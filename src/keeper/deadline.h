// A moment that can be polled for. The clock goes on while the machine sleeps (CLOCK_BOOTTIME): a
// box that may live an hour is not the one to wake up with the laptop next morning.
#pragma once

#include <cstdint>

#include "base/unique_fd.h"
#include "temenos/error.h"

namespace temenos::keeper {

class Deadline {
 public:
  // From now; 0: never.
  Result<void> set(std::int64_t seconds);
  // For poll(2), readable once it is over; -1 before the first set().
  int fd() const { return timer_.get(); }
  // Over, and not set anew since.
  bool over() const;

 private:
  UniqueFd timer_;
};

}  // namespace temenos::keeper
