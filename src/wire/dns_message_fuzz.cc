// A question that is taken has a plain name, the answer repeats it byte for byte and stays below
// the client's limit; and every answer is one that a second look can follow to its last byte.
#include <algorithm>
#include <cstdlib>

#include "codec/address.h"
#include "wire/dns_message.h"

namespace {

using namespace temenos;
using namespace temenos::wire;

void require(bool holds) {
  if (!holds) std::abort();
}

void check_name(const DnsQuestion& question) {
  std::size_t at = 0;
  std::size_t in_name = 0;
  while (question.wire.at(at) != 0) {
    const std::size_t size = question.wire[at];
    require(size <= 63);
    for (std::size_t i = 1; i <= size; ++i, ++in_name) {
      const auto c = static_cast<char>(question.wire.at(at + i));
      require(lower_ascii({&c, 1})[0] == question.name.at(in_name) && c != '.');
    }
    if (question.wire.at(at + size + 1) != 0) require(question.name.at(in_name++) == '.');
    at += 1 + size;
  }
  require(at + 5 == question.wire.size() && at + 1 <= 255 && in_name == question.name.size());
  if (question.is_host) require(parse_host(question.name)->text == question.name);
}

void check_answer(const DnsQuestion& question, const DnsAnswer& answer, std::size_t limit) {
  const auto message = build_dns_answer(question, answer, limit);
  ByteCursor in(message);
  std::uint16_t id = 0, flags = 0, counts[4] = {};
  require(in.number(2, id) && in.number(2, flags));
  for (auto& count : counts) require(in.number(2, count));
  require(id == question.id && (flags & 0x8000) != 0);
  require((flags & 0xf) == (static_cast<int>(answer.rcode) & 0xf));
  require(counts[0] == (question.wire.empty() ? 0 : 1) && counts[1] <= 1 && counts[2] == 0);
  Bytes repeated;
  require(in.piece(question.wire.size(), repeated));
  require(std::equal(repeated.begin(), repeated.end(), question.wire.begin()));
  const bool truncated = (flags & 0x200) != 0;
  require(truncated || message.size() <= limit);
  if (counts[1] == 1) {
    Bytes head, data;
    require(!truncated && answer.rcode == DnsRcode::kNoError);
    require(in.piece(10, head) && in.sized(2, data));
  }
  require(counts[3] == (question.has_edns ? 1 : 0));
  require(in.rest().size() == (question.has_edns ? 11u : 0u));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const auto v4 = parse_address("198.18.1.2");
  static const auto v6 = parse_address("2001:db8::1");
  const auto question = parse_dns_question({data, size});
  if (!question) return 0;
  if (question->error == DnsRcode::kNoError || question->error == DnsRcode::kBadVers) {
    check_name(*question);
  } else {
    require(question->wire.empty() && question->name.empty() && !question->has_edns);
  }
  require(question->udp_size >= 512 && question->udp_size <= 1232);
  for (const std::size_t limit : {question->udp_size, std::size_t{40}, kMaxDnsMessage}) {
    check_answer(*question, {.rcode = question->error}, limit);
    check_answer(*question, {.rcode = DnsRcode::kRefused}, limit);
    check_answer(*question, {.ttl = 60, .address = v4}, limit);
    check_answer(*question, {.ttl = 60, .address = v6}, limit);
    check_answer(*question, {.ttl = 60, .pointer = "a.example"}, limit);
  }
  if (const auto address = parse_reverse_name(question->name)) {
    require(parse_address(format_block(*address)).has_value());
  }
  return 0;
}
