// What one connection of a box may do, decided on its first bytes: asks dialer where it may go,
// reads the TLS hello, HTTP heads or SOCKS and proxy requests, and says what goes on to the server.
// No sockets and no clock: whoever owns them (connection.h) hands over bytes and asks next().
//
// Everything from the client is hostile, and everything from the server before an upgrade. Nothing
// goes to a server before all that must be seen was seen, and a name in the client's bytes is only
// ever compared with the destination, never made one; but for the explicit proxy, whose client says
// where to and is judged by dialer.
//
// Thread-safety: none. Memory: at most kMaxInput bytes of the client's, and one rewritten head.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "egress/dial_protocol.h"
#include "front/login.h"
#include "front/refusal.h"
#include "wire/http_body.h"
#include "wire/http_head.h"
#include "wire/progress.h"
#include "wire/tls_hello.h"

namespace temenos::front {

// Where a connection was opened to.
struct Target {
  egress::Family family = egress::Family::kV4;
  std::array<std::uint8_t, 16> address{};  // network order
  std::uint16_t port = 0;
};
std::string address_text(egress::Family family, const std::uint8_t* address);

class Gate {
 public:
  static constexpr std::size_t kMaxInput = 66 * 1024;  // a head or hello of 64 KiB, and a little

  explicit Gate(const Target& target);  // opened to the address itself
  // To the explicit proxy. `login`: what its clients have to say first; borrowed.
  explicit Gate(const Login* login = nullptr);

  enum class Do : std::uint8_t {
    kWait,    // for what wait() says
    kAsk,     // request() goes to dialer, whose answer goes to replied()
    kSay,     // take_text() goes to the client
    kPass,    // take_text() goes to the server
    kStream,  // the next stream_size() bytes of the client go to the server unread
    kOpen,    // take_text() goes to the server, then everything, both ways
    kDrop,    // take_text() to the client, then the end
    kReset,   // a reset to both
  };
  // Each step is given once; the next call asks for the next one.
  Do next();

  enum class Wait : std::uint8_t {
    kDialer,   // an answer to the last request
    kHead,     // the rest of what the client has begun, or must begin with
    kClient,   // the client's next word, for as long as it likes
    kServer,   // the first line of the server's answer
    kPeek,     // a moment, to see in which protocol to refuse
    kHello,    // the same where a client speaks first, by its port: it will come
    kQuiet,    // until the server has not sent for a moment: then a refusal is its own message
    kNothing,  // the client has said all that it may; the server's answer goes back
  };
  Wait wait() const;
  std::size_t client_room() const;  // how many bytes of the client it takes now
  bool wants_server() const { return state_ == State::kUpgrade || state_ == State::kTlsAnswer; }
  // The client's end may go on unread: it has nothing more to say, or nothing before an answer.
  bool passes_end() const { return wait() == Wait::kNothing || state_ == State::kTlsAnswer; }
  // The server's bytes go back as they come.
  bool down_open() const;
  // Counts what began to be read: the time for a head begins anew.
  std::uint32_t heads() const { return heads_; }

  void client_bytes(std::string_view bytes);
  void client_ended();
  void server_bytes(std::string_view bytes);
  // The server sends nothing more. False: it may not be so.
  bool server_ended();
  void replied(const egress::Reply& reply, bool connected);
  void dialer_lost();                                 // it answers no more, or there was none
  void timed_out();                                   // wait() has lasted as long as it may
  void too_much() { end_as(egress::Why::kTooMany); }  // there is no memory for more of it
  // Bytes went from the server to the client: a refusal can no longer be a message of its own.
  void note_answered() { answered_ = true; }

  const egress::Request& request() const { return request_; }
  std::string take_text() { return std::exchange(text_, {}); }
  std::uint64_t stream_size() const { return stream_; }
  std::size_t memory() const { return input_.capacity() + text_.capacity(); }
  egress::Why why() const { return why_; }
  // dialer was asked, and does not know how it went on.
  bool to_report() const { return asked_ && !judged_by_dialer_; }
  // What dialer is told of it: destination, what was seen; not id, bytes and time.
  egress::Request report() const;

 private:
  enum class Entry : std::uint8_t { kAddress, kConnect, kSocks, kAbsolute };
  enum class State : std::uint8_t {
    kStart,
    kAsked,  // dialer, for the destination
    kMustConnect,
    kConnecting,    // dialer, for the connection
    kProxy,         // the first bytes to the proxy
    kSocksLogin,    // behind the greeting
    kSocksRequest,  // behind that, or the login
    kTls,
    kTlsAnswer,  // behind the hello: the server may ask for another
    kHttp,
    kAny,   // connected; the first bytes are judged when they come
    kBody,  // of a request
    kUpgrade,
    kLast,   // behind the one request of an absolute-form
    kQuiet,  // refused, behind a request that was not
    kPeek,   // refused, in a protocol still to be seen
    kOver,
  };

  Do ask(egress::Ask what);
  void connected_now();
  Do read_proxy();
  Do read_socks_greeting();
  Do read_socks_login();
  Do read_socks_request();
  Do read_tls();
  Do pass_hello();
  Do read_tls_answer();
  Do read_http();
  Do check_head();
  static bool countable(const wire::HttpHead& head);
  static bool has_body(const wire::HttpHead& head);
  Do pass_head();
  Do pass_body();
  bool follow_body();
  void after_body();
  Do read_status();
  Do read_any();
  Do open();
  Do peek();
  void end_as(egress::Why why);
  Do refuse(egress::Why why);
  Do drop(std::string text);
  Do reset();
  Do need_more();
  wire::Start looks_like_http();
  void take_input(std::size_t count);
  void go_to(const wire::Host& named, std::uint16_t port);
  // As the destination; what differs is kept for the log.
  bool same(const wire::Host& host);
  Refused refused() const;
  wire::Bytes input() const;

  State state_;
  Entry entry_ = Entry::kAddress;
  const Login* login_ = nullptr;
  egress::Request request_;
  egress::Verdict rule_ = egress::Verdict::kAny;  // what has to be seen
  std::string host_;                              // the destination, as a client may read it
  std::string name_;                              // what the client's bytes are compared with
  bool is_address_ = false;
  bool asked_ = false;
  bool judged_by_dialer_ = false;
  bool connected_ = false;
  bool greeted_ = false;  // an explicit proxy's client was told that it is connected
  bool failed_ = false;
  bool peek_over_ = false;
  bool ended_ = false;  // the client sends nothing more
  bool answered_ = false;
  bool checked_ = false;  // the hello or head at the front of the input is good
  bool again_ = false;    // the server has asked for a second hello
  bool server_ended_ = false;
  bool upgrades_ = false;  // the server is asked for another protocol
  egress::Why why_ = egress::Why::kNone;
  egress::App app_ = egress::App::kUnknown;
  std::string seen_;                       // the foreign name
  std::optional<wire::SocksReply> socks_;  // what was wrong with a SOCKS request
  std::string input_;
  wire::Start http_start_ = wire::Start::kMaybe;  // of the input
  std::size_t http_seen_ = 0;                     // how much of it has said so
  std::string text_;
  std::string say_;  // to the client, before anything else
  std::uint64_t stream_ = 0;
  std::uint32_t heads_ = 0;
  std::uint32_t requests_ = 0;
  wire::TlsHelloReader tls_;
  wire::HttpHeadReader http_;
  std::optional<wire::HttpBodyReader> body_;
  std::string status_;  // the beginning of the server's answer
};

}  // namespace temenos::front
