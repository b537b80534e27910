// The same bytes are the same hello, however they arrive; less of them is none; and what is taken
// has one server name at most, in canonical form. The message is looked at once more here, by code
// that is not the parser's.
#include <cstdlib>
#include <vector>

#include "wire/tls_hello.h"

namespace {

using namespace temenos::wire;
using Status = TlsHelloReader::Status;

void require(bool holds) {
  if (!holds) std::abort();
}

std::size_t u16(const std::vector<std::uint8_t>& bytes, std::size_t at) {
  return static_cast<std::size_t>(bytes.at(at)) << 8 | bytes.at(at + 1);
}

void check_message(Bytes records, const TlsHello& hello) {
  std::vector<std::uint8_t> all;
  while (!records.empty()) {
    const std::size_t size = static_cast<std::size_t>(records[3]) << 8 | records[4];
    require(records[0] == 22 && size > 0 && 5 + size <= records.size());
    all.insert(all.end(), records.begin() + 5, records.begin() + 5 + size);
    records = records.subspan(5 + size);
  }
  require(all.at(0) == 1 && u16(all, 2) + (all[1] << 16) + 4 == all.size());
  std::size_t at = 4 + 2 + 32;
  at += 1 + all.at(at);
  at += 2 + u16(all, at);
  at += 1 + all.at(at);
  int names = 0;
  if (at < all.size()) {
    require(at + 2 + u16(all, at) == all.size());
    for (at += 2; at < all.size(); at += 4 + u16(all, at + 2)) {
      if (u16(all, at) == 0) ++names;
    }
  }
  require(at == all.size());
  require(names == (hello.server_name ? 1 : 0));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const Bytes all(data, size);
  TlsHelloReader at_once;
  const Status status = at_once.feed(all);
  TlsHelloReader slow;
  Status slow_status = Status::kNeedMore;
  const std::size_t step = 1 + size % 13;
  for (std::size_t n = 0; n < size && slow_status == Status::kNeedMore; n += step) {
    slow_status = slow.feed(all.first(n));
  }
  if (slow_status == Status::kNeedMore) slow_status = slow.feed(all);
  require(slow_status == status && slow.reason() == at_once.reason());
  const bool has_reason = status == Status::kNotTls || status == Status::kMalformed;
  require(has_reason == !at_once.reason().empty());
  if (tls_start(all) == Start::kNo) require(status != Status::kHello);
  if (status != Status::kHello) return 0;

  const TlsHello& hello = at_once.hello();
  require(hello.size > 5 && hello.size <= size && hello.size <= kMaxTlsHello);
  require(slow.hello().size == hello.size && slow.hello().server_name == hello.server_name);
  TlsHelloReader part;
  require(part.feed(all.first(hello.size - 1)) == Status::kNeedMore);
  if (hello.server_name) require(parse_host(hello.server_name->text) == hello.server_name);
  check_message(all.first(hello.size), hello);
  return 0;
}
