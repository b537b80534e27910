// A command on a terminal in a box, driven like a person would: type, look, wait. For tests.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <string_view>
#include <thread>

#include "base/unique_fd.h"
#include "box/session_client.h"

namespace temenos::testing {

class TerminalExec {
 public:
  // Runs `argv` on a terminal of its own over `client`, which the caller must not use until
  // finish(). `io` may name signal_fd and terminal_fd.
  TerminalExec(SessionClient& client, ExecRequest request, ExecIo io = {}) {
    if (!request.terminal) request.terminal = TerminalSize{24, 80};
    int in[2];
    int out[2];
    EXPECT_EQ(pipe2(in, O_CLOEXEC), 0);
    EXPECT_EQ(pipe2(out, O_CLOEXEC), 0);
    UniqueFd keys_end(in[0]);
    keys_.reset(in[1]);
    screen_.reset(out[0]);
    UniqueFd screen_end(out[1]);
    cancel_.reset(eventfd(0, EFD_CLOEXEC));
    io.cancel_fd = cancel_.get();
    runner_ = std::thread([this, &client, request = std::move(request), io,
                           keys = std::move(keys_end), screen = std::move(screen_end)]() mutable {
      io.stdin_fd = keys.get();
      io.stdout_fd = screen.get();
      result_ = client.exec(request, io);
    });
  }
  ~TerminalExec() {
    if (runner_.joinable()) (void)finish();
  }
  TerminalExec(const TerminalExec&) = delete;
  TerminalExec& operator=(const TerminalExec&) = delete;

  void type(std::string_view keys) const {
    EXPECT_EQ(write(keys_.get(), keys.data(), keys.size()), static_cast<ssize_t>(keys.size()));
  }
  void end_input() { keys_.reset(); }
  // Ends the tree, as its caller would who has enough.
  void cancel() const { EXPECT_EQ(eventfd_write(cancel_.get(), 1), 0); }

  // Until the screen shows `text` after what was looked at before; false when the output ends or
  // nothing comes for 30 s.
  bool see(std::string_view text) { return see_within(text, std::chrono::seconds(30)); }
  // The same, with nothing coming for `patience`.
  bool see_within(std::string_view text, std::chrono::milliseconds patience) {
    for (;;) {
      const auto at = shown_.find(text, seen_);
      if (at != std::string::npos) {
        seen_ = at + text.size();
        return true;
      }
      if (!read_more(patience)) return false;
    }
  }
  // Types and waits for the answer.
  bool ask(std::string_view keys, std::string_view answer) {
    type(keys);
    return see(answer);
  }
  // All that came so far, raw.
  const std::string& shown() const { return shown_; }

  // The rest of the output, then the result. What does not end by itself is ended after 60 s.
  Result<ExecResult> finish() {
    while (read_more(std::chrono::seconds(60))) {
    }
    if (!ended_) cancel();
    screen_.reset();
    if (runner_.joinable()) runner_.join();
    return result_;
  }

 private:
  bool read_more(std::chrono::milliseconds patience) {
    pollfd entry{screen_.get(), POLLIN, 0};
    if (ended_ || poll(&entry, 1, static_cast<int>(patience.count())) != 1) return false;
    char bytes[4096];
    const ssize_t count = read(screen_.get(), bytes, sizeof bytes);
    ended_ = count <= 0;
    if (!ended_) shown_.append(bytes, static_cast<std::size_t>(count));
    return !ended_;
  }

  UniqueFd keys_;
  UniqueFd screen_;
  UniqueFd cancel_;
  std::string shown_;
  std::size_t seen_ = 0;
  bool ended_ = false;
  std::thread runner_;
  Result<ExecResult> result_ = fail(Code::kInternal, "not finished", "");
};

}  // namespace temenos::testing
