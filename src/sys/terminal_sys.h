// What termios(3) of this libc does not ask a terminal for. Thread-safety: as the system calls.
#pragma once

#include <cstdint>
#include <optional>

namespace temenos::sys {

struct WindowSize {
  std::uint16_t rows = 0, cols = 0;  // 0: not known
};
// Nothing when `fd` is no terminal.
std::optional<WindowSize> window_size(int fd);

}  // namespace temenos::sys
