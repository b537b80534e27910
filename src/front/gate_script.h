// A gate with everything around it played by a test: its client, its server, dialer and the clock.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "front/gate.h"

namespace temenos::front {

inline Target target_v4(std::array<std::uint8_t, 4> address, std::uint16_t port) {
  Target out{.family = egress::Family::kV4, .port = port};
  std::copy(address.begin(), address.end(), out.address.begin());
  return out;
}

inline egress::Reply make_reply(egress::Verdict verdict, std::string_view name = {},
                                egress::Why why = egress::Why::kNone, bool is_address = false) {
  egress::Reply out;
  out.verdict = verdict;
  out.why = why;
  out.is_address = is_address ? 1 : 0;
  out.name_size = static_cast<std::uint8_t>(name.size());
  std::copy(name.begin(), name.end(), out.name);
  return out;
}

class GateScript {
 public:
  explicit GateScript(Gate gate) : gate(std::move(gate)) { run(); }

  // `bytes` come from the client, as much at once as the gate takes.
  void client(std::string_view bytes) {
    unread_ += bytes;
    run();
  }
  void client_ends() {
    ended_ = true;
    run();
  }
  void server(std::string_view bytes) {
    if (gate.wants_server()) {
      gate.server_bytes(bytes);
      to_client += bytes;
    } else if (open || gate.down_open()) {
      to_client += bytes;
      if (!bytes.empty()) gate.note_answered();
    } else {
      early_server_bytes += bytes;
    }
    run();
  }
  void server_ends() {
    if (gate.wants_server()) gate.server_ended();
    run();
  }
  void reply(const egress::Reply& answer) {
    connected =
        answer.verdict == egress::Verdict::kAny || answer.verdict == egress::Verdict::kConnected;
    gate.replied(answer, connected);
    run();
  }
  void time_out() {
    gate.timed_out();
    run();
  }
  void lose_dialer() {
    gate.dialer_lost();
    run();
  }
  bool over() const { return dropped || reset; }
  const egress::Request& last_ask() const { return asks.back(); }
  std::size_t unread() const { return unread_.size(); }

  Gate gate;
  std::vector<egress::Request> asks;
  std::string to_server;
  std::string to_client;
  std::string early_server_bytes;  // held back
  bool connected = false;
  bool open = false;
  bool dropped = false;
  bool reset = false;

 private:
  void run() {
    while (!over()) {
      if (open || streaming_ > 0) {
        const auto count = static_cast<std::size_t>(
            std::min<std::uint64_t>(open ? unread_.size() : streaming_, unread_.size()));
        to_server.append(unread_, 0, count);
        unread_.erase(0, count);
        if (!open) streaming_ -= count;
        if (open || streaming_ > 0) return;
      }
      switch (gate.next()) {
        case Gate::Do::kWait: {
          const std::size_t count = std::min(gate.client_room(), unread_.size());
          if (count > 0) {
            gate.client_bytes(std::string_view(unread_).substr(0, count));
            unread_.erase(0, count);
            continue;
          }
          if (ended_ && unread_.empty() && gate.client_room() > 0) {
            gate.client_ended();
            continue;
          }
          return;
        }
        case Gate::Do::kAsk:
          asks.push_back(gate.request());
          break;
        case Gate::Do::kSay:
          to_client += gate.take_text();
          break;
        case Gate::Do::kPass:
          to_server += gate.take_text();
          break;
        case Gate::Do::kStream:
          streaming_ = gate.stream_size();
          break;
        case Gate::Do::kOpen:
          to_server += gate.take_text();
          open = true;
          break;
        case Gate::Do::kDrop:
          to_client += gate.take_text();
          dropped = true;
          break;
        case Gate::Do::kReset:
          reset = true;
          break;
      }
    }
  }

  std::string unread_;
  std::uint64_t streaming_ = 0;
  bool ended_ = false;
};

}  // namespace temenos::front
