#include "wire/dns_message.h"

#include <algorithm>

namespace temenos::wire {
namespace {

constexpr std::size_t kHeader = 12;
constexpr std::size_t kMaxWireName = 255;  // RFC 1035, with the sizes of labels and the root's
#ifdef TEMENOS_PLANT_DNS_MESSAGE
constexpr std::size_t kMaxLabel = 64;
#else
constexpr std::size_t kMaxLabel = 63;
#endif
constexpr std::uint16_t kOpt = 41;
constexpr std::size_t kLeastUdp = 512;
// What passes through every path in one piece (DNS flag day 2020); a client may take less.
constexpr std::size_t kMostUdp = 1232;

// The two bytes of flags, high and low.
constexpr std::uint8_t kResponse = 0x80;
constexpr std::uint8_t kOpcode = 0x78;
constexpr std::uint8_t kTruncated = 0x02;
constexpr std::uint8_t kRecursionDesired = 0x01;
constexpr std::uint8_t kRecursionAvailable = 0x80;
constexpr std::uint8_t kCheckingDisabled = 0x10;

// Compression is not for questions: a size with one of its two bits is no size.
bool take_name(ByteCursor& in, std::string& name) {
  std::size_t size = 1;
  while (true) {
    Bytes label;
    if (!in.sized(1, label)) return false;
    if (label.empty()) return true;
    size += 1 + label.size();
    if (label.size() > kMaxLabel || size > kMaxWireName) return false;
    if (!name.empty()) name += '.';
    const std::string text =
        lower_ascii({reinterpret_cast<const char*>(label.data()), label.size()});
    if (text.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-_") != text.npos) return false;
    name += text;
  }
}

// The one record that may stand behind the question: EDNS (RFC 6891).
DnsRcode take_edns(ByteCursor& in, DnsQuestion& question) {
  std::uint8_t root = 0;
  std::uint16_t type = 0;
  std::uint16_t udp_size = 0;
  std::uint8_t extended = 0;
  std::uint8_t version = 0;
  std::uint16_t flags = 0;
  Bytes options;
  if (!in.number(1, root) || root != 0 || !in.number(2, type) || type != kOpt ||
      !in.number(2, udp_size) || !in.number(1, extended) || !in.number(1, version) ||
      !in.number(2, flags) || !in.sized(2, options)) {
    return DnsRcode::kFormErr;
  }
  for (ByteCursor each(options); !each.empty();) {
    std::uint16_t code = 0;
    Bytes value;
    if (!each.number(2, code) || !each.sized(2, value)) return DnsRcode::kFormErr;
  }
  question.has_edns = true;
  question.udp_size = std::clamp<std::size_t>(udp_size, kLeastUdp, kMostUdp);
  return version == 0 ? DnsRcode::kNoError : DnsRcode::kBadVers;
}

// Behind the header; `records` is how many records stand behind the question.
DnsRcode take_question(ByteCursor& in, std::uint16_t records, DnsQuestion& question) {
  const Bytes start = in.rest();
  std::string name;
  if (!take_name(in, name) || !in.number(2, question.type) || !in.number(2, question.of_class)) {
    return DnsRcode::kFormErr;
  }
  const Bytes wire = start.first(start.size() - in.rest().size());
  DnsRcode rcode = DnsRcode::kNoError;
  if (records == 1) rcode = take_edns(in, question);
  if (records > 1 || !in.empty()) rcode = DnsRcode::kFormErr;
  if (rcode == DnsRcode::kFormErr) {
    question.has_edns = false;
    return rcode;
  }
  question.is_host = name_defect(name) == NameDefect::kNone;
  question.name = std::move(name);
  question.wire.assign(wire.begin(), wire.end());
  return rcode;
}

class Writer {
 public:
  explicit Writer(std::vector<std::uint8_t>& out) : out_(out) {}
  void number(std::size_t width, std::uint32_t value) {
    while (width > 0) out_.push_back(static_cast<std::uint8_t>(value >> (8 * --width)));
  }
  void piece(Bytes bytes) { out_.insert(out_.end(), bytes.begin(), bytes.end()); }
  void name(std::string_view text) {
    while (!text.empty()) {
      const std::size_t dot = std::min(text.find('.'), text.size());
      number(1, static_cast<std::uint32_t>(dot));
      for (const char c : text.substr(0, dot)) out_.push_back(static_cast<std::uint8_t>(c));
      text.remove_prefix(std::min(dot + 1, text.size()));
    }
    number(1, 0);
  }

 private:
  std::vector<std::uint8_t>& out_;
};

void write_record(Writer& out, const DnsAnswer& answer) {
  out.number(2, 0xc000 | kHeader);  // the name of the question
  std::vector<std::uint8_t> data;
  DnsType type = DnsType::kPtr;
  if (answer.address) {
    type = answer.address->v4 ? DnsType::kA : DnsType::kAaaa;
    data.assign(answer.address->bytes.begin(),
                answer.address->bytes.begin() + (answer.address->v4 ? 4 : 16));
  } else {
    Writer(data).name(answer.pointer);
  }
  out.number(2, static_cast<std::uint16_t>(type));
  out.number(2, kDnsInternet);
  out.number(4, answer.ttl);
  out.number(2, static_cast<std::uint32_t>(data.size()));
  out.piece(data);
}

std::vector<std::uint8_t> write_message(const DnsQuestion& question, const DnsAnswer& answer,
                                        bool truncated) {
  const auto rcode = static_cast<std::uint8_t>(answer.rcode);
  const bool has_record = !truncated && answer.rcode == DnsRcode::kNoError &&
                          (answer.address || !answer.pointer.empty());
  std::vector<std::uint8_t> message;
  Writer out(message);
  out.number(2, question.id);
  out.number(1, kResponse | (question.flags & kRecursionDesired) | (truncated ? kTruncated : 0));
  out.number(1, kRecursionAvailable | (question.flags & kCheckingDisabled) | (rcode & 0x0f));
  out.number(2, question.wire.empty() ? 0 : 1);
  out.number(2, has_record ? 1 : 0);
  out.number(2, 0);
  out.number(2, question.has_edns ? 1 : 0);
  out.piece(question.wire);
  if (has_record) write_record(out, answer);
  if (question.has_edns) {
    out.number(1, 0);
    out.number(2, kOpt);
    out.number(2, kMostUdp);
    out.number(1, rcode >> 4);
    out.number(1, 0);  // the version
    out.number(2, 0);  // flags
    out.number(2, 0);  // no options
  }
  return message;
}

bool take_octet(std::string_view& text, std::uint8_t& out) {
  const std::string_view label = text.substr(0, text.find('.'));
  unsigned value = 0;
  for (const char c : label) {
    if (c < '0' || c > '9') return false;
    value = value * 10 + static_cast<unsigned>(c - '0');
    if (value > 255) return false;
  }
  if (label.empty() || (label.size() > 1 && label[0] == '0')) return false;
  text.remove_prefix(std::min(label.size() + 1, text.size()));
  out = static_cast<std::uint8_t>(value);
  return true;
}

bool take_digit(std::string_view& text, std::uint8_t& out) {
  const std::size_t value =
      text.empty() ? text.npos : std::string_view("0123456789abcdef").find(text[0]);
  if (value == text.npos || (text.size() > 1 && text[1] != '.')) return false;
  text.remove_prefix(std::min<std::size_t>(2, text.size()));
  out = static_cast<std::uint8_t>(value);
  return true;
}

}  // namespace

std::optional<DnsQuestion> parse_dns_question(Bytes message) {
  ByteCursor in(message);
  DnsQuestion question;
  std::uint8_t high = 0;
  std::uint8_t low = 0;
  std::uint16_t questions = 0;
  std::uint16_t answers = 0;
  std::uint16_t authorities = 0;
  std::uint16_t additional = 0;
  if (!in.number(2, question.id) || !in.number(1, high) || !in.number(1, low) ||
      !in.number(2, questions) || !in.number(2, answers) || !in.number(2, authorities) ||
      !in.number(2, additional) || (high & kResponse) != 0) {
    return std::nullopt;
  }
  question.flags =
      static_cast<std::uint8_t>((high & kRecursionDesired) | (low & kCheckingDisabled));
  if ((high & kOpcode) != 0) {
    question.error = DnsRcode::kNotImp;
  } else if ((high & kTruncated) != 0 || questions != 1 || answers != 0 || authorities != 0) {
    question.error = DnsRcode::kFormErr;
  } else {
    question.error = take_question(in, additional, question);
  }
  return question;
}

std::vector<std::uint8_t> build_dns_answer(const DnsQuestion& question, const DnsAnswer& answer,
                                           std::size_t limit) {
  std::vector<std::uint8_t> message = write_message(question, answer, false);
  if (message.size() > limit) message = write_message(question, answer, true);
  return message;
}

std::optional<AddressBlock> parse_reverse_name(std::string_view name) {
  constexpr std::string_view kV4 = ".in-addr.arpa";
  constexpr std::string_view kV6 = ".ip6.arpa";
  AddressBlock out;
  if (name.ends_with(kV4)) {
    name.remove_suffix(kV4.size());
    for (std::size_t i = 4; i > 0; --i) {
      if (!take_octet(name, out.bytes[i - 1])) return std::nullopt;
    }
  } else if (name.ends_with(kV6)) {
    name.remove_suffix(kV6.size());
    out.v4 = false;
    out.prefix = 128;
    for (std::size_t i = 16; i > 0; --i) {
      std::uint8_t low = 0;
      std::uint8_t high = 0;
      if (!take_digit(name, low) || !take_digit(name, high)) return std::nullopt;
      out.bytes[i - 1] = static_cast<std::uint8_t>(high << 4 | low);
    }
  } else {
    return std::nullopt;
  }
  if (!name.empty()) return std::nullopt;
  return out;
}

}  // namespace temenos::wire
