// The caller's terminal while a box has it: raw, so that every key goes to the box as a byte, and
// given back whatever happens.
//
// The modes are restored by give_back(), by the destructor, by handlers of the signals that end a
// process, and, when the process is killed or crashes in a way that no handler sees, by a guard: a
// fork in a session of its own that holds the terminal and one end of a socket pair, and nothing
// else. The guard knows of the end by the socket's; it restores only a terminal that is still raw,
// because the shell may have been quicker, and ends then.
//
// Trusts the caller's terminal. What a box prints is not judged here: escape sequences reach the
// terminal as they are (SECURITY.md).
#pragma once

#include <memory>
#include <string_view>

#include "temenos/error.h"

namespace temenos::proc {

bool is_terminal(int fd);

// Written to the terminal after an end that was not orderly, when nobody else switches off what
// programs in the box switched on. In this order: normal screen, with the cursor where it was when
// the alternate one was entered, if it was; whole scroll region; ordinary cursor and keypad
// keys, no xterm or kitty key encoding, no mouse and focus reports, no bracketed paste, no
// synchronized output; visible cursor; auto-wrap on, insert mode off, US-ASCII, plain colours. No
// terminal answers any of it.
extern const std::string_view kTerminalReset;

class RawTerminal {
 public:
  enum class End {
    kOrderly,  // the command ended by itself: what it left on the screen is its own choice
    kCutOff,   // anything else: kTerminalReset is written
  };

  // Makes the terminal `input` raw and starts the guard. `output` gets the reset sequence when it
  // is a terminal; -1: none. Both stay the caller's, open until the end, and their flags are not
  // changed. What was typed before and not read stays to be read. From a background job this stops
  // the process (SIGTTOU), as for any program that wants the terminal.
  //
  // Until the end SIGTSTP gives the terminal back before it stops the process, and SIGCONT makes
  // it raw again and sends this process SIGWINCH; in the background it stops (SIGTTOU) until it is
  // in the foreground, and a terminal that the shell has set for itself is left alone. These two,
  // and SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGABRT and the signals of faults, are handled where the
  // process has left them at their default. kConflict: this process has one already.
  // kInvalidArgument: no terminal. No other thread may take or give back at the same time.
  static Result<RawTerminal> take(int input, int output);

  RawTerminal(RawTerminal&&) noexcept;
  RawTerminal& operator=(RawTerminal&&) = delete;
  ~RawTerminal();  // give_back(End::kCutOff)

  // The terminal is as it was before take() and the guard is gone. Input that the box has not got
  // is thrown away: it was not meant for whoever reads next. Once; further calls do nothing.
  void give_back(End end);

 private:
  struct Held;
  explicit RawTerminal(std::unique_ptr<Held> held);
  std::unique_ptr<Held> held_;
};

}  // namespace temenos::proc
