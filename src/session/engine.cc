#include "session/engine.h"

namespace temenos::session {

using namespace box_wire;

namespace {

constexpr int kSlotBits = 10;
static_assert(Engine::kMaxOps == 1 << kSlotBits);
constexpr std::uint32_t kMaxGeneration = (1u << (32 - kSlotBits)) - 1;
// Credit below this is not worth a message of its own, unless the stream is about to stand still.
constexpr std::uint32_t kGrantStep = 16 * 1024;
constexpr std::uint32_t kFirstGrant = 64 * 1024;

static_assert(Engine::kPool / 2 + kWindow + 2 * kMaxJobs * Engine::kJobWindow < Engine::kPool);

}  // namespace

const char* violation_name(Violation violation) {
  switch (violation) {
    case Violation::kNone:
      return "none";
    case Violation::kBadFrame:
      return "bad frame";
    case Violation::kBadPayload:
      return "bad payload";
    case Violation::kUnknownType:
      return "unknown message";
    case Violation::kBadHello:
      return "bad hello";
    case Violation::kForeignId:
      return "id of no live operation";
    case Violation::kWrongState:
      return "message out of its state";
    case Violation::kBeyondCredit:
      return "output beyond its credit";
    case Violation::kTooMuchCredit:
      return "credit beyond the window";
  }
  return "unknown";
}

Engine::Engine(const EngineConfig& config, Millis now)
    : config_(config),
      now_(now),
      ops_(kMaxOps),
      hello_deadline_(now + config.hello_timeout),
      next_deadline_(hello_deadline_) {
  free_ops_.reserve(kMaxOps);
  for (int i = kMaxOps - 1; i >= 0; --i) free_ops_.push_back(static_cast<std::uint16_t>(i));
  put(init_out_, 0, Hello{});
}

std::uint32_t Engine::init_id(const Op& op) const {
  return op.generation << kSlotBits | index_of(op);
}

Op* Engine::op_of_init(std::uint32_t id) {
  Op& op = ops_[id & (kMaxOps - 1)];
  if (op.state == State::kFree || op.kind == Kind::kJobWait || op.generation != id >> kSlotBits) {
    return nullptr;
  }
  return &op;
}

std::optional<int> Engine::add_client() {
  if (dead_) return std::nullopt;
  for (int slot = 0; slot < kMaxClients; ++slot) {
    if (clients_[slot].used) continue;
    clients_[slot] = Client{};
    clients_[slot].used = true;
    return slot;
  }
  return std::nullopt;
}

void Engine::remove_client(int slot, Millis now) {
  now_ = now;
  Client& client = clients_[slot];
  if (!client.used) return;
  if (assembling_ == slot) end_assembly();
  orphan_operations(slot);
  queued_ -= client.out.size();
  const std::uint32_t job = client.job;
  client = Client{};
  if (job != 0) job_over(job);
  wake_assembly_waiters();
  feed_starved();
}

// They live on without their client until init has ended them.
void Engine::orphan_operations(int slot) {
  while (!clients_[slot].ops.empty()) {
    Op& op = ops_[clients_[slot].ops.back()];
    move_op(op, -1);
    start_kill(op);
  }
}

void Engine::move_op(Op& op, int to) {
  const std::size_t granted = std::size_t{op.output[0].granted} + op.output[1].granted;
  clients_[op.client].granted -= granted;
  std::erase(clients_[op.client].ops, index_of(op));
  by_client_.erase(client_key(op.client, op.client_id));
  op.client = to;
  if (to < 0) return;
  op.client_id = kJobFrameId;
  clients_[to].granted += granted;
  clients_[to].ops.push_back(index_of(op));
  by_client_[client_key(to, op.client_id)] = index_of(op);
}

void Engine::client_sent(int slot, std::size_t count) {
  clients_[slot].out.consume(count);
  queued_ -= count;
  for (const auto index : clients_[slot].ops) grant(ops_[index]);
  feed_starved();
}

Op* Engine::open_op(int slot, std::uint32_t client_id, Kind kind, std::uint32_t window) {
  Client& client = clients_[slot];
  if (free_ops_.empty()) {
    post(client, client_id, ErrorReply{Stage::kBusy, 0});
    return nullptr;
  }
  Op& op = ops_[free_ops_.back()];
  free_ops_.pop_back();
  const std::uint32_t generation = op.generation == kMaxGeneration ? 1 : op.generation + 1;
  op = Op{};
  op.generation = generation;
  op.state = State::kAsked;
  op.kind = kind;
  op.client = slot;
  op.client_id = client_id;
  const bool one = kind == Kind::kRead || kind == Kind::kList || kind == Kind::kDial;
  const int streams = kind == Kind::kExec ? 2 : one ? 1 : 0;
  for (int i = 0; i < streams; ++i) {
    const std::size_t fair = std::max<std::size_t>(available(client) / 2, kFloor);
    const auto first =
        static_cast<std::uint32_t>(std::min<std::size_t>({window, kFirstGrant, fair}));
    // One number serves both streams of an EXEC, so the second may not get more than the first.
    const std::uint32_t share = i == 0 ? first : std::min(first, op.output[0].granted);
    op.output[i].ended = false;
    op.output[i].wanted = window;
    op.output[i].granted = share;
    granted_ += share;
    client.granted += share;
  }
  if (streams == 2 && op.output[1].granted < op.output[0].granted) {
    const std::uint32_t extra = op.output[0].granted - op.output[1].granted;
    op.output[0].granted -= extra;
    granted_ -= extra;
    client.granted -= extra;
  }
  client.ops.push_back(index_of(op));
  by_client_[client_key(slot, client_id)] = index_of(op);
  ++live_;
  return &op;
}

void Engine::close_op(Op& op) {
  std::size_t granted = 0;
  for (Output& output : op.output) granted += std::exchange(output.granted, 0);
  granted_ -= granted;
  if (op.client >= 0) {
    Client& client = clients_[op.client];
    client.granted -= granted;
    std::erase(client.ops, index_of(op));
    by_client_.erase(client_key(op.client, op.client_id));
    if (client.job != 0) client.closing = true;
  }
  if (op.killed) --killing_;
  op.state = State::kFree;
  free_ops_.push_back(index_of(op));
  --live_;
  feed_starved();
}

std::size_t Engine::available(const Client& client) const {
  const std::size_t mine = client.granted + client.out.size();
  const std::size_t of_pool = pool_used() < kPool ? kPool - pool_used() : 0;
  return std::min(of_pool, mine < kPerClient ? kPerClient - mine : 0);
}

void Engine::grant(Op& op) {
  if (op.state == State::kFree || op.killed || op.client < 0) return;
  for (Output& output : op.output) grant_output(op, output);
}

void Engine::grant_output(Op& op, Output& output) {
  if (output.ended || output.granted >= kWindow / 2) return;
  // Most streams are short: the first grant is enough for them, and saves both sides a message.
  if (!output.used && output.granted >= kFloor) return;
  // Past the output cap everything is dropped here, whatever the client takes; a spool takes all.
  std::uint64_t aim = op.capped ? kWindow : std::min<std::uint64_t>(output.wanted, kWindow);
  if (is_job(op)) aim = pool_used() < kPool / 2 ? kWindow : kJobWindow;
  if (aim <= output.granted) return;
  Client& client = clients_[op.client];
  const bool dry = output.granted < kFloor;
  std::size_t give = std::min<std::size_t>(aim - output.granted, available(client));
  if (give < kGrantStep) {
    if (!dry) return;
    if (give < kFloor && client.out.size() < kFloorQueue) {
      give = std::min<std::size_t>(aim - output.granted, kFloor);
    }
  }
  if (give == 0) {
    if (!op.starved) starved_.push_back(index_of(op));
    op.starved = true;
    return;
  }
  output.granted += static_cast<std::uint32_t>(give);
  granted_ += give;
  client.granted += give;
  const Stream stream = &output == &op.output[0] ? Stream::kStdout : Stream::kStderr;
  put(init_out_, init_id(op), Credit{stream, static_cast<std::uint32_t>(give)});
}

void Engine::feed_starved() {
  if (starved_.empty()) return;
  const auto again = std::exchange(starved_, {});
  for (const auto index : again) {
    ops_[index].starved = false;
    grant(ops_[index]);
  }
}

void Engine::start_kill(Op& op) {
  if (op.killed || dead_) return;
  if (op.kind == Kind::kJobWait) {
    tell(op, ErrorReply{Stage::kCancelled, 0});
    return close_op(op);
  }
  op.killed = true;
  ++killing_;
  put(init_out_, init_id(op), Type::kKill);
  op.kill_deadline =
      now_ + config_.kill_grace + config_.kill_grace_each * static_cast<Millis>(killing_ - 1);
  arm(op.kill_deadline);
}

void Engine::on_time(Millis now) {
  now_ = now;
  if (now < next_deadline_ || dead_) return;
  next_deadline_ = kNever;
  if (!ready_) {
    if (now >= hello_deadline_) {
      die({ControlType::kInitLost, static_cast<std::uint32_t>(LostReason::kTimeout)},
          ControlMessage{ControlType::kKillBox, static_cast<std::uint32_t>(KillReason::kNoHello)});
      return;
    }
    arm(hello_deadline_);
  }
  if (assembling_ >= 0) {
    if (now >= assembly_deadline_) {
      client_error(assembling_);
      wake_assembly_waiters();
    } else {
      arm(assembly_deadline_);
    }
  }
  claims_on_time();
  bool survived = false;
  bool silent = false;
  for (Op& op : ops_) {
    if (op.state != State::kFree && op.kind == Kind::kJobWait && now >= op.deadline)
      end_wait(op, false);
    if (op.state == State::kFree) continue;
    if (op.state == State::kAsked && !op.killed) {
      silent = silent || now >= op.start_deadline;
      arm(op.start_deadline);
    }
    if (now >= op.deadline && !op.killed) {
      op.timed_out = true;
      start_kill(op);
    }
    if (op.killed && now >= op.kill_deadline) survived = true;
    arm(op.killed ? op.kill_deadline : op.deadline);
  }
  if (silent) {
    dead_ = true;
    events_.push_back({ControlType::kKillBox, static_cast<std::uint32_t>(KillReason::kSilent)});
    return fail_everything();
  }
  if (!survived) return;
  dead_ = true;
  events_.push_back({ControlType::kKillBox, static_cast<std::uint32_t>(KillReason::kTreeSurvived)});
  for (Op& op : ops_) {
    if (op.state != State::kFree && op.killed && op.kind == Kind::kExec &&
        now >= op.kill_deadline) {
      end_with_box(op);
    }
  }
  fail_everything();
}

// The exec did end, in the only way left; its client hears why it was ended in the usual form.
void Engine::end_with_box(Op& op) {
  constexpr std::uint8_t kSigkill = 9;
  if (op.state == State::kAsked) tell(op, Started{1});
  if (op.state != State::kExited) op.exited = Exited{true, kSigkill};
  if (op.state != State::kExited || is_job(op)) tell(op, op.exited);
  std::uint32_t flags = kDoneBoxKilled | kDoneOutputLost;
  if (op.timed_out) flags |= kDoneTimedOut;
  if (op.truncated) flags |= kDoneTruncated;
  tell(op, Done{flags, 0, {}});
  close_op(op);
}

void Engine::die(const ControlMessage& lost, std::optional<ControlMessage> kill) {
  if (dead_) return;
  dead_ = true;
  events_.push_back(lost);
  if (kill) events_.push_back(*kill);
  fail_everything();
}

void Engine::fail_everything() {
  init_out_.clear();
  for (Op& op : ops_) {
    if (op.state == State::kFree) continue;
    tell(op, ErrorReply{Stage::kBoxLost, 0});
    close_op(op);
  }
  for (Client& client : clients_) {
    if (!client.used || client.closing) continue;
    post(client, client.job != 0 ? kJobFrameId : 0, ErrorReply{Stage::kBoxLost, 0});
    client.closing = true;
  }
  next_deadline_ = kNever;
}

void Engine::stop() {
  if (dead_) return;
  dead_ = true;
  fail_everything();
}

}  // namespace temenos::session
