// A real terminal emulator for tests: one window of a tmux server of the test's own.
#pragma once

#include <sys/types.h>
#include <termios.h>

#include <functional>
#include <string>

#include "base/unique_fd.h"
#include "testing/cli.h"

namespace temenos::testing {

bool same_modes(const termios& a, const termios& b);

class Tmux {
 public:
  // Runs `script` with sh -c and TestHost::environment() in a window of this size; TEMENOS in it is
  // the program. It is no shell with line editing, which would set
  // modes of its own; when it has ended, the screen stays as it was.
  Tmux(const TestHost& host, const std::string& script, int columns = 80, int rows = 24);
  ~Tmux();  // the window's programs get SIGHUP and are waited for
  Tmux(const Tmux&) = delete;
  Tmux& operator=(const Tmux&) = delete;

  // What tmux sees as a key: "C-c", "Enter", "Escape". One call, one key.
  void key(const std::string& name) const;
  // Bytes as they are; UTF-8.
  void type(const std::string& text) const;
  void line(const std::string& text) const { type(text + "\r"); }
  // As one block, bracketed when the program has asked for that.
  void paste(const std::string& text) const;
  void resize(int columns, int rows) const;

  // The window's text, rows apart by newlines, without spaces at their ends.
  std::string screen() const;
  // tmux's own view of the window: "cursor_x", "alternate_on", "mouse_any_flag", ...
  std::string variable(const std::string& name) const;
  // Until the screen holds `text`; false after 60 s.
  bool wait_for(const std::string& text) const;
  bool wait_until(const std::function<bool()>& done) const;

  // The modes of the terminal that the programs in the window have.
  termios modes() const;
  // Those before the script began.
  const termios& modes_at_start() const { return modes_at_start_; }
  // The temenos that runs in it; waits for it.
  pid_t program() const;
  // Closes the window as a user does.
  void hang_up() const;

 private:
  std::string run(const std::string& command) const;

  std::string directory_;
  std::string base_;  // "tmux -S ..."
  UniqueFd tty_;
  UniqueFd gate_;
  termios modes_at_start_{};
  pid_t shell_ = 0;
};

}  // namespace temenos::testing
