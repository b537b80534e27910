// What clients say. A client that breaks the protocol loses its connection, and what it had running
// ends.
#include "session/engine.h"

namespace temenos::session {

using namespace box_wire;

namespace {

constexpr std::size_t kQueuedHigh = 6u << 20;
constexpr std::size_t kReplyRoom = 512 * 1024;

}  // namespace

bool Engine::wants_read(int slot) const {
  const Client& client = clients_[slot];
  if (!client.used || client.closing || client.waits_for_assembly || !ready_ || dead_) return false;
  if (init_out_.size() > kInitBacklog) return false;
  // A client that asks without ever reading the answers.
  if (client.out.size() > kPerClient + kReplyRoom) return false;
  return queued_ < kQueuedHigh || client.out.size() < kFloorQueue;
}

void Engine::client_received(int slot, std::size_t count, Millis now) {
  now_ = now;
  clients_[slot].reader.commit(count);
  client_frames(slot);
  wake_assembly_waiters();
}

void Engine::client_frames(int slot) {
  Client& client = clients_[slot];
  while (client.used && !client.closing && !dead_) {
    Frame frame;
    const auto status = client.reader.peek(frame);
    if (status == FrameReader::Status::kNeedMore) break;
    if (status == FrameReader::Status::kBad) {
      client_error(slot);
      break;
    }
    if (!client_frame(slot, frame)) break;
    client.reader.pop();
  }
  client.reader.release_if_empty();
}

void Engine::client_error(int slot) {
  Client& client = clients_[slot];
  if (assembling_ == slot) end_assembly();
  orphan_operations(slot);
  post(client, 0, ErrorReply{Stage::kProtocol, 0});
  client.closing = true;
}

bool Engine::client_frame(int slot, const Frame& frame) {
  Client& client = clients_[slot];
  const auto type = static_cast<Type>(frame.header.type);
  const std::uint32_t id = frame.header.id;
  if (!client.greeted) {
    Hello hello;
    if (type != Type::kHello || id != 0 || frame.header.flags != 0 ||
        !decode(frame.payload, hello) || hello.magic != kMagic || hello.version != kVersion) {
      return client_error(slot), false;
    }
    client.greeted = true;
    post(client, 0, Hello{kMagic, kVersion, features_});
    return true;
  }
  if (assembling_ == slot || (frame.header.flags & kFlagMore) != 0) {
    return client_assembles(slot, frame);
  }
  switch (type) {
    case Type::kPing:
    case Type::kExec:
    case Type::kRead:
    case Type::kWrite:
    case Type::kList:
    case Type::kStat:
    case Type::kMkdir:
    case Type::kRemove:
    case Type::kDial:
      if (client_request(slot, id, type, frame.payload)) return true;
      return client_error(slot), false;
    case Type::kDetach:
    case Type::kJobWait:
    case Type::kJobSignal:
      if (client_job(slot, id, type, frame.payload)) return true;
      return client_error(slot), false;
    default:
      break;
  }
  // No operation: it may have ended while this was on its way.
  if (client_stream(op_of_client(slot, id), type, frame.payload)) return true;
  return client_error(slot), false;
}

Op* Engine::op_of_client(int slot, std::uint32_t id) {
  const auto found = by_client_.find(client_key(slot, id));
  return found == by_client_.end() ? nullptr : &ops_[found->second];
}

bool Engine::client_stream(Op* op, Type type, Bytes payload) {
  if (type == Type::kStdin) return op == nullptr || client_stdin(*op, payload);
  if (type == Type::kStdinEof) {
    if (!payload.empty()) return false;
    if (op == nullptr) return true;
    if (!op->stdin_open) return false;
    op->stdin_open = false;
    if (!op->killed) put(init_out_, init_id(*op), type);
    return true;
  }
  if (type == Type::kCredit) {
    Credit credit;
    if (!decode(payload, credit) || credit.stream == Stream::kStdin) return false;
    if (op == nullptr) return true;
    Output& output = op->output[credit.stream == Stream::kStdout ? 0 : 1];
    output.wanted += credit.bytes;
    if (output.wanted > kWindow) return false;
    grant(*op);
    return true;
  }
  if (type == Type::kSignal) {
    Signal signal;
    if (!decode(payload, signal) || (op != nullptr && op->kind != Kind::kExec)) return false;
    if (op != nullptr && !op->killed) put(init_out_, init_id(*op), signal);
    return true;
  }
  if (type == Type::kResize) {
    Resize resize;
    if (!decode(payload, resize) || (op != nullptr && !op->has_terminal)) return false;
    if (op != nullptr && !op->killed) put(init_out_, init_id(*op), resize);
    return true;
  }
  if (type != Type::kKill || !payload.empty()) return false;
  if (op != nullptr) start_kill(*op);
  return true;
}

bool Engine::client_stdin(Op& op, Bytes payload) {
  const std::size_t cost = kHeaderSize + payload.size();
  if (!op.stdin_open || payload.empty()) return false;
#ifndef TEMENOS_PLANT_BOX_CLIENT
  if (cost > op.stdin_credit) return false;
#endif
  op.stdin_credit -= static_cast<std::uint32_t>(cost);
  if (!op.killed && !op.stdin_closed) put(init_out_, init_id(op), Type::kStdin, payload);
  return true;
}

bool Engine::client_assembles(int slot, const Frame& frame) {
  const bool first = assembling_ != slot;
  if (first && assembling_ >= 0) {
    clients_[slot].waits_for_assembly = true;  // the frame stays in its reader
    return false;
  }
  if (static_cast<Type>(frame.header.type) != Type::kExec ||
      (!first && frame.header.id != assembly_id_)) {
    return client_error(slot), false;
  }
  if (first) {
    assembling_ = slot;
    assembly_id_ = frame.header.id;
    assembly_.reserve(kMaxMessage);
    assembly_deadline_ = now_ + config_.assembly_timeout;
    arm(assembly_deadline_);
  }
  if (assembly_.size() + frame.payload.size() > kMaxMessage) return client_error(slot), false;
  assembly_.insert(assembly_.end(), frame.payload.begin(), frame.payload.end());
  if ((frame.header.flags & kFlagMore) != 0) return true;
  const bool good = client_request(slot, frame.header.id, Type::kExec, assembly_);
  end_assembly();
  if (!good) client_error(slot);
  return good;
}

void Engine::end_assembly() {
  assembling_ = -1;
  assembly_ = {};
}

void Engine::wake_assembly_waiters() {
  for (int slot = 0; slot < kMaxClients && assembling_ < 0; ++slot) {
    if (!clients_[slot].waits_for_assembly) continue;
    clients_[slot].waits_for_assembly = false;
    client_frames(slot);
  }
}

bool Engine::client_request(int slot, std::uint32_t id, Type type, Bytes payload) {
  if (id == 0 || op_of_client(slot, id) != nullptr) return false;
  switch (type) {
    case Type::kPing:
      return client_asks<Ping>(slot, id, Kind::kPing, payload);
    case Type::kExec:
      return client_exec(slot, id, payload);
    case Type::kRead:
      return client_asks<Read>(slot, id, Kind::kRead, payload);
    case Type::kWrite:
      return client_asks<Write>(slot, id, Kind::kWrite, payload);
    case Type::kList:
      return client_asks<List>(slot, id, Kind::kList, payload);
    case Type::kMkdir:
      return client_asks<Mkdir>(slot, id, Kind::kChange, payload);
    case Type::kRemove:
      return client_asks<Remove>(slot, id, Kind::kChange, payload);
    case Type::kDial:
      return client_asks<Dial>(slot, id, Kind::kDial, payload);
    default:
      return client_asks<Stat>(slot, id, Kind::kStat, payload);
  }
}

// Everything but EXEC: one decoded message, sent on with the window that is session's.
template <typename Message>
bool Engine::client_asks(int slot, std::uint32_t id, Kind kind, Bytes payload) {
  constexpr bool kHasWindow = requires(Message m) { m.window; };
  Message message;
  if (!decode(payload, message)) return false;
  std::uint32_t window = 0;
  if constexpr (kHasWindow) window = message.window;
  Op* op = open_op(slot, id, kind, window);
  if (op == nullptr) return true;
  if constexpr (kHasWindow) message.window = op->output[0].granted;
  if (kind == Kind::kWrite || kind == Kind::kDial) open_stdin(*op);
  if (kind == Kind::kDial) expect_start(*op);
  put(init_out_, init_id(*op), message);
  return true;
}

bool Engine::client_exec(int slot, std::uint32_t id, Bytes payload) {
  Exec exec;
  if (!check_exec(payload, exec)) return false;
  Op* op = open_op(slot, id, Kind::kExec, exec.window);
  if (op == nullptr) return true;
  if ((exec.flags & kExecStdin) != 0) open_stdin(*op);
  op->has_terminal = (exec.flags & kExecTty) != 0;
  if (exec.output_cap != 0) op->output_left = exec.output_cap;
  expect_start(*op);
  if (exec.timeout_ms != 0) {
    op->deadline = now_ + exec.timeout_ms;
    arm(op->deadline);
  }
  put_exec_again(init_out_, init_id(*op), payload, op->output[0].granted);
  return true;
}

void Engine::open_stdin(Op& op) {
  op.has_stdin = op.stdin_open = true;
  op.stdin_credit = kWindow;
}

void Engine::expect_start(Op& op) {
  op.start_deadline = now_ + config_.start_timeout;
  arm(op.start_deadline);
}

}  // namespace temenos::session
