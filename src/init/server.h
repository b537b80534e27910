// temenos-init's loop: PID 1 of a box, one socket to session, everything that runs in the box below
// it. Not trusted by anyone: session checks each byte that comes from here. Trusts session to be
// benign, and still ends the box on any message that it cannot decode. One thread, one ppoll(2);
// SIGCHLD is let in only there.
#pragma once

#include <poll.h>
#include <sys/resource.h>

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "base/unique_fd.h"
#include "init/dial.h"
#include "init/exec.h"
#include "init/files.h"
#include "init/process_trees.h"
#include "wire/box_frame.h"
#include "wire/box_protocol.h"

namespace temenos::init {

class Server {
 public:
  // `socket` is a connected stream socket. `descriptors`: the RLIMIT_NOFILE that children go back
  // to, or nothing when init did not raise its own.
  Server(UniqueFd socket, ProcessTrees trees, const rlimit* descriptors);

  // Until session goes (0), or breaks the protocol (1). Ends what runs, as far as it can, before it
  // returns.
  int run();

 private:
  enum class Role : std::uint8_t { kSocket, kStdin, kStdout, kStderr, kDial };
  struct Watch {
    Role role;
    std::uint32_t id;
  };

  bool flush();
  bool receive();
  bool frame(const box_wire::Frame& frame);
  bool request(std::uint32_t id, box_wire::Type type, box_wire::Bytes payload);
  template <typename Message, typename Function>
  bool answer(std::uint32_t id, box_wire::Bytes payload, Function function);
  template <typename Message, typename Function>
  bool start_job(std::uint32_t id, box_wire::Bytes payload, Function function);
  bool start_exec(std::uint32_t id, box_wire::Bytes payload);
  bool start_dial(std::uint32_t id, box_wire::Bytes payload);
  bool is_free(std::uint32_t id) const;
  bool stream(std::uint32_t id, box_wire::Type type, box_wire::Bytes payload);
  bool dial_stream(DialJob& dial, box_wire::Type type, box_wire::Bytes payload);
  void collect_watches();
  int timeout_ms(Millis now) const;
  void dispatch();
  void reap(Millis now);
  void run_due(Millis now);
  void end_all();

  UniqueFd socket_;
  ProcessTrees trees_;
  const rlimit* descriptors_;
  box_wire::FrameReader reader_{2 * box_wire::kMaxFrame};
  ByteQueue out_;
  bool blocked_ = false;  // the socket took less than there was
  bool greeted_ = false;
  std::vector<std::uint8_t> assembly_;
  std::uint32_t assembly_id_ = 0;
  std::unordered_map<std::uint32_t, std::unique_ptr<Exec>> execs_;
  std::unordered_map<std::uint32_t, std::unique_ptr<FileJob>> jobs_;
  std::unordered_map<std::uint32_t, std::unique_ptr<DialJob>> dials_;
  std::unordered_map<pid_t, std::uint32_t> leaders_;
  std::vector<pollfd> polls_;
  std::vector<Watch> watches_;
};

// The signal set-up that Server needs, and that children start from: all actions default, SIGCHLD
// handled, SIGCHLD and SIGPIPE blocked.
void prepare_signals();

}  // namespace temenos::init
