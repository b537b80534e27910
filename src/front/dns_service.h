// The box's name server, for any address that it asks: datagrams answered from the address that was
// asked, and streams. Questions that dialer has to answer wait here, a bounded number.
//
// Thread-safety: none. Ownership: owns its sockets.
#pragma once

#include <netinet/in.h>

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "front/dial_client.h"
#include "front/dns_names.h"
#include "front/side.h"

namespace temenos::front {

class DnsService {
 public:
  using Millis = DnsNames::Millis;
  static constexpr std::size_t kMaxPending = 256;
  static constexpr std::size_t kMaxStreams = 64;
  static constexpr Millis kPendingTime = 5'000;
  static constexpr Millis kStreamTime = 10'000;  // without a question
  // The low 16 bits of the ids of its requests, from here on.
  static constexpr std::uint16_t kFirstId = 0xF000;

  // `watch(fd, index)` has stream `index` of on_stream() watched, edge-triggered.
  using Watch = std::function<bool(int fd, std::uint32_t index)>;
  DnsService(DialClient& dialer, Watch watch) : dialer_(dialer), watch_(std::move(watch)) {}

  void take_socket(std::size_t which, UniqueFd socket) { udp_.at(which) = std::move(socket); }
  // Reads what is there, at most some dozens.
  void on_datagrams(std::size_t which, Millis now);
  // One that is too many is closed at once.
  void on_accepted(UniqueFd stream, Millis now);
  void on_stream(std::uint32_t index, std::uint32_t events, Millis now);
  void on_reply(const egress::Reply& reply, Millis now);
  void on_dialer_lost(Millis now);
  void on_time(Millis now);
  Millis deadline() const;  // in the past: a stream waits for its next turn
  void forget() { names_.forget(); }

 private:
  struct Peer {  // of a datagram
    std::size_t which = 0;
    sockaddr_storage from{};
    socklen_t from_size = 0;
    sockaddr_storage asked{};  // the address that it was sent to; family 0 when not known
  };
  struct Stream {
    Side side;
    std::string in;
    std::string out;
    bool waits = false;  // for the answer to its last question
    bool more = false;   // its turn is over, and there is more to do
    std::uint64_t serial = 0;
    Millis active = 0;
  };
  struct Pending {
    std::uint64_t id = 0;  // 0: free
    wire::DnsQuestion question;
    bool is_stream = false;
    std::uint32_t stream = 0;
    std::uint64_t serial = 0;
    Peer peer;
    Millis until = 0;
  };
  bool read_datagram(std::size_t which, Millis now);
  // True: answered. Else it waits, if there is room.
  void serve(const wire::DnsQuestion& question, Pending where, Millis now);
  void deliver(const Pending& where, const wire::DnsAnswer& answer);
  void send_datagram(const Peer& peer, const std::vector<std::uint8_t>& message);
  void run_stream(std::uint32_t index, Millis now);
  bool next_question(std::uint32_t index, Millis now);
  void close_stream(std::uint32_t index);

  DialClient& dialer_;
  Watch watch_;
  DnsNames names_;
  std::array<UniqueFd, 2> udp_;
  std::array<Pending, kMaxPending> pending_;
  std::array<Stream, kMaxStreams> streams_;
  std::size_t waiting_ = 0;
  std::size_t open_streams_ = 0;
  bool more_ = false;  // of one of the streams
  std::uint64_t serial_ = 0;
};

}  // namespace temenos::front
