#include "sys/terminal_sys.h"

#include <sys/ioctl.h>

namespace temenos::sys {

std::optional<WindowSize> window_size(int fd) {
  winsize size{};
  if (ioctl(fd, TIOCGWINSZ, &size) != 0) return std::nullopt;
  return WindowSize{size.ws_row, size.ws_col};
}

}  // namespace temenos::sys
