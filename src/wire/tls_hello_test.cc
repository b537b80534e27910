#include "wire/tls_hello.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace temenos::wire {
namespace {

using Status = TlsHelloReader::Status;
using namespace std::string_literals;

std::string number(std::size_t value, int width) {
  std::string out;
  for (int i = width - 1; i >= 0; --i) out += static_cast<char>(value >> (8 * i) & 0xff);
  return out;
}
std::string sized(const std::string& bytes, int width) {
  return number(bytes.size(), width) + bytes;
}
std::string extension(int type, const std::string& data) {
  return number(type, 2) + sized(data, 2);
}
std::string sni(const std::string& name) { return extension(0, sized("\0"s + sized(name, 2), 2)); }
const std::string kBeforeExtensions = "\x03\x03"s + std::string(32, 'r') + sized("session", 1) +
                                      sized("\x13\x01\x13\x02", 2) + sized("\0"s, 1);
std::string message(const std::string& body) { return "\x01"s + sized(body, 3); }
std::string hello(const std::string& extensions) {
  return message(kBeforeExtensions + sized(extensions, 2));
}
std::string record(const std::string& payload, char minor = 1) {
  return "\x16\x03"s + minor + sized(payload, 2);
}
// In records of `most` bytes.
std::string records(const std::string& text, std::size_t most) {
  std::string out;
  for (std::size_t at = 0; at < text.size(); at += most) out += record(text.substr(at, most));
  return out;
}

Bytes bytes(const std::string& text) {
  return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}

// What is read of `wire`, all at once; and the same must come out byte by byte.
std::string read(const std::string& wire) {
  const auto say = [](const TlsHelloReader& reader, Status status) -> std::string {
    switch (status) {
      case Status::kNeedMore:
        return "more";
      case Status::kHello:
        return (reader.hello().server_name ? reader.hello().server_name->text : "none") +
               (reader.hello().has_ech ? " ech " : " ") + std::to_string(reader.hello().size);
      case Status::kNotTls:
        return "not TLS: " + std::string(reader.reason());
      case Status::kMalformed:
        return std::string(reader.reason());
    }
    return "";
  };
  TlsHelloReader at_once;
  const std::string result = say(at_once, at_once.feed(bytes(wire)));
  TlsHelloReader slow;
  Status status = Status::kNeedMore;
  // In tenths as well, since a long one is compared for every byte otherwise.
  const std::size_t step = wire.size() > 2000 ? wire.size() / 10 : 1;
  for (std::size_t n = 0; status == Status::kNeedMore && n <= wire.size(); n += step) {
    status = slow.feed(bytes(wire).first(n));
  }
  if (status == Status::kNeedMore) status = slow.feed(bytes(wire));
  EXPECT_EQ(say(slow, status), result);
  return result;
}

std::string good(const std::string& name, const std::string& wire) {
  return name + " " + std::to_string(wire.size());
}

TEST(TlsHello, HasItsServerName) {
  const std::string plain = record(hello(extension(10, "ab") + sni("GitHub.com")));
  EXPECT_EQ(read(plain), good("github.com", plain));
  EXPECT_EQ(read(plain + "more bytes"), good("github.com", plain));
  const std::string literal = record(hello(sni("192.0.2.1")));
  EXPECT_EQ(read(literal), good("192.0.2.1", literal));
  const std::string none = record(hello(extension(10, "ab")));
  EXPECT_EQ(read(none), good("none", none));
  const std::string empty = record(hello(""));
  EXPECT_EQ(read(empty), good("none", empty));
  const std::string old = record(message(kBeforeExtensions), 0);
  EXPECT_EQ(read(old), good("none", old));
  const std::string longest =
      record(hello(sni(std::string(63, 'a') + "." + std::string(63, 'b') + "." +
                       std::string(63, 'c') + "." + std::string(61, 'd'))));
  EXPECT_EQ(read(longest).substr(0, 4), "aaaa");
}

TEST(TlsHello, TellsOfAnEncryptedOne) {
  const std::string wire = record(hello(sni("public.example") + extension(0xfe0d, "x")));
  EXPECT_EQ(read(wire), good("public.example ech", wire));
}

TEST(TlsHello, InAnyNumberOfRecords) {
  const std::string text = hello(extension(21, std::string(3000, 'p')) + sni("a.example"));
  for (const std::size_t most : {1, 2, 3, 4, 5, 100, 2999, 3100}) {
    const std::string wire = records(text, most);
    EXPECT_EQ(read(wire), good("a.example", wire)) << most;
    EXPECT_EQ(read(wire.substr(0, wire.size() - 1)), "more") << most;
  }
  const std::string small = hello(sni("a.example"));
  for (std::size_t first = 1; first < small.size(); ++first) {
    const std::string wire = record(small.substr(0, first)) + record(small.substr(first), 3);
    EXPECT_EQ(read(wire), good("a.example", wire)) << first;
  }
}

TEST(TlsHello, UpTo64KB) {
  const std::string small = hello(extension(21, "") + sni("a.example"));
  // Four records carry it.
  const std::size_t most = kMaxTlsHello - 4 * 5 - small.size();
  const std::string wire =
      records(hello(extension(21, std::string(most, 'p')) + sni("a.example")), 16384);
  ASSERT_EQ(wire.size(), kMaxTlsHello);
  EXPECT_EQ(read(wire), good("a.example", wire));
  const std::string too_large =
      records(hello(extension(21, std::string(most + 1, 'p')) + sni("a.example")), 16384);
  EXPECT_EQ(read(too_large), "a hello of more than 64 KB");
  EXPECT_EQ(read(record("\x01\x01\x00\x00"s)), "a hello of more than 64 KB");  // at its first word
  EXPECT_EQ(read(record("\x01\xff\xff\xff"s)), "a hello of more than 64 KB");
  // Its size is small enough, and its records are too many.
  EXPECT_EQ(read(records(hello(extension(21, std::string(20'000, 'p'))), 1)),
            "a hello of more than 64 KB");
}

TEST(TlsHello, IsNotAnotherProtocol) {
  for (const std::string& wire :
       {"\x15\x03\x01\x00\x02\x01\x00"s, "\x17\x03\x03\x00\x01x"s, "\x14\x03\x03\x00\x01\x01"s,
        "\x16\x02"s, "\x16\x04"s, "\x16GET"s, "GET / HTTP/1.1\r\n"s, "SSH-2.0-x\r\n"s, "\0"s,
        "\x80\x2e\x02"s, "\x80\x2e\x01\x04"s}) {
    EXPECT_EQ(read(wire), "not TLS: no TLS handshake") << wire;
  }
  EXPECT_EQ(read("\x80\x2e\x01\x00\x02"s), "a hello of SSL 2");
  EXPECT_EQ(read("\x80\x2e\x01\x03\x01"s), "a hello of SSL 2");
  EXPECT_EQ(read("\x80\x2e\x01"s), "more");
  EXPECT_EQ(tls_start({}), Start::kMaybe);
  EXPECT_EQ(tls_start(bytes("\x16")), Start::kMaybe);
  EXPECT_EQ(tls_start(bytes("\x16\x03")), Start::kYes);
  EXPECT_EQ(tls_start(bytes("\x16\x02")), Start::kNo);
  EXPECT_EQ(tls_start(bytes("\x80\x2e\x01\x00\x02"s)), Start::kNo);
  EXPECT_EQ(tls_start(bytes("G")), Start::kNo);
}

TEST(TlsHello, RecordsAreJudgedAtOnce) {
  const std::string text = hello(sni("a.example"));
  EXPECT_EQ(read("\x16\x03\x05"), "a record of no known version");
  EXPECT_EQ(read(record("")), "an empty record");
  EXPECT_EQ(read(record(text.substr(0, 9)) + record("")), "an empty record");
  EXPECT_EQ(read("\x16\x03\x01\x40\x01"s), "a record of more than 16 KB");
  EXPECT_EQ(read(record("\x02")), "a handshake that does not begin with a hello");
  EXPECT_EQ(read(record(text.substr(0, 9)) + "\x15"), "another record within the hello");
  EXPECT_EQ(read(record(text.substr(0, 9)) + "\x16\x02"), "a record of no known version");
  EXPECT_EQ(read(record(text + "\x01")), "bytes behind the hello in its last record");
  EXPECT_EQ(read(record(text.substr(0, 9)) + record(text.substr(9) + text)),
            "bytes behind the hello in its last record");
}

TEST(TlsHello, NothingInItIsAmbiguous) {
  const auto ext = [](const std::string& extensions) { return read(record(hello(extensions))); };
  EXPECT_EQ(ext(sni("a.example") + sni("b.example")), "the same extension twice");
  EXPECT_EQ(ext(sni("a.example") + sni("a.example")), "the same extension twice");
  EXPECT_EQ(ext(extension(77, "") + extension(77, "")), "the same extension twice");
  const std::string a = "\0"s + sized("a.example", 2);
  const std::string b = "\0"s + sized("b.example", 2);
  EXPECT_EQ(ext(extension(0, sized(a + b, 2))), "more than one server name");
  EXPECT_EQ(ext(extension(0, sized(a + "\0"s, 2))), "more than one server name");
  const std::string_view no_name = "no server name in the extension for it";
  EXPECT_EQ(ext(extension(0, sized("\1"s + sized("a.example", 2), 2))), no_name);
  EXPECT_EQ(ext(extension(0, sized("", 2))), no_name);
  EXPECT_EQ(ext(extension(0, sized("\0\0\x09"
                                   "a.exam"s,
                                   2))),
            no_name);
  const std::string_view names = "the size of the server names is not that of their extension";
  EXPECT_EQ(ext(extension(0, "")), names);
  EXPECT_EQ(ext(extension(0, sized(a, 2) + "x")), names);
  EXPECT_EQ(ext(extension(0, number(a.size() + 1, 2) + a)), names);
  EXPECT_EQ(ext("\0\0\0"s), "an extension that is longer than their list");
  EXPECT_EQ(ext("\0\x0a\0\x02x"s), "an extension that is longer than their list");
  for (const std::string& name :
       {"a.example."s, ""s, "."s, "a.example\0"s, "a.example\0.b"s,
        "b\xc3\xbc"
        "cher.example"s,
        "a b"s, "1.2.3"s, "*.example"s, "[::1]"s, "a.example:443"s, std::string(254, 'a')}) {
    EXPECT_EQ(ext(sni(name)), "a server name that is not in its canonical form") << name;
  }
}

TEST(TlsHello, EveryFieldHasItsSize) {
  const auto body = [](const std::string& text) { return read(record(message(text))); };
  const std::string fields = kBeforeExtensions;
  for (std::size_t size = 0; size < fields.size(); ++size) {
    EXPECT_EQ(body(fields.substr(0, size)), "a hello that ends in the middle of a field") << size;
  }
  const std::string_view extensions = "the size of the extensions is not that of the rest";
  EXPECT_EQ(body(fields + "\0"s), extensions);
  EXPECT_EQ(body(fields + sized(sni("a.example"), 2) + "x"), extensions);
  EXPECT_EQ(body(fields + "\0\1"s), extensions);
  const std::string head = "\x03\x03"s + std::string(32, 'r');
  EXPECT_EQ(body("\x02\x03"s + fields.substr(2)), "a hello of no known version");
  EXPECT_EQ(body(head + sized(std::string(33, 's'), 1) + sized("ab", 2) + sized("\0"s, 1)),
            "a session id of more than 32 bytes");
  EXPECT_EQ(body(head + sized("", 1) + sized("", 2) + sized("\0"s, 1)),
            "a bad list of cipher suites");
  EXPECT_EQ(body(head + sized("", 1) + sized("abc", 2) + sized("\0"s, 1)),
            "a bad list of cipher suites");
  EXPECT_EQ(body(head + sized("", 1) + sized("ab", 2) + sized("", 1)),
            "no compression method, not even none");
}

const std::string kChangeCipher = "\x14\x03\x03\0\1\1"s;
const std::string kAgain =
    "\xCF\x21\xAD\x74\xE5\x9A\x61\x11\xBE\x1D\x8C\x02\x1E\x65\xB8\x91"
    "\xC2\xA2\x11\x16\x7A\xBB\x8C\x5E\x07\x9E\x09\xE2\xC8\xA8\x33\x9C"s;
std::string server_hello(const std::string& random) {
  return record("\x02"s + sized("\x03\x03"s + random + std::string(40, '\0'), 3), 3);
}

TEST(TlsAnswer, AsksForAnotherHelloOrDoesNot) {
  const std::string again = server_hello(kAgain);
  const std::string hello = server_hello(std::string(32, 'q'));
  const std::string alert = "\x15\x03\x03\0\2\1\x70"s;
  for (const std::string& before : {""s, alert, alert + kChangeCipher}) {
    const std::string yes = before + again;
    for (std::size_t size = 0; size < yes.size(); ++size) {
      EXPECT_EQ(tls_asks_again(bytes(yes.substr(0, size))),
                size < before.size() + 43 ? Start::kMaybe : Start::kYes)
          << size;
    }
    EXPECT_EQ(tls_asks_again(bytes(before + hello)), Start::kNo);
    EXPECT_EQ(tls_asks_again(bytes(before + hello.substr(0, 12))), Start::kNo);
  }
  EXPECT_EQ(tls_asks_again(bytes("HTTP/1.1 400")), Start::kNo);
  EXPECT_EQ(tls_asks_again(bytes("\x17")), Start::kNo);
  EXPECT_EQ(tls_asks_again(bytes(record("\x01\0\0\x50"s))), Start::kNo);
  // What no server sends, and what could hide one: a hello cut up, and alerts without end.
  EXPECT_EQ(tls_asks_again(bytes(records(again.substr(5), 20))), Start::kYes);
  std::string alerts;
  while (alerts.size() <= 1'024) alerts += alert;
  EXPECT_EQ(tls_asks_again(bytes(alerts)), Start::kYes);
}

TEST(TlsAnswer, WhatStandsBetweenTwoHellos) {
  const std::string early = "\x17\x03\x03"s + sized(std::string(16'640, 'e'), 2);
  const auto expect = [](const std::string& text, Progress progress, std::size_t size) {
    const TlsBetween between = tls_between_hellos(bytes(text));
    EXPECT_EQ(between.progress, progress);
    EXPECT_EQ(between.size, size);
  };
  expect(kChangeCipher + early + "\x16"s, Progress::kGood, kChangeCipher.size() + early.size());
  expect(kChangeCipher + early.substr(0, 9'000), Progress::kNeedMore, kChangeCipher.size());
  for (std::size_t size = 1; size < kChangeCipher.size(); ++size) {
    expect(kChangeCipher.substr(0, size), Progress::kNeedMore, 0);
  }
  expect("", Progress::kGood, 0);
  expect(record("x") + kChangeCipher, Progress::kGood, 0);
  expect("\x17\x03\x03"s + number(16'641, 2), Progress::kMalformed, 0);
}

}  // namespace
}  // namespace temenos::wire
