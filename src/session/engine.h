// The heart of temenos-session: one init on one side, up to 64 clients and 64 jobs on the other, as
// a state machine without I/O. It ends both protocols, maps ids, and passes on only what it has
// framed, decoded and bounded. Trusts: nothing of init (the first misstep kills the box); of
// clients not their form, only their intent. Holds: time-outs, output caps, and the memory bound.
// What init may still send plus what clients have not yet read is at most kPool, plus a floor for
// each stream whose client does read. Does not: touch a descriptor, a clock or a process.
// session/loop.h does. Times are milliseconds of one monotonic clock. Thread-safety: none; one
// owner.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "session/control.h"
#include "session/engine_state.h"
#include "wire/box_frame.h"
#include "wire/box_protocol.h"
#include "wire/job_messages.h"

namespace temenos::session {

class Engine {
 public:
  static constexpr int kMaxClients = 64;
  static constexpr int kSlots = kMaxClients + kMaxJobs;
  static constexpr int kMaxOps = 1024;
  static constexpr std::size_t kPool = 3u << 20;       // bytes: granted to init + unread by clients
  static constexpr std::size_t kPerClient = 1u << 20;  // the share of one client in it
  // Of each stream of a job while half of the pool is in use. Jobs live for hours, mostly silent,
  // and keep what they were granted: all of them together leave room for clients.
  static constexpr std::uint32_t kJobWindow = 8 * 1024;
  static constexpr std::uint32_t kFloor = 1024;          // what a stream gets when the pool is dry
  static constexpr std::size_t kFloorQueue = 16 * 1024;  // ... while its client has less unread
  static constexpr std::size_t kInitBacklog = 512 * 1024;  // above it no client is read

  Engine(const EngineConfig& config, Millis now);

  // Init's side. Received bytes go to init_space(), then init_received().
  std::span<std::uint8_t> init_space() { return init_reader_.space(); }
  void init_received(std::size_t count, Millis now);
  void init_closed();
  ByteQueue& init_out() { return init_out_; }

  // A client's side. `slot` is 0 to kMaxClients - 1 and may be used again after remove_client().
  std::optional<int> add_client();
  bool wants_read(int slot) const;
  std::span<std::uint8_t> client_space(int slot) { return clients_[slot].reader.space(); }
  void client_received(int slot, std::size_t count, Millis now);
  const ByteQueue& client_out(int slot) const { return clients_[slot].out; }
  void client_sent(int slot, std::size_t count);
  // The client has nothing more to come: flush client_out(), then remove_client().
  bool closing(int slot) const { return clients_[slot].closing; }
  void remove_client(int slot, Millis now);

  // A job's side (engine_jobs.cc): a client that only listens, in a slot from kMaxClients on. Write
  // client_out() to its spool, then client_sent(), closing() and remove_client() as above.
  std::optional<int> add_job(std::uint32_t number, Millis now);

  void on_time(Millis now);
  Millis next_deadline() const { return next_deadline_; }  // kNever when there is none

  // Fails everything that runs; no more than closing clients is left afterwards.
  void stop();
  bool dead() const { return dead_; }
  // What keeper is to be told, oldest first; at most one kReady, one kInitLost, one kKillBox in a
  // life.
  std::vector<ControlMessage> take_events() { return std::exchange(events_, {}); }
  int live_operations() const { return live_; }
  std::size_t pool_used() const { return granted_ + queued_; }

 private:
  // engine_init.cc: what init says
  bool init_frame(const box_wire::Frame& frame);
  void init_hello(box_wire::Bytes payload);
  Op* op_of_init(std::uint32_t id);
  bool init_output(Op& op, int stream, box_wire::Bytes payload);
  bool init_output_eof(Op& op, box_wire::Bytes payload);
  bool init_credit(Op& op, box_wire::Bytes payload);
  bool init_start_reply(Op& op, box_wire::Type type, box_wire::Bytes payload);
  bool init_exited(Op& op, box_wire::Bytes payload);
  bool init_done(Op& op, box_wire::Bytes payload);
  bool init_error(Op& op, box_wire::Bytes payload);
  bool init_file_reply(Op& op, box_wire::Type type, box_wire::Bytes payload);
  void violation(Violation which);
  bool violated(Violation which) { return violation(which), false; }

