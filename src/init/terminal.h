// The terminal of one exec: a pty of the box, its keyboard and its size. Does what gVisor's line
// discipline leaves out, so that Ctrl-C is what people know: there the character reaches the
// program too, signals come with ISIG off as well, a line that nobody reads holds up every signal
// behind it, typed lines are not flushed, and no key erases a line (Ctrl-U). A discipline that does
// not have these faults (tried once) is left to itself. Not known here, because gVisor does not
// say: the foreground group.
//
// Thread-safety: none. Ownership: owns both its descriptors; all are non-blocking.
#pragma once

#include <termios.h>

#include <cstdint>
#include <memory>

#include "base/unique_fd.h"
#include "wire/box_protocol.h"

namespace temenos::init {

class Terminal {
 public:
  // Null and errno when there is no pty to be had. `child` becomes descriptors 0, 1, 2 of the exec.
  static std::unique_ptr<Terminal> open(const box_wire::Resize& size, UniqueFd& child);

  int fd() const { return master_.get(); }
  void resize(const box_wire::Resize& size);
  // As from a keyboard. Gives how many bytes were taken; 0: none now, poll for POLLOUT.
  std::size_t type(box_wire::Bytes bytes);
  // What ends the input of a program that reads lines; one that reads keys sees Ctrl-D. False: not
  // now.
  bool type_end();
  // The leader has ended: the program's side closes with its last holder in the box. Until then
  // init holds it open, since a program may close its terminal and open it again.
  void release() { slave_.reset(); }

 private:
  bool strike(const termios& mode, std::uint8_t key);
  bool kill_line(const termios& mode);
  bool type_literally(const termios& mode, std::uint8_t key);
  void discard_input();
  void note(const termios& mode, box_wire::Bytes typed);

  UniqueFd master_;
  UniqueFd slave_;
  std::size_t line_ = 0;  // bytes typed since the line began; erased ones are not taken off
};

}  // namespace temenos::init
