// The explicit proxy: CONNECT, absolute-form and SOCKS 5, all judged by the same dialer.
#include "front/gate.h"

namespace temenos::front {

using egress::Ask;
using egress::Via;
using egress::Why;
using wire::Progress;

Gate::Do Gate::read_proxy() {
  if (input_.empty()) return need_more();
  const auto first = static_cast<std::uint8_t>(input_[0]);
  if (first == wire::kSocks5 || first == wire::kSocks4) return read_socks_greeting();
  if (looks_like_http() == wire::Start::kNo) return refuse(Why::kNotHttp);
  const Progress progress = http_.feed(input());
  if (progress == Progress::kNeedMore) return need_more();
  if (progress == Progress::kMalformed) return refuse(Why::kMalformed);
  const wire::HttpHead& head = http_.head();
  if (login_ != nullptr && !login_->knows(head.credentials)) return drop(login_refusal());
  app_ = egress::App::kHttp;
  if (head.form == wire::HttpForm::kAuthority) {
    if (head.body != wire::HttpBody::kNone || !head.port) return refuse(Why::kMalformed);
    request_.via = Via::kConnect;
    go_to(head.host, *head.port);
    take_input(head.size);
    http_ = {};
    app_ = egress::App::kUnknown;  // what comes through is still to be seen
    return ask(Ask::kDestination);
  }
  // A request that names no host as a proxy's do is not for us.
  if (head.form != wire::HttpForm::kAbsolute || !countable(head)) return refuse(Why::kMalformed);
  entry_ = Entry::kAbsolute;
  request_.via = Via::kAbsolute;
  go_to(head.host, head.port.value_or(80));
  name_ = head.host.text;
  // The host that it names is where it goes; nothing is left to compare.
  checked_ = true;
  return ask(Ask::kDestination);
}

Gate::Do Gate::read_socks_greeting() {
  const wire::SocksGreeting greeting = wire::read_socks_greeting(input());
  if (greeting.progress == Progress::kNeedMore) return need_more();
  if (greeting.progress == Progress::kMalformed) {
    why_ = Why::kMalformed;
    return reset();
  }
  const bool can_go_on = login_ != nullptr ? greeting.has_password : greeting.can_do_without;
  const auto method = wire::socks_method(!can_go_on          ? wire::SocksMethod::kNothingWillDo
                                         : login_ != nullptr ? wire::SocksMethod::kPassword
                                                             : wire::SocksMethod::kNone);
  if (!can_go_on) {
    why_ = Why::kMalformed;
    return drop({method.begin(), method.end()});
  }
  entry_ = Entry::kSocks;
  request_.via = Via::kSocks;
  take_input(greeting.size);
  state_ = login_ != nullptr ? State::kSocksLogin : State::kSocksRequest;
  text_.assign(method.begin(), method.end());
  return Do::kSay;
}

Gate::Do Gate::read_socks_login() {
  const wire::SocksLogin login = wire::read_socks_login(input());
  if (login.progress == Progress::kNeedMore) return need_more();
  const bool good = login.progress == Progress::kGood && login_->knows(login.user, login.password);
  const auto reply = wire::socks_login_reply(good);
  if (!good) {
    why_ = Why::kMalformed;
    return drop({reply.begin(), reply.end()});
  }
  take_input(login.size);
  state_ = State::kSocksRequest;
  text_.assign(reply.begin(), reply.end());
  return Do::kSay;
}

Gate::Do Gate::read_socks_request() {
  const wire::SocksRequest request = wire::read_socks_request(input());
  if (request.progress == Progress::kNeedMore) return need_more();
  if (request.progress == Progress::kMalformed) {
    socks_ = request.reply;
    return refuse(Why::kMalformed);
  }
  go_to(request.host, request.port);
  take_input(request.size);
  return ask(Ask::kDestination);
}

}  // namespace temenos::front