  // engine_client.cc: what clients say
  void client_frames(int slot);
  bool client_frame(int slot, const box_wire::Frame& frame);
  bool client_request(int slot, std::uint32_t id, box_wire::Type type, box_wire::Bytes payload);
  template <typename Message>
  bool client_asks(int slot, std::uint32_t id, Kind kind, box_wire::Bytes payload);
  bool client_exec(int slot, std::uint32_t id, box_wire::Bytes payload);
  void open_stdin(Op& op);
  void expect_start(Op& op);
  bool client_stdin(Op& op, box_wire::Bytes payload);
  bool client_assembles(int slot, const box_wire::Frame& frame);
  void client_error(int slot);
  void orphan_operations(int slot);
  bool client_stream(Op* op, box_wire::Type type, box_wire::Bytes payload);
  Op* op_of_client(int slot, std::uint32_t id);
  // Null when there are too many, which the client is then told.
  Op* open_op(int slot, std::uint32_t client_id, Kind kind, std::uint32_t window);
  static std::uint64_t client_key(int slot, std::uint32_t id) {
    return static_cast<std::uint64_t>(slot) << 32 | id;
  }
  // engine_jobs.cc: what clients say of jobs
  bool client_job(int slot, std::uint32_t id, box_wire::Type type, box_wire::Bytes payload);
  void detach(int slot, std::uint32_t id, std::uint32_t number);
  void job_wait(int slot, std::uint32_t id, const box_wire::JobWait& wait);
  void job_signal(int slot, std::uint32_t id, const box_wire::JobSignal& signal);
  Client* find_job(std::uint32_t number);
  void end_unclaimed(Client& job);
  void end_wait(Op& op, bool over);
  void job_over(std::uint32_t number);
  void claims_on_time();
  bool is_job(const Op& op) const { return op.client >= kMaxClients; }
  int slot_of(const Client& client) const { return static_cast<int>(&client - clients_.data()); }

  void end_assembly();
  void wake_assembly_waiters();

  // engine.cc
  std::uint32_t init_id(const Op& op) const;
  void grant(Op& op);
  void grant_output(Op& op, Output& output);
  void feed_starved();
  void close_op(Op& op);
  void move_op(Op& op, int to);  // to another slot; -1: to nobody
  void start_kill(Op& op);
  void arm(Millis deadline) { next_deadline_ = std::min(next_deadline_, deadline); }
  void die(const ControlMessage& lost, std::optional<ControlMessage> kill);
  void fail_everything();
  void end_with_box(Op& op);
  template <typename Message>
  void tell(const Op& op, const Message& message) {
    if (op.client >= 0) post(clients_[op.client], op.client_id, message);
  }
  // Everything that clients get goes through here, so that it is counted.
  template <typename... Message>
  void post(Client& client, std::uint32_t id, const Message&... message) {
    const std::size_t before = client.out.size();
    box_wire::put(client.out, id, message...);
    queued_ += client.out.size() - before;
  }
  void tell_raw(const Op& op, box_wire::Type type, box_wire::Bytes payload) {
    if (op.client >= 0) post(clients_[op.client], op.client_id, type, payload);
  }
  std::uint16_t index_of(const Op& op) const {
    return static_cast<std::uint16_t>(&op - ops_.data());
  }
  std::size_t available(const Client& client) const;

  EngineConfig config_;
  Millis now_;
  bool ready_ = false, dead_ = false;
  std::uint32_t features_ = 0;
  box_wire::FrameReader init_reader_{2 * box_wire::kMaxFrame};
  ByteQueue init_out_;
  std::array<Client, kSlots> clients_;
  std::vector<Op> ops_;  // kMaxOps, never resized: indices are parts of ids
  std::vector<std::uint16_t> free_ops_;
  std::unordered_map<std::uint64_t, std::uint16_t> by_client_;  // (client slot, its id)
  std::vector<std::uint16_t> starved_;
  int live_ = 0, killing_ = 0;
  std::size_t granted_ = 0, queued_ = 0;
  int assembling_ = -1;  // the client whose EXEC is in assembly_, one at a time
  std::uint32_t assembly_id_ = 0;
  std::vector<std::uint8_t> assembly_;
  Millis assembly_deadline_ = kNever;
  Millis hello_deadline_, next_deadline_;
  std::vector<ControlMessage> events_;
};

}  // namespace temenos::session
