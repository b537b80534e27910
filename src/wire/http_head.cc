#include "wire/http_head.h"

#include <charconv>
#include <utility>

#include "wire/http_text.h"

namespace temenos::wire {
namespace {

constexpr std::size_t kMaxMethod = 32;
constexpr std::uint16_t kHttpPort = 80;
constexpr std::string_view kVersion = " HTTP/1.";

bool is_graphic(char c) { return c > ' ' && c < 0x7f; }
bool is_control(char c) { return (c >= 0 && c < ' ' && c != '\t') || c == 0x7f; }

// Whether a target of `method` can begin so.
bool could_be_target(std::string_view method, std::string_view begin) {
  if (method == "CONNECT" || begin.empty() || begin[0] == '/' || begin == "*") return true;
  const std::size_t common = std::min(begin.size(), kHttpScheme.size());
  return equal_ignoring_case(begin.substr(0, common), kHttpScheme.substr(0, common));
}

}  // namespace

Start http_start(Bytes so_far, std::size_t seen) {
  const std::string_view text = as_text(so_far);
  std::size_t end = 0;
  while (end < text.size() && is_token_byte(text[end])) ++end;
  if (end > kMaxMethod) return Start::kNo;
  if (end == text.size()) return Start::kMaybe;
  if (end == 0 || text[end] != ' ') return Start::kNo;
  const std::string_view method = text.substr(0, end);
  const std::string_view rest = text.substr(end + 1);
  // What was seen is a target and at most the beginning of a version behind it.
  const std::size_t before = method.size() + 1 + kVersion.size();
  end = std::min(seen - std::min(seen, before), rest.size());
  while (end < rest.size() && is_graphic(rest[end])) ++end;
  if (!could_be_target(method, rest.substr(0, end))) return Start::kNo;
  // A line that is longer than a head may be is for the reader of heads to refuse.
  if (end == rest.size()) return text.size() < kMaxHttpHead ? Start::kMaybe : Start::kYes;
  if (end == 0) return Start::kNo;
  const std::string_view after = rest.substr(end, kVersion.size());
  if (!kVersion.starts_with(after)) return Start::kNo;
  return after.size() == kVersion.size() ? Start::kYes : Start::kMaybe;
}

Progress HttpHeadReader::refuse(std::string_view why) {
  reason_ = why;
  return status_ = Progress::kMalformed;
}

bool HttpHeadReader::bad(std::string_view why) {
  reason_ = why;
  return false;
}

Progress HttpHeadReader::feed(Bytes so_far) {
  if (status_ != Progress::kNeedMore) return status_;
  const std::string_view text = as_text(so_far).substr(0, kMaxHttpHead);
  while (at_ < text.size()) {
    const char c = text[at_];
    if (c == '\n') return refuse("a line feed without a carriage return");
    if (c != '\r') {
      if (is_control(c)) return refuse("a control byte");
      ++at_;
      continue;
    }
    if (at_ + 1 == text.size()) break;
    if (text[at_ + 1] != '\n') return refuse("a carriage return without a line feed");
    const std::string_view line = text.substr(line_, at_ - line_);
    const bool is_first = line_ == 0;
    at_ += 2;
    line_ = at_;
    if (line.empty() && !is_first) {
      if (!finish()) return status_ = Progress::kMalformed;
      head_.size = at_;
      return status_ = Progress::kGood;
    }
    if (!(is_first ? request_line(line) : field(line))) return status_ = Progress::kMalformed;
  }
  if (so_far.size() >= kMaxHttpHead) return refuse("a head of more than 64 KB");
  return Progress::kNeedMore;
}

bool HttpHeadReader::request_line(std::string_view line) {
  if (line.empty()) return bad("an empty line before the request");
  if (line == "PRI * HTTP/2.0") return bad("HTTP/2 without TLS");
  const std::size_t first = line.find(' ');
  const std::size_t last = line.rfind(' ');
  if (first == line.npos || first == last) return bad("a request line without three parts");
  const std::string_view method = line.substr(0, first);
  const std::string_view version = line.substr(last);
  if (!is_token(method) || method.size() > kMaxMethod) return bad("a method that is no token");
  if (version != " HTTP/1.1" && version != " HTTP/1.0") return bad("no version HTTP/1.1 or 1.0");
  head_.method = method;
  head_.minor = version.back() - '0';
  return target(line.substr(first + 1, last - first - 1));
}

bool HttpHeadReader::target(std::string_view text) {
  if (text.empty() || !std::all_of(text.begin(), text.end(), is_graphic) ||
      text.find('#') != text.npos) {
    return bad("a target with bytes that it must write as %XX");
  }
  if (head_.method == "CONNECT") {
    target_ = parse_authority(text);
    if (!target_ || !target_->port) return bad("CONNECT to something that is not host:port");
    head_.form = HttpForm::kAuthority;
    return true;
  }
  if (text[0] == '/') return true;
  if (text == "*") {
    head_.form = HttpForm::kAsterisk;
    return head_.method == "OPTIONS" || bad("a target * of another method than OPTIONS");
  }
  if (!equal_ignoring_case(text.substr(0, kHttpScheme.size()), kHttpScheme)) {
    return bad("a target that is neither /path nor http://host");
  }
  text = text.substr(kHttpScheme.size(), authority_end(text) - kHttpScheme.size());
  if (text.find('@') != text.npos) return bad("a user in the target");
  target_ = parse_authority(text);
  if (!target_) return bad("a target whose host is not in its canonical form");
  head_.form = HttpForm::kAbsolute;
  return true;
}

bool HttpHeadReader::field(std::string_view line) {
  if (++fields_ > kMaxHttpFields) return bad("more than 200 fields");
  if (is_blank(line[0])) return bad("a line that begins with a blank");
  const std::size_t colon = line.find(':');
  if (colon == line.npos) return bad("a field without a colon");
  if (!is_token(line.substr(0, colon))) return bad("a field whose name is no token");
  const std::string name = lower_ascii(line.substr(0, colon));
  // For programs behind a gateway an underscore is the same as a hyphen (RFC 3875).
  std::string hyphened = name;
  std::replace(hyphened.begin(), hyphened.end(), '_', '-');
  if (hyphened != name && (hyphened == "content-length" || hyphened == "transfer-encoding")) {
    return bad("a length in a field that is not named for it");
  }
  return known_field(name, trim(line.substr(colon + 1)));
}

bool HttpHeadReader::known_field(std::string_view name, std::string_view value) {
  if (name == "host") {
    if (host_) return bad("more than one Host");
    host_ = parse_authority(value);
    return host_ || bad("a Host that is not in its canonical form");
  }
  if (name == "content-length") return length(value);
  if (name == "transfer-encoding") {
    if (has_chunked_) return bad("more than one Transfer-Encoding");
    has_chunked_ = true;
    return equal_ignoring_case(value, "chunked") || bad("a Transfer-Encoding but chunked");
  }
  if (name == "connection") return connection(value);
  if (name == "upgrade") {
    head_.upgrade = true;
    return for_each_element(value, [this](std::string_view protocol) {
      if (!equal_ignoring_case(protocol, "websocket")) head_.upgrade_other = true;
      return true;
    });
  }
  if (name == "proxy-authorization") {
    const bool first = !std::exchange(has_credentials_, true);
    head_.credentials = first && value.size() <= kMaxCredentials ? std::string(value) : "";
    return true;
  }
  if (name == "expect" && equal_ignoring_case(value, "100-continue")) {
    head_.expect_continue = true;
  }
  return true;
}

bool HttpHeadReader::length(std::string_view value) {
  if (has_length_) return bad("more than one Content-Length");
  has_length_ = true;
  const char* const end = value.data() + value.size();
  const auto [stop, ec] = std::from_chars(value.data(), end, head_.content_length);
  if (value.empty() || stop != end || ec != std::errc() || (value[0] == '0' && value.size() > 1) ||
      head_.content_length > INT64_MAX) {
    return bad("a Content-Length that is not one number");
  }
  return true;
}

bool HttpHeadReader::connection(std::string_view value) {
  return for_each_element(value, [this](std::string_view option) {
    if (!is_token(option)) return bad("a word in Connection that is no token");
    const std::string word = lower_ascii(option);
    // A proxy that takes these away makes another request of it.
    if (word == "host" || word == "content-length" || word == "transfer-encoding") {
      return bad("Connection lists a field that is not of the connection");
    }
    if (word == "close") close_ = true;
    if (word == "keep-alive") stay_open_ = true;
    if (word == "upgrade") head_.upgrade = true;
    return true;
  });
}

bool HttpHeadReader::check_host() {
  if (!host_ && (head_.minor == 1 || !target_)) return bad("no Host");
  if (!target_) {
    head_.host = host_->host;
    head_.port = host_->port;
    return true;
  }
  head_.host = target_->host;
  head_.port = target_->port;
  if (!host_) return true;
  // To CONNECT, some clients write the Host without the port.
  const std::uint16_t other = head_.form == HttpForm::kAuthority ? *target_->port : kHttpPort;
  if (host_->host != target_->host ||
      host_->port.value_or(other) != target_->port.value_or(kHttpPort)) {
    return bad("a Host that is not the target's");
  }
  return true;
}

bool HttpHeadReader::finish() {
  if (!check_host()) return false;
#ifndef TEMENOS_PLANT_HTTP_HEAD
  if (has_length_ && has_chunked_) return bad("both Content-Length and Transfer-Encoding");
#endif
  if (has_chunked_ && head_.minor == 0) return bad("Transfer-Encoding in HTTP/1.0");
  if (head_.form == HttpForm::kAuthority && (has_chunked_ || head_.content_length > 0)) {
    return bad("CONNECT with a body");
  }
  if (has_length_) head_.body = HttpBody::kLength;
  if (has_chunked_) head_.body = HttpBody::kChunked;
  head_.keep_alive = !close_ && (head_.minor == 1 || stay_open_);
  return true;
}

HttpStatus read_http_status(Bytes so_far) {
  constexpr std::string_view kPattern = "HTTP/1.1 ddd ";
  HttpStatus out;
  for (std::size_t i = 0; i < kPattern.size(); ++i) {
    if (i == so_far.size()) return out;
    const char c = static_cast<char>(so_far[i]);
    const bool is_last = i + 1 == kPattern.size();
    const bool is_digit = c >= '0' && c <= '9';
    // A server may leave out the blank together with the words behind it.
    if (kPattern[i] == 'd' ? !is_digit : c != kPattern[i] && !(is_last && c == '\r')) {
      return {.progress = Progress::kMalformed};
    }
    if (kPattern[i] == 'd') out.code = out.code * 10 + (c - '0');
  }
  out.progress = Progress::kGood;
  return out;
}

}  // namespace temenos::wire
