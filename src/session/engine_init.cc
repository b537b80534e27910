// What init says: every branch that does not fit the state of the operation ends the box.
#include "session/engine.h"

namespace temenos::session {

using namespace box_wire;

namespace {

// Its streams flow only after a first answer of its own.
bool starts(const Op& op) { return op.kind == Kind::kExec || op.kind == Kind::kDial; }

}  // namespace

void Engine::init_closed() {
  die({ControlType::kInitLost, static_cast<std::uint32_t>(LostReason::kEof)}, std::nullopt);
}

void Engine::violation(Violation which) {
  const auto detail = static_cast<std::uint32_t>(which);
  die({ControlType::kInitLost, static_cast<std::uint32_t>(LostReason::kViolation), detail},
      ControlMessage{ControlType::kKillBox, static_cast<std::uint32_t>(KillReason::kViolation),
                     detail});
}

void Engine::init_received(std::size_t count, Millis now) {
  now_ = now;
  init_reader_.commit(count);
  while (!dead_) {
    Frame frame;
    const auto status = init_reader_.peek(frame);
    if (status == FrameReader::Status::kNeedMore) return;
    // Nothing that init says needs more than one frame.
    if (status == FrameReader::Status::kBad || frame.header.flags != 0) {
      violation(Violation::kBadFrame);
      return;
    }
    if (!init_frame(frame)) return;
    init_reader_.pop();
  }
}

bool Engine::init_frame(const Frame& frame) {
  const auto type = static_cast<Type>(frame.header.type);
  if (type == Type::kHello) {
    if (frame.header.id != 0) return violated(Violation::kBadHello);
    init_hello(frame.payload);
    return !dead_;
  }
  if (!ready_) return violated(Violation::kBadHello);
  switch (type) {
    case Type::kPong:
    case Type::kStarted:
    case Type::kStdinClosed:
    case Type::kStdout:
    case Type::kStderr:
    case Type::kOutputEof:
    case Type::kCredit:
    case Type::kExited:
    case Type::kDone:
    case Type::kError:
    case Type::kFileDone:
    case Type::kStatReply:
    case Type::kDialed:
      break;
    default:
      return violated(Violation::kUnknownType);
  }
  Op* op = op_of_init(frame.header.id);
  if (op == nullptr) return violated(Violation::kForeignId);
  switch (type) {
    case Type::kStdout:
      return init_output(*op, 0, frame.payload);
    case Type::kStderr:
      return init_output(*op, 1, frame.payload);
    case Type::kOutputEof:
      return init_output_eof(*op, frame.payload);
    case Type::kCredit:
      return init_credit(*op, frame.payload);
    case Type::kStarted:
    case Type::kDialed:
    case Type::kStdinClosed:
      return init_start_reply(*op, type, frame.payload);
    case Type::kExited:
      return init_exited(*op, frame.payload);
    case Type::kDone:
      return init_done(*op, frame.payload);
    case Type::kError:
      return init_error(*op, frame.payload);
    default:
      return init_file_reply(*op, type, frame.payload);
  }
}

void Engine::init_hello(Bytes payload) {
  Hello hello;
  if (ready_ || !decode(payload, hello) || hello.magic != kMagic || hello.version != kVersion ||
      (hello.features & ~kFeatureCgroup) != 0) {
    violation(Violation::kBadHello);
    return;
  }
  ready_ = true;
  features_ = hello.features;
  events_.push_back({ControlType::kReady, 0, features_});
}

bool Engine::init_output(Op& op, int stream, Bytes payload) {
  Output& output = op.output[stream];
  if ((starts(op) && op.state == State::kAsked) || output.ended)
    return violated(Violation::kWrongState);
  if (payload.empty()) return violated(Violation::kBadPayload);
  const std::size_t cost = kHeaderSize + payload.size();
#ifndef TEMENOS_PLANT_BOX_FRAMES
  if (cost > output.granted) return violated(Violation::kBeyondCredit);
#endif
  if (op.kind == Kind::kList) {
    Bytes rest = payload;
    Entry entry;
    while (!rest.empty()) {
      if (!take_entry(rest, entry)) return violated(Violation::kBadPayload);
    }
  }
  output.used = true;
  output.granted -= static_cast<std::uint32_t>(cost);
  granted_ -= cost;
  if (op.client < 0) return true;
  clients_[op.client].granted -= cost;
  if (payload.size() > op.output_left) {
    op.truncated = op.capped = true;
    payload = payload.first(op.output_left);
  }
  op.output_left -= payload.size();
  if (!payload.empty()) {
    output.wanted -= std::min<std::uint64_t>(output.wanted, kHeaderSize + payload.size());
    tell_raw(op, stream == 0 ? Type::kStdout : Type::kStderr, payload);
  }
  grant(op);
  return true;
}

bool Engine::init_output_eof(Op& op, Bytes payload) {
  OutputEof eof;
  if (!decode(payload, eof)) return violated(Violation::kBadPayload);
  Output& output = op.output[eof.stream == Stream::kStdout ? 0 : 1];
  if (!starts(op) || op.state == State::kAsked || output.ended) {
    return violated(Violation::kWrongState);
  }
  output.ended = true;
  granted_ -= output.granted;
  if (op.client >= 0) clients_[op.client].granted -= output.granted;
  output.granted = 0;
  tell(op, eof);
  feed_starved();
  return true;
}

bool Engine::init_credit(Op& op, Bytes payload) {
  Credit credit;
  if (!decode(payload, credit)) return violated(Violation::kBadPayload);
  if (credit.stream != Stream::kStdin || !op.has_stdin ||
      (starts(op) && op.state == State::kAsked)) {
    return violated(Violation::kWrongState);
  }
  if (credit.bytes > kWindow - op.stdin_credit) return violated(Violation::kTooMuchCredit);
  op.stdin_credit += credit.bytes;
  if (op.stdin_open) tell(op, credit);
  return true;
}

bool Engine::init_start_reply(Op& op, Type type, Bytes payload) {
  Started started;
  const bool good = type == Type::kStarted ? decode(payload, started) : payload.empty();
  if (!good) return violated(Violation::kBadPayload);
  if (!starts(op)) return violated(Violation::kWrongState);
  if (type == Type::kStdinClosed) {
    if (op.state == State::kAsked || !op.has_stdin || op.stdin_closed) {
      return violated(Violation::kWrongState);
    }
    op.stdin_closed = true;
    if (!op.stdin_open) return true;
  } else {
    const Kind kind = type == Type::kStarted ? Kind::kExec : Kind::kDial;
    if (op.kind != kind || op.state != State::kAsked) return violated(Violation::kWrongState);
    op.state = State::kRunning;
  }
  tell_raw(op, type, payload);
  return true;
}

bool Engine::init_exited(Op& op, Bytes payload) {
  if (!decode(payload, op.exited)) return violated(Violation::kBadPayload);
  if (op.kind != Kind::kExec || op.state != State::kRunning)
    return violated(Violation::kWrongState);
  op.state = State::kExited;
  if (!is_job(op)) tell(op, op.exited);
  return true;
}

bool Engine::init_done(Op& op, Bytes payload) {
  Done done;
  if (!decode(payload, done) || (done.flags & ~kDoneOutputLost) != 0) {
    return violated(Violation::kBadPayload);
  }
  if (op.kind != Kind::kExec || op.state != State::kExited) return violated(Violation::kWrongState);
  if (op.timed_out) done.flags |= kDoneTimedOut;
  if (op.truncated) done.flags |= kDoneTruncated;
  if (is_job(op)) tell(op, op.exited);
  tell(op, done);
  close_op(op);
  return true;
}

bool Engine::init_error(Op& op, Bytes payload) {
  ErrorReply error;
  if (!decode(payload, error) || error.stage > Stage::kCancelled) {
    return violated(Violation::kBadPayload);
  }
  // Only a connection can fail after it has started.
  if (op.kind == Kind::kPing || (op.state != State::kAsked && op.kind != Kind::kDial)) {
    return violated(Violation::kWrongState);
  }
  tell(op, error);
  close_op(op);
  return true;
}

bool Engine::init_file_reply(Op& op, Type type, Bytes payload) {
  if (type == Type::kPong) {
    Ping ping;
    if (!decode(payload, ping)) return violated(Violation::kBadPayload);
    if (op.kind != Kind::kPing) return violated(Violation::kWrongState);
    tell_raw(op, type, payload);
  } else if (type == Type::kStatReply) {
    StatReply reply;
    if (!decode(payload, reply)) return violated(Violation::kBadPayload);
    if (op.kind != Kind::kStat) return violated(Violation::kWrongState);
    tell_raw(op, type, payload);
  } else {
    FileDone done;
    if (!decode(payload, done)) return violated(Violation::kBadPayload);
    const bool counts = op.kind == Kind::kRead || op.kind == Kind::kWrite ||
                        op.kind == Kind::kList || op.kind == Kind::kChange;
    const bool hung_up =
        op.kind == Kind::kDial && op.state == State::kRunning && op.output[0].ended;
    if (!counts && !hung_up) return violated(Violation::kWrongState);
    tell(op, done);
  }
  close_op(op);
  return true;
}

}  // namespace temenos::session
