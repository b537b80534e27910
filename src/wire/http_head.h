// Reads the head of an HTTP/1 request, for the host in it and for where the request ends.
// Everything in it is hostile. What two servers could read in two ways is malformed, even where a
// standard has a rule for it: two lengths, a fold, a bare line feed, a blank before a colon.
//
// Thread-safety: none. Memory: what is kept of a head is smaller than the head.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "wire/byte_cursor.h"
#include "wire/host_name.h"
#include "wire/progress.h"

namespace temenos::wire {

inline constexpr std::size_t kMaxHttpHead = 64 * 1024;  // with the empty line
inline constexpr std::size_t kMaxHttpFields = 200;
inline constexpr std::size_t kMaxCredentials = 256;

enum class HttpForm : std::uint8_t {
  kOrigin,     // /path
  kAbsolute,   // http://host/path
  kAuthority,  // host:port, with CONNECT and with nothing else
  kAsterisk,   // *, with OPTIONS and with nothing else
};
enum class HttpBody : std::uint8_t { kNone, kLength, kChunked };

struct HttpHead {
  std::string method;
  HttpForm form = HttpForm::kOrigin;
  Host host;                          // of the target, which equals that of the Host field
  std::optional<std::uint16_t> port;  // as written; without one it is 80. Always, with CONNECT
  int minor = 1;                      // HTTP/1.minor
  HttpBody body = HttpBody::kNone;
  std::uint64_t content_length = 0;  // kLength
  // What follows the answer may be another protocol: there is a field Upgrade, or Connection has
  // the word.
  bool upgrade = false;
  bool upgrade_other = false;    // one of the protocols is none that we know (see without_upgrade)
  bool expect_continue = false;  // the body waits for a 100
  bool keep_alive = true;
  // Proxy-Authorization; empty where there is none, more than one, or one that is too long.
  std::string credentials;
  std::size_t size = 0;  // of the head, with the empty line
};

// Whether these bytes begin a request of HTTP/1: the request line up to "HTTP/1." decides, or the
// first byte that it cannot have. HTTP/2 is another protocol.
//
// `seen`: so many of these bytes were kMaybe already, and are not looked at again.
Start http_start(Bytes so_far, std::size_t seen = 0);

class HttpHeadReader {
 public:
  // All bytes from the request's first one on. What was seen by an earlier call is not read again.
  Progress feed(Bytes so_far);
  const HttpHead& head() const { return head_; }       // kGood
  std::string_view reason() const { return reason_; }  // kMalformed; static text

 private:
  Progress refuse(std::string_view why);
  bool bad(std::string_view why);
  bool request_line(std::string_view line);
  bool target(std::string_view text);
  bool field(std::string_view line);
  bool known_field(std::string_view name, std::string_view value);
  bool length(std::string_view value);
  bool connection(std::string_view value);
  bool finish();
  bool check_host();

  Progress status_ = Progress::kNeedMore;
  std::string_view reason_;
  HttpHead head_;
  std::size_t at_ = 0;    // the next byte to look at
  std::size_t line_ = 0;  // where its line begins
  std::size_t fields_ = 0;
  std::optional<Authority> target_;  // absolute and authority form
  std::optional<Authority> host_;    // the field
  bool has_length_ = false;
  bool has_chunked_ = false;
  bool has_credentials_ = false;
  bool close_ = false;
  bool stay_open_ = false;
};

// Both of these take the bytes of a good head, and what was read of it.

// For a request that came in absolute form: what its origin is sent. The path alone, Host as the
// target has it, `Connection: close`; without the fields that are for the proxy (Proxy-*) and for
// this connection (those that Connection lists, Upgrade).
std::string rewrite_for_origin(Bytes bytes, const HttpHead& head);
// The same head without the wish for another protocol, which a server is free to ignore, too.
std::string without_upgrade(Bytes bytes, const HttpHead& head);

// The first line of an answer, as far as its status.
struct HttpStatus {
  Progress progress = Progress::kNeedMore;  // kMalformed: no answer of HTTP/1.1
  int code = 0;
};
HttpStatus read_http_status(Bytes so_far);

}  // namespace temenos::wire
