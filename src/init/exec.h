// One exec: its pipes or its terminal, credit and end. A state machine that the server's loop
// drives; it reads and writes its own pipes and appends messages for session, and blocks on
// nothing.
#pragma once

#include <sys/resource.h>
#include <sys/types.h>

#include <array>
#include <cstdint>
#include <memory>

#include "base/unique_fd.h"
#include "init/process_trees.h"
#include "init/terminal.h"
#include "wire/box_protocol.h"
#include "wire/byte_queue.h"

namespace temenos::init {

using Millis = std::uint64_t;
inline constexpr Millis kNever = ~Millis{0};

class Exec {
 public:
  // Starts it and says STARTED, or says ERROR and gives null.
  static std::unique_ptr<Exec> start(std::uint32_t id, const box_wire::Exec& request,
                                     const rlimit* descriptors, ProcessTrees& trees,
                                     ByteQueue& out);

  // From session. False: it broke the protocol.
  bool stdin_data(box_wire::Bytes payload);
  void stdin_eof();
  bool credit(const box_wire::Credit& credit);
  void signal(const box_wire::Signal& signal);
  bool resize(const box_wire::Resize& size);
  void kill();

  // The leader was reaped.
  void exited(int status, const rusage& usage, Millis now);

  // For the loop: descriptors to poll, -1 where there is nothing to wait for.
  // A terminal without anything to type is not watched: its end comes with its output.
  int stdin_fd() const { return terminal_ && !stdin_waits() ? -1 : stdin_.get(); }
  bool stdin_waits() const { return !stdin_queue_.empty() || end_due_; }
  int output_fd(int stream) const;
  void stdin_ready();
  void output_ready(int stream);
  // Time-driven work: the drain after the leader's end, rounds of a kill.
  Millis next_deadline() const { return deadline_; }
  void on_time(Millis now);

  // True when all is over; then DONE was said and the object can go.
  bool finish_if_over(Millis now);
  pid_t pid() const { return pid_; }

 private:
  struct Output {
    UniqueFd fd;
    std::uint32_t credit = 0;
    bool draining = false;  // only `owed` bytes are still taken
    int owed = 0;           // of a terminal: at most
    bool flows = false;     // its last read filled all the room: the next asks for more
  };
  Exec(std::uint32_t id, ProcessTrees& trees, ByteQueue& out) : id_(id), trees_(trees), out_(out) {}
  static int open_pipes(Exec& exec, const box_wire::Exec& request, std::array<UniqueFd, 3>& child);
  static int open_terminal(Exec& exec, const box_wire::Exec& request,
                           std::array<UniqueFd, 3>& child);
  void write_stdin();
  bool write_to_pipe();
  void type();
  bool is_drained(const Output& output) const;
  void end_output(int stream);
  void begin_drain();
  void close_stdin(bool nobody_reads);

  std::uint32_t id_;
  ProcessTrees& trees_;
  ByteQueue& out_;
  pid_t pid_ = -1;
  UniqueFd stdin_;
  ByteQueue stdin_queue_;
  bool stdin_ended_ = false;
  bool stdin_flows_ = false;            // its pipe was full once
  bool end_due_ = false;                // of a terminal: its EOF characters are still to be typed
  std::unique_ptr<Terminal> terminal_;  // null: pipes
  std::uint32_t stdin_done_ = 0;        // credit to give back
  std::array<Output, 2> output_;
  bool exited_ = false;
  bool killing_ = false;
  bool tree_gone_ = false;
  bool drained_ = false;  // the grace after the leader's end is over
  bool lost_ = false;
  Millis deadline_ = kNever;
};

}  // namespace temenos::init
