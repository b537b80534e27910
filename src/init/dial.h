// A connection to a port or a socket of the box, made for somebody outside: bytes both ways, each
// way with its own end. A state machine that the server's loop drives; it blocks on nothing.
//
// Thread-safety: none.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/unique_fd.h"
#include "init/exec.h"
#include "wire/box_protocol.h"
#include "wire/byte_queue.h"

namespace temenos::init {

class DialJob {
 public:
  // Begins to connect. What comes of it is in `out` sooner or later: DIALED or ERROR.
  static std::unique_ptr<DialJob> start(std::uint32_t id, const box_wire::Dial& request, Millis now,
                                        ByteQueue& out);

  // From session. False: it broke the protocol.
  bool data(box_wire::Bytes payload);
  void data_end();
  bool credit(const box_wire::Credit& credit);
  // The peer in the box sees a reset, not an end.
  void kill();

  // For the loop: what to poll for, and 0 when there is nothing to wait for.
  int fd() const { return socket_.get(); }
  short events(bool may_read) const;
  void ready(short revents);
  Millis next_deadline() const { return connected_ ? kNever : std::min(limit_, retry_at_); }
  void on_time(Millis now);
  // Its last message is in the queue.
  bool over() const { return over_; }

 private:
  DialJob(std::uint32_t id, ByteQueue& out) : id_(id), out_(out) {}
  void connect_next(Millis now);
  int try_connect();
  void connected();
  void write_some();
  void read_some();
  void stop_writing(bool peer_did);
  void fail(int error);
  void end_if_both_ended();

  std::uint32_t id_;
  ByteQueue& out_;
  UniqueFd socket_;
  std::string path_;  // empty: the port on loopback
  std::uint16_t port_ = 0;
  bool second_ = false;  // [::1] is being tried, 127.0.0.1 has refused
  bool connected_ = false;
  bool over_ = false;
  bool read_ended_ = false;
  bool write_ended_ = false;
  bool end_due_ = false;  // session has no more: the end follows what is queued
  Millis limit_ = 0;
  Millis retry_at_ = kNever;
  ByteQueue queue_;
  std::uint32_t credit_ = 0;
  std::uint32_t done_ = 0;  // credit to give back
  std::uint64_t count_ = 0;
};

}  // namespace temenos::init
