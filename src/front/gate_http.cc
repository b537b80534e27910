// HTTP/1 requests, one after another, on a connection whose rule has no port.
#include <algorithm>

#include "front/gate.h"

namespace temenos::front {

using egress::App;
using egress::Ask;
using egress::Why;
using wire::Progress;

// No body is longer; beyond it, counting would have no room.
bool Gate::countable(const wire::HttpHead& head) {
  return head.body != wire::HttpBody::kLength || head.content_length >> 62 == 0;
}

bool Gate::has_body(const wire::HttpHead& head) {
  return head.body == wire::HttpBody::kChunked || head.content_length > 0;
}

Gate::Do Gate::read_http() {
  if (checked_) return pass_head();
  if (input_.empty() && requests_ > 0) return ended_ ? open() : Do::kWait;
  if (requests_ == 0 && looks_like_http() == wire::Start::kNo) {
    return refuse(Why::kNotHttp);
  }
  switch (http_.feed(input())) {
    case Progress::kNeedMore:
      return need_more();
    case Progress::kMalformed:
      app_ = App::kHttp;
      return refuse(Why::kMalformed);
    case Progress::kGood:
      break;
  }
  return check_head();
}

Gate::Do Gate::check_head() {
  app_ = App::kHttp;
  const wire::HttpHead& head = http_.head();
  if (head.form == wire::HttpForm::kAuthority) return refuse(Why::kNested);
#ifdef TEMENOS_PLANT_GATE
  const bool judged = requests_ == 0;
#else
  const bool judged = true;
#endif
  if (judged && !same(head.host)) return refuse(Why::kForeignName);
  if (head.port.value_or(request_.port) != request_.port) {
    seen_ = wire::format_authority(head.host, head.port);
    return refuse(Why::kForeignName);
  }
  if (!countable(head)) return refuse(Why::kMalformed);
  checked_ = true;
  return connected_ ? pass_head() : ask(Ask::kConnect);
}

Gate::Do Gate::pass_head() {
  const wire::HttpHead& head = http_.head();
  if (entry_ == Entry::kAbsolute) {
    text_ = wire::rewrite_for_origin(input(), head);
  } else if (head.upgrade && (head.upgrade_other || has_body(head) || requests_ > 0)) {
    // HTTP/2, TLS and what comes next would carry names that nobody compares; behind an earlier
    // request a 101 could be the answer to either; and an answer that begins before a body has
    // ended is not seen from its first line on.
    text_ = wire::without_upgrade(input(), head);
  } else {
    text_ = input_.substr(0, head.size);
    upgrades_ = head.upgrade;
  }
  body_.emplace(head);
  take_input(head.size);
  ++requests_;
  checked_ = false;
  state_ = State::kBody;
  // What is here of the body goes with its head.
  if (!follow_body()) return reset();
  return Do::kPass;
}

// Moves what is in the input and belongs to the body to the text. False: it is no body.
bool Gate::follow_body() {
  const auto step = body_->feed(input());
  text_.append(input_, 0, step.taken);
  take_input(step.taken);
  if (step.progress == Progress::kGood) after_body();
  if (step.progress != Progress::kMalformed) return true;
  // The server could read what follows as a request of its own.
  why_ = Why::kMalformed;
  return false;
}

Gate::Do Gate::pass_body() {
  if (body_->is_done()) {
    after_body();
    return next();
  }
  if (!input_.empty()) return follow_body() ? Do::kPass : reset();
  stream_ = body_->opaque();
  if (stream_ > 0) {
    body_->skip(stream_);
    return Do::kStream;
  }
  return ended_ ? reset() : Do::kWait;
}

void Gate::after_body() {
  body_.reset();
  http_ = {};
  ++heads_;
  if (entry_ == Entry::kAbsolute) {
    state_ = State::kLast;
  } else {
    state_ = upgrades_ ? State::kUpgrade : State::kHttp;
  }
}

Gate::Do Gate::read_status() {
  const wire::HttpStatus status = wire::read_http_status(
      {reinterpret_cast<const std::uint8_t*>(status_.data()), status_.size()});
  if (status.progress == Progress::kNeedMore) return Do::kWait;
  status_ = std::string();
  upgrades_ = false;
  if (status.progress == Progress::kGood && status.code == 101) return open();
  state_ = State::kHttp;  // it stays with what it speaks
  return read_http();
}

}  // namespace temenos::front
