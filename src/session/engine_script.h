// For tests and fuzz targets of the engine: both its sides played by hand, at times of the test's
// choosing.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "session/engine.h"

namespace temenos::session {

struct Heard {
  box_wire::Type type;
  std::uint32_t id;
  std::vector<std::uint8_t> payload;

  template <typename Message>
  Message as() const {
    Message message;
    if (!decode(payload, message)) message = Message{};
    return message;
  }
};

// Takes the messages out of a queue that an engine filled.
inline std::vector<Heard> take_messages(const ByteQueue& queue, auto consume) {
  std::vector<std::uint8_t> wire;
  while (!queue.empty()) {
    iovec part[1];
    queue.peek(part);
    const auto* from = static_cast<const std::uint8_t*>(part[0].iov_base);
    wire.insert(wire.end(), from, from + part[0].iov_len);
    consume(part[0].iov_len);
  }
  box_wire::FrameReader reader(std::max<std::size_t>(wire.size(), 1));
  std::copy(wire.begin(), wire.end(), reader.space().begin());
  reader.commit(wire.size());
  std::vector<Heard> messages;
  box_wire::Frame frame;
  bool more = false;
  while (reader.peek(frame) == box_wire::FrameReader::Status::kFrame) {
    if (!more)
      messages.push_back({static_cast<box_wire::Type>(frame.header.type), frame.header.id, {}});
    auto& payload = messages.back().payload;
    payload.insert(payload.end(), frame.payload.begin(), frame.payload.end());
    more = (frame.header.flags & box_wire::kFlagMore) != 0;
    reader.pop();
  }
  return messages;
}

struct EngineScript {
  Millis now = 1'000;
  EngineConfig config;
  Engine engine{config, now};

  // Init says its HELLO, and what session said is forgotten.
  void ready(std::uint32_t features = 0) {
    init(0, box_wire::Hello{box_wire::kMagic, box_wire::kVersion, features});
    init_heard();
    engine.take_events();
  }
  int client() {
    const int slot = engine.add_client().value();
    say(slot, 0, box_wire::Hello{});
    client_heard(slot);
    return slot;
  }
  // A job; client_heard() takes what its spool would get.
  int job(std::uint32_t number) { return engine.add_job(number, now).value(); }
  // What the loop does once the spool has all.
  void spooled(int slot) { engine.remove_client(slot, now); }
  // An exec of client `slot` that is a job from its first byte; gives the id that init got.
  std::uint32_t start_job(int slot, std::uint32_t id, std::uint32_t number) {
    const auto there = exec(slot, id, {.window = 0});
    say(slot, id, box_wire::Detach{number});
    return there;
  }
  template <typename... Message>
  void init(std::uint32_t id, const Message&... message) {
    ByteQueue out;
    box_wire::put(out, id, message...);
    init_queue(out);
  }
  void init_queue(ByteQueue& out) {
    while (!out.empty()) {
      iovec part[1];
      out.peek(part);
      init_bytes({static_cast<const std::uint8_t*>(part[0].iov_base), part[0].iov_len});
      out.consume(part[0].iov_len);
    }
  }
  void init_bytes(box_wire::Bytes bytes) {
    while (!bytes.empty() && !engine.dead()) {
      const auto space = engine.init_space();
      const std::size_t count = std::min(space.size(), bytes.size());
      std::copy_n(bytes.begin(), count, space.begin());
      engine.init_received(count, now);
      bytes = bytes.subspan(count);
    }
  }
  template <typename... Message>
  void say(int slot, std::uint32_t id, const Message&... message) {
    ByteQueue out;
    box_wire::put(out, id, message...);
    while (!out.empty()) {
      iovec part[1];
      out.peek(part);
      client_bytes(slot, {static_cast<const std::uint8_t*>(part[0].iov_base), part[0].iov_len});
      out.consume(part[0].iov_len);
    }
  }
  // Ends early when the engine does not want more of this client.
  void client_bytes(int slot, box_wire::Bytes bytes) {
    while (!bytes.empty() && engine.wants_read(slot)) {
      const auto space = engine.client_space(slot);
      const std::size_t count = std::min(space.size(), bytes.size());
      std::copy_n(bytes.begin(), count, space.begin());
      engine.client_received(slot, count, now);
      bytes = bytes.subspan(count);
    }
  }
  std::vector<Heard> init_heard() {
    return take_messages(engine.init_out(),
                         [this](std::size_t n) { engine.init_out().consume(n); });
  }
  std::vector<Heard> client_heard(int slot) {
    return take_messages(engine.client_out(slot),
                         [this, slot](std::size_t n) { engine.client_sent(slot, n); });
  }
  // An exec of client `slot`; gives the id that init got.
  std::uint32_t exec(int slot, std::uint32_t id, box_wire::Exec request = {}) {
    request.cwd = "/";
    request.argv = {"x"};
    say(slot, id, request);
    for (const auto& heard : init_heard()) {
      if (heard.type == box_wire::Type::kExec) return heard.id;
    }
    return 0;
  }
  void at(Millis time) {
    now = time;
    engine.on_time(now);
  }
  std::vector<std::uint8_t> bytes(std::size_t count) {
    return std::vector<std::uint8_t>(count, 'x');
  }
};

}  // namespace temenos::session
