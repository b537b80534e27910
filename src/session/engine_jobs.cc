// Jobs: execs that go on without the client that began them. What comes of them goes to a slot
// whose reader is a spool; clients may wait for them and signal them, and init knows nothing of it.
#include <cerrno>

#include "session/engine.h"

namespace temenos::session {

using namespace box_wire;

std::optional<int> Engine::add_job(std::uint32_t number, Millis now) {
  now_ = now;
  if (dead_ || number == 0 || number > kMaxJob) return std::nullopt;
  if (Client* job = find_job(number); job != nullptr) {
    if (job->claim_deadline == kNever) return std::nullopt;
    // Its client could not start it, has removed its files, and was given the number again.
    job->claim_deadline = now + config_.claim_timeout;
    arm(job->claim_deadline);
    return slot_of(*job);
  }
  for (int slot = kMaxClients; slot < kSlots; ++slot) {
    Client& job = clients_[slot];
    if (job.used) continue;
    job = Client{};
    job.used = true;
    job.job = number;
    job.claim_deadline = now + config_.claim_timeout;
    arm(job.claim_deadline);
    return slot;
  }
  return std::nullopt;
}

Client* Engine::find_job(std::uint32_t number) {
  for (int slot = kMaxClients; slot < kSlots; ++slot) {
    if (clients_[slot].job == number) return &clients_[slot];
  }
  return nullptr;
}

bool Engine::client_job(int slot, std::uint32_t id, Type type, Bytes payload) {
  if (type == Type::kDetach) {
    Detach message;
    if (!decode(payload, message)) return false;
    detach(slot, id, message.job);
    return true;
  }
  if (id == 0 || op_of_client(slot, id) != nullptr) return false;
  if (type == Type::kJobWait) {
    JobWait message;
    if (!decode(payload, message)) return false;
    job_wait(slot, id, message);
    return true;
  }
  JobSignal message;
  if (!decode(payload, message)) return false;
  job_signal(slot, id, message);
  return true;
}

void Engine::detach(int slot, std::uint32_t id, std::uint32_t number) {
  Op* op = op_of_client(slot, id);
  Client* job = find_job(number);
  if (job != nullptr && job->claim_deadline == kNever) job = nullptr;  // another exec has it
  // It ended, or is about to and has told its client how: nothing is left for a job.
  if (op == nullptr || op->state == State::kExited) {
    if (job != nullptr) end_unclaimed(*job);
    return;
  }
  if (job == nullptr || op->kind != Kind::kExec) {
    tell(*op,
         ErrorReply{Stage::kFile, job == nullptr ? std::uint16_t{ENOENT} : std::uint16_t{EINVAL}});
    move_op(*op, -1);
    start_kill(*op);
    if (job != nullptr) end_unclaimed(*job);
    return;
  }
  tell_raw(*op, Type::kDetached, {});
  if (op->stdin_open && !op->killed) put(init_out_, init_id(*op), Type::kStdinEof);
  op->stdin_open = false;
  job->claim_deadline = kNever;
  move_op(*op, slot_of(*job));
  grant(*op);
}

void Engine::job_wait(int slot, std::uint32_t id, const JobWait& wait) {
  if (find_job(wait.job) == nullptr) {
    return post(clients_[slot], id, ErrorReply{Stage::kFile, ENOENT});
  }
  if (wait.timeout_ms == 0) return post(clients_[slot], id, FileDone{0});
  Op* op = open_op(slot, id, Kind::kJobWait, 0);
  if (op == nullptr) return;
  op->job = wait.job;
  op->deadline = now_ + wait.timeout_ms;
  arm(op->deadline);
}

void Engine::job_signal(int slot, std::uint32_t id, const JobSignal& signal) {
  const Client* job = find_job(signal.job);
  // Without an operation it has not begun, or only its spool's end is still to be written.
  if (job == nullptr || job->ops.empty()) {
    return post(clients_[slot], id, ErrorReply{Stage::kFile, ENOENT});
  }
  Op& op = ops_[job->ops.front()];
  if (signal.signal == 0) {
    start_kill(op);
  } else if (!op.killed) {
    put(init_out_, init_id(op), Signal{signal.signal, signal.tree});
  }
  post(clients_[slot], id, FileDone{0});
}

void Engine::end_wait(Op& op, bool over) {
  tell(op, FileDone{over ? 1u : 0u});
  close_op(op);
}

// The spool says so too: each that session was given has an end.
void Engine::end_unclaimed(Client& job) {
  post(job, kJobFrameId, ErrorReply{Stage::kCancelled, 0});
  job.claim_deadline = kNever;
  job.closing = true;
}

void Engine::claims_on_time() {
  for (int slot = kMaxClients; slot < kSlots; ++slot) {
    if (now_ >= clients_[slot].claim_deadline) end_unclaimed(clients_[slot]);
    arm(clients_[slot].claim_deadline);
  }
}

// Its spool is whole.
void Engine::job_over(std::uint32_t number) {
  for (Op& op : ops_) {
    if (op.state != State::kFree && op.kind == Kind::kJobWait && op.job == number) {
      end_wait(op, true);
    }
  }
  events_.push_back({ControlType::kJobOver, 0, number});
}

}  // namespace temenos::session
