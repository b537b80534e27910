// The same bytes are the same head, however they arrive; less of them is none; a head that is taken
// has one host and one end, as a second and simpler look at it says; and what it is rewritten to is
// again a head, for the same host and with the same body.
#include <cstdlib>
#include <string>
#include <vector>

#include "wire/http_head.h"
#include "wire/http_text.h"

namespace {

using namespace temenos::wire;

void require(bool holds) {
  if (!holds) std::abort();
}

Bytes bytes(const std::string& text) {
  return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}

HttpHead head_of(const std::string& text) {
  HttpHeadReader reader;
  require(reader.feed(bytes(text)) == Progress::kGood && reader.head().size == text.size());
  return reader.head();
}

// Gives the number of lines.
std::size_t check_lines(std::string_view text) {
  std::size_t lines = 0;
  int hosts = 0;
  int lengths = 0;
  int encodings = 0;
  require(text.ends_with("\r\n\r\n") && text.find("\r\n\r\n") == text.size() - 4);
  for (std::size_t at = 0, end = 0; at < text.size(); at = end + 2) {
    end = text.find("\r\n", at);
    const std::string line = lower_ascii(text.substr(at, end - at));
    require(line.find_first_of(std::string_view("\r\n\0\x0b\x0c", 5)) == line.npos);
    require(line.empty() || (line[0] != ' ' && line[0] != '\t'));
    ++lines;
    if (line.starts_with("host:")) ++hosts;
    if (line.starts_with("content-length:")) ++lengths;
    if (line.starts_with("transfer-encoding:")) ++encodings;
  }
  require(hosts <= 1 && lengths + encodings <= 1);
  return lines;
}

void check_same_request(const HttpHead& a, const HttpHead& b) {
  require(a.method == b.method && a.host == b.host && a.port == b.port && a.minor == b.minor);
  require(a.body == b.body && a.content_length == b.content_length);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const Bytes all(data, size);
  HttpHeadReader at_once;
  const Progress progress = at_once.feed(all);
  HttpHeadReader slow;
  Progress slow_progress = Progress::kNeedMore;
  const std::size_t step = 1 + size % 13;
  for (std::size_t n = 0; n < size && slow_progress == Progress::kNeedMore; n += step) {
    slow_progress = slow.feed(all.first(n));
  }
  if (slow_progress == Progress::kNeedMore) slow_progress = slow.feed(all);
  require(slow_progress == progress && slow.reason() == at_once.reason());
  require((progress == Progress::kMalformed) == !at_once.reason().empty());
  if (progress != Progress::kGood) return 0;

  const HttpHead& head = at_once.head();
  require(head.size <= size && head.size <= kMaxHttpHead);
  require(http_start(all) == Start::kYes);
  for (std::size_t n = 0; n < head.size; n += 1 + head.size / 16) {
    require(http_start(all.first(n)) != Start::kNo);
  }
  HttpHeadReader part;
  require(part.feed(all.first(head.size - 1)) == Progress::kNeedMore);
  require(parse_host(head.host.text) == head.host);
  check_same_request(head, slow.head());
  // What is rewritten may have two fields more, and then too many.
  if (check_lines(as_text(all.first(head.size))) > kMaxHttpFields - 2) return 0;

  const HttpHead plain = head_of(without_upgrade(all, head));
  check_same_request(head, plain);
  require(!plain.upgrade && plain.form == head.form && plain.keep_alive == head.keep_alive);
  if (head.form == HttpForm::kAbsolute) {
    const HttpHead origin = head_of(rewrite_for_origin(all, head));
    check_same_request(head, origin);
    require(!origin.upgrade && !origin.keep_alive);
    require(origin.form == HttpForm::kOrigin || origin.form == HttpForm::kAsterisk);
  }
  return 0;
}
