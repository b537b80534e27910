#include "wire/tls_hello.h"

#include <algorithm>
#include <bitset>
#include <vector>

namespace temenos::wire {
namespace {

using Status = TlsHelloReader::Status;

constexpr std::uint8_t kChangeCipher = 20;
constexpr std::uint8_t kAlert = 21;
constexpr std::uint8_t kHandshake = 22;
constexpr std::uint8_t kApplicationData = 23;
constexpr std::uint8_t kClientHello = 1;
constexpr std::uint8_t kServerHello = 2;
constexpr std::size_t kMaxBeforeAnswer = 1'024;
constexpr std::uint8_t kMajor = 3;
constexpr std::uint8_t kMaxMinor = 4;
constexpr std::size_t kRecordHeader = 5;
constexpr std::size_t kMaxRecord = 1 << 14;  // RFC 8446: TLSPlaintext.length
constexpr std::size_t kMaxSessionId = 32;
constexpr std::uint16_t kServerName = 0;
constexpr std::uint8_t kHostNameType = 0;

// RFC 9849, its drafts, and the ESNI before them.
bool is_ech(std::uint16_t type) { return (type >= 0xfe08 && type <= 0xfe0d) || type == 0xffce; }

std::size_t record_length(Bytes record) {
  return static_cast<std::size_t>(record[3]) << 8 | record[4];
}

// What `count` whole records carry, in one piece.
std::vector<std::uint8_t> join(Bytes wire, std::size_t count) {
  std::vector<std::uint8_t> out;
  out.reserve(wire.size());
  for (; count > 0; --count) {
    const Bytes payload = wire.subspan(kRecordHeader, record_length(wire));
    out.insert(out.end(), payload.begin(), payload.end());
    wire = wire.subspan(kRecordHeader + payload.size());
  }
  return out;
}

// A hello of SSL 2 (RFC 6101, appendix E): two bytes of length with the highest bit set, the type
// of a hello, the version.
Start sslv2_start(Bytes bytes) {
  if (!bytes.empty() && (bytes[0] & 0x80) == 0) return Start::kNo;
  if (bytes.size() > 2 && bytes[2] != kClientHello) return Start::kNo;
  if (bytes.size() > 3 && bytes[3] != 0 && bytes[3] != kMajor) return Start::kNo;
  return bytes.size() > 3 ? Start::kYes : Start::kMaybe;
}

}  // namespace

Start tls_start(Bytes so_far) {
  if (so_far.empty()) return Start::kMaybe;
  if (so_far[0] != kHandshake) return Start::kNo;
  if (so_far.size() < 2) return Start::kMaybe;
  return so_far[1] == kMajor ? Start::kYes : Start::kNo;
}

Start tls_asks_again(Bytes so_far) {
  // RFC 8446, section 4.1.3: the random of a server's hello that is none.
  constexpr std::uint8_t kAgain[] = {0xCF, 0x21, 0xAD, 0x74, 0xE5, 0x9A, 0x61, 0x11,
                                     0xBE, 0x1D, 0x8C, 0x02, 0x1E, 0x65, 0xB8, 0x91,
                                     0xC2, 0xA2, 0x11, 0x16, 0x7A, 0xBB, 0x8C, 0x5E,
                                     0x07, 0x9E, 0x09, 0xE2, 0xC8, 0xA8, 0x33, 0x9C};
  constexpr std::size_t kRandom = kRecordHeader + 4 + 2;  // behind type, size and version
  // More alerts than this before a hello are no server's.
  if (so_far.size() > kMaxBeforeAnswer) return Start::kYes;
  Bytes rest = so_far;
  while (!rest.empty() && (rest[0] == kAlert || rest[0] == kChangeCipher)) {
    if (rest.size() < kRecordHeader) return Start::kMaybe;
    const std::size_t size = kRecordHeader + record_length(rest);
    if (rest.size() < size) return Start::kMaybe;
    rest = rest.subspan(size);
  }
  if (!rest.empty() && rest[0] != kHandshake) return Start::kNo;
  if (rest.size() > kRecordHeader) {
    if (rest[kRecordHeader] != kServerHello) return Start::kNo;
    // In pieces that no server makes.
    if (record_length(rest) < kRandom + sizeof kAgain - kRecordHeader) return Start::kYes;
  }
  for (std::size_t i = 0; i < sizeof kAgain; ++i) {
    if (kRandom + i >= rest.size()) return Start::kMaybe;
    if (rest[kRandom + i] != kAgain[i]) return Start::kNo;
  }
  return Start::kYes;
}

TlsBetween tls_between_hellos(Bytes so_far) {
  constexpr std::size_t kMaxCipher = kMaxRecord + 256;  // RFC 8446: TLSCiphertext.length
  for (TlsBetween out;;) {
    const Bytes rest = so_far.subspan(out.size);
    if (rest.empty()) return out;
    if (rest[0] != kChangeCipher && rest[0] != kAlert && rest[0] != kApplicationData) return out;
    out.progress = Progress::kNeedMore;
    if (rest.size() < kRecordHeader) return out;
    const std::size_t length = record_length(rest);
    if (length > kMaxCipher) out.progress = Progress::kMalformed;
    if (length > kMaxCipher || rest.size() < kRecordHeader + length) return out;
    out = {.progress = Progress::kGood, .size = out.size + kRecordHeader + length};
  }
}

Status TlsHelloReader::bad(std::string_view why) {
  reason_ = why;
  return status_ = Status::kMalformed;
}

bool TlsHelloReader::refuse(std::string_view why) {
  reason_ = why;
  return false;
}

Status TlsHelloReader::not_tls(Bytes so_far) {
  switch (sslv2_start(so_far)) {
    case Start::kYes:
      return bad("a hello of SSL 2");
    case Start::kMaybe:
      return Status::kNeedMore;
    case Start::kNo:
      break;
  }
  reason_ = "no TLS handshake";
  return status_ = Status::kNotTls;
}

Status TlsHelloReader::feed(Bytes so_far) {
  if (status_ != Status::kNeedMore) return status_;
  if (tls_start(so_far) == Start::kNo) return not_tls(so_far);
  while (true) {
    const std::size_t before = at_;
    const Status status = record(so_far);
    if (status != Status::kNeedMore || at_ == before) return status;
  }
}

// Takes one record, if it is whole.
Status TlsHelloReader::record(Bytes so_far) {
  const Bytes rest = so_far.subspan(at_);
  // Each of these bytes is judged as soon as it is there.
  if (!rest.empty() && rest[0] != kHandshake) return bad("another record within the hello");
  if (rest.size() > 1 && rest[1] != kMajor) return bad("a record of no known version");
  if (rest.size() > 2 && rest[2] > kMaxMinor) return bad("a record of no known version");
  if (rest.size() < kRecordHeader) {
    if (at_ + kRecordHeader >= kMaxTlsHello) return bad("a hello of more than 64 KB");
    return Status::kNeedMore;
  }
  const std::size_t length = record_length(rest);
  // RFC 5246 and RFC 8446 forbid to send these, and no client does.
  if (length == 0) return bad("an empty record");
  if (length > kMaxRecord) return bad("a record of more than 16 KB");
  if (at_ + kRecordHeader + length > kMaxTlsHello) return bad("a hello of more than 64 KB");
  if (at_ == 0 && rest.size() > kRecordHeader && rest[kRecordHeader] != kClientHello) {
    return bad("a handshake that does not begin with a hello");
  }
  if (rest.size() < kRecordHeader + length) return Status::kNeedMore;

  const Bytes payload = rest.subspan(kRecordHeader, length);
  for (std::size_t i = 0; i < length && handshake_ + i < sizeof header_; ++i) {
    header_[handshake_ + i] = payload[i];
  }
  handshake_ += length;
  at_ += kRecordHeader + length;
  ++records_;
  if (handshake_ < sizeof header_) return Status::kNeedMore;
  const std::size_t size = static_cast<std::size_t>(header_[1]) << 16 |
                           static_cast<std::size_t>(header_[2]) << 8 | header_[3];
  const std::size_t whole = sizeof header_ + size;
  if (whole > kMaxTlsHello) return bad("a hello of more than 64 KB");
  if (handshake_ > whole) return bad("bytes behind the hello in its last record");
  if (handshake_ < whole) return Status::kNeedMore;

  const std::vector<std::uint8_t> joined =
      records_ == 1 ? std::vector<std::uint8_t>() : join(so_far, records_);
  const Bytes all = records_ == 1 ? payload : Bytes(joined);
  if (!message(all.subspan(sizeof header_))) return status_ = Status::kMalformed;
  hello_.size = at_;
  return status_ = Status::kHello;
}

bool TlsHelloReader::message(Bytes body) {
  ByteCursor in(body);
  Bytes version, random, session, suites, compression, list;
  if (!in.piece(2, version) || !in.piece(32, random) || !in.sized(1, session) ||
      !in.sized(2, suites) || !in.sized(1, compression)) {
    return refuse("a hello that ends in the middle of a field");
  }
  if (version[0] != kMajor) return refuse("a hello of no known version");
  if (session.size() > kMaxSessionId) return refuse("a session id of more than 32 bytes");
  if (suites.empty() || suites.size() % 2 != 0) return refuse("a bad list of cipher suites");
  if (compression.empty()) return refuse("no compression method, not even none");
  if (in.empty()) return true;  // TLS 1.2 and before can do without extensions
  if (!in.sized(2, list) || !in.empty()) {
    return refuse("the size of the extensions is not that of the rest");
  }
  return extensions(list);
}

bool TlsHelloReader::extensions(Bytes list) {
  std::bitset<65536> seen;
  for (ByteCursor in(list); !in.empty();) {
    std::uint16_t type = 0;
    Bytes data;
    if (!in.number(2, type) || !in.sized(2, data)) {
      return refuse("an extension that is longer than their list");
    }
#ifndef TEMENOS_PLANT_TLS_HELLO
    if (seen[type]) return refuse("the same extension twice");
#endif
    seen[type] = true;
    if (is_ech(type)) hello_.has_ech = true;
    if (type == kServerName && !server_name(data)) return false;
  }
  return true;
}

bool TlsHelloReader::server_name(Bytes data) {
  ByteCursor in(data);
  Bytes list;
  if (!in.sized(2, list) || !in.empty()) {
    return refuse("the size of the server names is not that of their extension");
  }
  ByteCursor names(list);
  std::uint8_t type = 0;
  Bytes name;
  if (!names.number(1, type) || !names.sized(2, name) || type != kHostNameType) {
    return refuse("no server name in the extension for it");
  }
  if (!names.empty()) return refuse("more than one server name");
  auto host = parse_host({reinterpret_cast<const char*>(name.data()), name.size()});
  if (!host) return refuse("a server name that is not in its canonical form");
  hello_.server_name = *std::move(host);
  return true;
}

}  // namespace temenos::wire
