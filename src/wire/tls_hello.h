// Reads the ClientHello at the start of a TLS connection, for the one name in it. Everything in it
// is hostile; whatever two TLS libraries could read in two ways is malformed.
//
// Not OpenSSL: who reads these bytes shall be small, and have no library in it that parses more
// than is needed. OpenSSL is what the tests compare this with.
//
// Thread-safety: none. Memory: a hello of several records is put together once, when all of it is
// there; nothing is allocated by a size that it announces.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "wire/byte_cursor.h"
#include "wire/host_name.h"
#include "wire/progress.h"

namespace temenos::wire {

inline constexpr std::size_t kMaxTlsHello = 64 * 1024;  // with the headers of its records

struct TlsHello {
  std::optional<Host> server_name;  // none: the hello names no server
  // There is a second, encrypted hello, with a name of its own; or what looks like one, which
  // browsers send to every server.
  bool has_ech = false;
  std::size_t size = 0;  // the bytes of its records, from the first one on
};

// Whether these bytes begin a TLS handshake; two of them decide.
Start tls_start(Bytes so_far);

// Whether a server's first bytes ask for another hello (HelloRetryRequest), and so for another
// name. Decided on its first 43 bytes, but for alerts before them. What is no TLS asks for nothing.
Start tls_asks_again(Bytes so_far);

// What a client may say between its two hellos, and what names nothing: early data, alerts, the end
// of what is not encrypted.
struct TlsBetween {
  // kGood: what is behind it is something else. kMalformed: a record that is too long.
  Progress progress = Progress::kGood;
  std::size_t size = 0;  // of its whole records
};
TlsBetween tls_between_hellos(Bytes so_far);

class TlsHelloReader {
 public:
  enum class Status : std::uint8_t {
    kNeedMore,
    kHello,
    kNotTls,  // another protocol, or a record that is no handshake
    kMalformed,
  };

  // All bytes from the connection's first one on. What was seen by an earlier call is not read
  // again before the hello is whole.
  Status feed(Bytes so_far);
  const TlsHello& hello() const { return hello_; }     // kHello
  std::string_view reason() const { return reason_; }  // kNotTls, kMalformed; static text

 private:
  Status record(Bytes so_far);
  Status bad(std::string_view why);
  Status not_tls(Bytes so_far);
  bool message(Bytes body);
  bool extensions(Bytes list);
  bool server_name(Bytes data);
  bool refuse(std::string_view why);

  Status status_ = Status::kNeedMore;
  std::string_view reason_;
  TlsHello hello_;
  std::size_t at_ = 0;           // where the next record begins
  std::size_t records_ = 0;      // whole ones
  std::size_t handshake_ = 0;    // bytes in them
  std::uint8_t header_[4] = {};  // the first of these
};

}  // namespace temenos::wire
