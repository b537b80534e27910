#include "front/gate.h"

#include <arpa/inet.h>

#include <algorithm>
#include <cstring>

namespace temenos::front {
namespace {

using egress::App;
using egress::Ask;
using egress::Family;
using egress::Verdict;
using egress::Why;
using wire::Start;

constexpr std::size_t kMaxChunkInput = 16 * 1024;

void put_name(egress::Request& request, std::string_view name) {
  const std::size_t size = std::min(name.size(), egress::kMaxNameBytes);
  std::memset(request.name, 0, sizeof request.name);
  std::memcpy(request.name, name.data(), size);
  request.name_size = static_cast<std::uint8_t>(size);
}

}  // namespace

std::string address_text(Family family, const std::uint8_t* address) {
  char text[INET6_ADDRSTRLEN] = "";
  inet_ntop(family == Family::kV4 ? AF_INET : AF_INET6, address, text, sizeof text);
  return text;
}

Gate::Gate(const Target& target) : state_(State::kStart) {
  request_.family = target.family;
  request_.port = target.port;
  std::copy(target.address.begin(), target.address.end(), request_.address);
  host_ = address_text(target.family, target.address.data());
}

Gate::Gate(const Login* login) : state_(State::kProxy), entry_(Entry::kConnect), login_(login) {}

wire::Bytes Gate::input() const {
  return {reinterpret_cast<const std::uint8_t*>(input_.data()), input_.size()};
}

void Gate::take_input(std::size_t count) {
  http_start_ = Start::kMaybe;
  http_seen_ = 0;
  if (count == input_.size()) {
    input_ = std::string();  // its memory as well
  } else {
    input_.erase(0, count);
  }
}

// Each byte is looked at once, however they come.
Start Gate::looks_like_http() {
  if (http_start_ == Start::kMaybe) http_start_ = wire::http_start(input(), http_seen_);
  http_seen_ = input_.size();
  return http_start_;
}

Gate::Wait Gate::wait() const {
  switch (state_) {
    case State::kStart:
    case State::kAsked:
    case State::kMustConnect:
    case State::kConnecting:
      return Wait::kDialer;
    case State::kProxy:
    case State::kSocksLogin:
    case State::kSocksRequest:
    case State::kTls:
      return Wait::kHead;
    case State::kHttp:
      // Between two requests a connection may rest.
      return input_.empty() && requests_ > 0 ? Wait::kClient : Wait::kHead;
    case State::kAny:
      return input_.empty() ? Wait::kClient : Wait::kHead;
    case State::kBody:
      return Wait::kClient;
    case State::kUpgrade:
    case State::kTlsAnswer:
      return Wait::kServer;
    case State::kPeek:
      // Who was silent for as long as a head may take has had that time.
      return (request_.port == 80 || request_.port == 443) && why_ != Why::kSilent ? Wait::kHello
                                                                                   : Wait::kPeek;
    case State::kQuiet:
      return Wait::kQuiet;
    case State::kLast:
    case State::kOver:
      break;
  }
  return Wait::kNothing;
}

std::size_t Gate::client_room() const {
  if (ended_) return 0;
  switch (state_) {
    case State::kProxy:
    case State::kSocksLogin:
    case State::kSocksRequest:
    case State::kTls:
    case State::kHttp:
    case State::kAny:
    case State::kPeek:
      return kMaxInput - std::min(kMaxInput, input_.size());
    case State::kBody:
      return kMaxChunkInput - std::min(kMaxChunkInput, input_.size());
    default:
      return 0;
  }
}

bool Gate::down_open() const {
  if (!connected_ || wants_server() || state_ == State::kPeek || state_ == State::kOver) {
    return false;
  }
  return requests_ > 0 || again_ || (rule_ == Verdict::kAny && entry_ != Entry::kAbsolute);
}

void Gate::client_bytes(std::string_view bytes) { input_ += bytes; }
void Gate::client_ended() { ended_ = true; }
void Gate::server_bytes(std::string_view bytes) {
  status_ += bytes;
  answered_ = true;
}

bool Gate::server_ended() {
  server_ended_ = true;
  return state_ == State::kTlsAnswer;
}

Gate::Do Gate::next() {
  if (!say_.empty()) {
    text_ = std::exchange(say_, {});
    return Do::kSay;
  }
  switch (state_) {
    case State::kStart:
      return ask(Ask::kDestination);
    case State::kMustConnect:
      return ask(Ask::kConnect);
    case State::kProxy:
      return read_proxy();
    case State::kSocksLogin:
      return read_socks_login();
    case State::kSocksRequest:
      return read_socks_request();
    case State::kTls:
      return read_tls();
    case State::kTlsAnswer:
      return read_tls_answer();
    case State::kHttp:
      return read_http();
    case State::kAny:
      return read_any();
    case State::kBody:
      return pass_body();
    case State::kUpgrade:
      return read_status();
    case State::kPeek:
      return peek();
    case State::kAsked:
    case State::kConnecting:
    case State::kLast:
    case State::kQuiet:
    case State::kOver:
      break;
  }
  return Do::kWait;
}

Gate::Do Gate::ask(Ask what) {
  request_.ask = what;
  request_.app = app_;
  asked_ = true;
  state_ = what == Ask::kConnect ? State::kConnecting : State::kAsked;
  return Do::kAsk;
}

// What was seen already goes on; anything else has still to come.
void Gate::connected_now() {
  connected_ = true;
  if (entry_ == Entry::kAbsolute || rule_ == Verdict::kNeedsHttp) {
    state_ = State::kHttp;
  } else {
    state_ = rule_ == Verdict::kNeedsTls ? State::kTls : State::kAny;
  }
  if (entry_ != Entry::kConnect && entry_ != Entry::kSocks) return;
  greeted_ = true;
  say_ = entry_ == Entry::kSocks ? socks_text(wire::SocksReply::kSucceeded)
                                 : "HTTP/1.1 200 Connection established\r\n\r\n";
}

void Gate::replied(const egress::Reply& reply, bool with_socket) {
  if (state_ != State::kAsked && state_ != State::kConnecting) return;
  const bool first = state_ == State::kAsked;
  if (first && reply.name_size > 0) {
    name_.assign(reply.name, std::min<std::size_t>(reply.name_size, egress::kMaxNameBytes));
    host_ = name_;
    is_address_ = reply.is_address != 0;
  }
  const Verdict verdict = reply.verdict;
  if (with_socket && verdict == (first ? Verdict::kAny : Verdict::kConnected)) {
    return connected_now();
  }
  if (first && (verdict == Verdict::kNeedsTls || verdict == Verdict::kNeedsHttp)) {
    rule_ = verdict;
    if (entry_ == Entry::kAddress) {
      state_ = rule_ == Verdict::kNeedsTls ? State::kTls : State::kHttp;
    } else if (entry_ == Entry::kAbsolute && rule_ == Verdict::kNeedsTls) {
      end_as(Why::kNotTls);
    } else {
      // Its client hears that it is connected before it says more.
      state_ = State::kMustConnect;
    }
    return;
  }
  why_ = reply.why;
  failed_ = verdict != Verdict::kRefused;
  judged_by_dialer_ = true;
  state_ = State::kPeek;
}

void Gate::dialer_lost() {
  if (wait() != Wait::kDialer) return;
  failed_ = true;
  judged_by_dialer_ = true;  // by its end
  state_ = State::kPeek;
}

void Gate::timed_out() {
  switch (wait()) {
    case Wait::kDialer:
      return dialer_lost();
    case Wait::kHead:
      return end_as(Why::kSilent);
    case Wait::kQuiet:
      state_ = State::kPeek;
      return;
    case Wait::kPeek:
    case Wait::kHello:
      peek_over_ = true;
      return;
    case Wait::kClient:
    case Wait::kServer:
    case Wait::kNothing:
      return;  // as long as they like
  }
}

bool Gate::same(const wire::Host& host) {
  if (host.text == name_) return true;
  seen_ = host.text;
  return false;
}

Gate::Do Gate::open() {
  state_ = State::kOver;
  text_ = std::exchange(input_, {});
  return Do::kOpen;
}

// ---- TLS, and what may be anything

Gate::Do Gate::read_tls() {
  using Status = wire::TlsHelloReader::Status;
  if (checked_) return pass_hello();
  if (again_) {
    const wire::TlsBetween between = wire::tls_between_hellos(input());
    if (between.progress == wire::Progress::kMalformed) return refuse(Why::kMalformed);
    if (between.size > 0) {
      text_ = input_.substr(0, between.size);
      take_input(between.size);
      return Do::kPass;
    }
    if (between.progress == wire::Progress::kNeedMore) return need_more();
  }
  switch (tls_.feed(input())) {
    case Status::kNeedMore:
      return need_more();
    case Status::kNotTls:
      return refuse(Why::kNotTls);
    case Status::kMalformed:
      return refuse(Why::kMalformed);
    case Status::kHello:
      break;
  }
  app_ = App::kTls;
  const auto& name = tls_.hello().server_name;
  const bool good = name ? same(*name) : is_address_ || rule_ == Verdict::kAny;
  if (!good) return refuse(Why::kForeignName);
  checked_ = true;
  return connected_ ? pass_hello() : ask(Ask::kConnect);
}

// A server may ask for a second hello, in the clear like the first, and would take the name in it.
// So what a client has to say behind its first waits for the server's answer.
Gate::Do Gate::pass_hello() {
  if (again_) return open();
  text_ = input_.substr(0, tls_.hello().size);
  take_input(text_.size());
  tls_ = {};
  checked_ = false;
  state_ = State::kTlsAnswer;
  return Do::kPass;
}

Gate::Do Gate::read_tls_answer() {
  const Start again =
      wire::tls_asks_again({reinterpret_cast<const std::uint8_t*>(status_.data()), status_.size()});
  if (again == Start::kMaybe && !server_ended_) return Do::kWait;
  status_ = std::string();
  if (again != Start::kYes) return open();
  again_ = true;
  ++heads_;
  state_ = State::kTls;
  return read_tls();
}

// The server may have spoken already; only what is certainly TLS or HTTP/1 is judged.
Gate::Do Gate::read_any() {
  if (input_.empty()) return ended_ ? open() : Do::kWait;
  const Start tls = wire::tls_start(input());
  const Start http = looks_like_http();
  if (tls == Start::kYes) app_ = App::kTls;
  if (http == Start::kYes) app_ = App::kHttp;
  if (tls == Start::kYes && !is_address_) {
    using Status = wire::TlsHelloReader::Status;
    const Status status = tls_.feed(input());
    if (status == Status::kNeedMore) return need_more();
    if (status == Status::kMalformed) return refuse(Why::kMalformed);
    if (status == Status::kHello && tls_.hello().server_name && !same(*tls_.hello().server_name)) {
      return refuse(Why::kForeignName);
    }
    return pass_hello();
  }
  if (http == Start::kYes) {
    const wire::Progress progress = http_.feed(input());
    if (progress == wire::Progress::kNeedMore) return need_more();
    if (progress == wire::Progress::kMalformed) return refuse(Why::kMalformed);
    if (http_.head().form == wire::HttpForm::kAuthority) return refuse(Why::kNested);
    if (!is_address_ && !same(http_.head().host)) return refuse(Why::kForeignName);
    return open();
  }
  const bool undecided = tls == Start::kMaybe || http == Start::kMaybe;
  if (undecided && !ended_ && input_.size() < kMaxInput) return Do::kWait;
  if (app_ == App::kUnknown) app_ = App::kOther;
  return open();
}

// ---- refusals

Gate::Do Gate::need_more() {
  if (input_.size() >= kMaxInput) return refuse(Why::kMalformed);
  if (ended_) return refuse(input_.empty() ? Why::kSilent : Why::kMalformed);
  return Do::kWait;
}

void Gate::end_as(Why why) {
  why_ = why;
  // An answer to an earlier request may be on its way.
  state_ = requests_ > 0 ? State::kQuiet : State::kPeek;
}

Gate::Do Gate::refuse(Why why) {
  end_as(why);
  return state_ == State::kPeek ? peek() : Do::kWait;
}

Gate::Do Gate::peek() {
  if (peek_over_) return reset();
  if (requests_ > 0) return drop(http_refusal(refused()));
  if (!greeted_ && entry_ == Entry::kSocks)
    return drop(socks_text(socks_ ? *socks_ : socks_code(refused())));
  if (!greeted_ && entry_ != Entry::kAddress && asked_) return drop(http_refusal(refused()));
  if (answered_) return reset();
  const Start tls = wire::tls_start(input());
  const Start http = looks_like_http();
  if (tls == Start::kYes) return failed_ ? reset() : drop(tls_refusal());
  if (http == Start::kYes) return drop(http_refusal(refused()));
  if ((tls == Start::kNo && http == Start::kNo) || ended_) return reset();
  return Do::kWait;
}

Gate::Do Gate::drop(std::string text) {
  state_ = State::kOver;
  input_ = std::string();
  text_ = std::move(text);
  return Do::kDrop;
}

Gate::Do Gate::reset() {
  state_ = State::kOver;
  return Do::kReset;
}

Refused Gate::refused() const {
  return {.why = why_,
          .failed = failed_,
          .of_box = login_ == nullptr || login_->of_box(),
          .host = host_,
          .port = request_.port,
          .seen = seen_.empty() ? std::string_view("nothing") : seen_};
}

egress::Request Gate::report() const {
  egress::Request out = request_;
  out.ask = Ask::kReport;
  out.why = why_;
  // It left, or was left, before it had said where it wants to go.
  const bool began = requests_ > 0 || again_ || state_ == State::kAny ||
                     state_ == State::kTlsAnswer || state_ == State::kOver;
  if (why_ == Why::kNone && !began) {
    out.why = Why::kSilent;
  }
  out.app = app_;
  if (!seen_.empty()) put_name(out, seen_);
  return out;
}

void Gate::go_to(const wire::Host& named, std::uint16_t port) {
  // On the host's loopback there is no other: who says localhost means what rules call 127.0.0.1.
  const bool is_loopback = login_ != nullptr && named.text == "localhost";
  const wire::Host host = is_loopback ? *wire::parse_host("127.0.0.1") : named;
  host_ = host.text;
  request_.port = port;
  if (!host.address) {
    request_.family = Family::kName;
    put_name(request_, host.text);
    return;
  }
  request_.family = host.address->v4 ? Family::kV4 : Family::kV6;
  std::copy(host.address->bytes.begin(), host.address->bytes.end(), request_.address);
}

}  // namespace temenos::front
