#include "wire/dns_message.h"

#include <gtest/gtest.h>

#include <string>

#include "codec/address.h"

namespace temenos::wire {
namespace {

using namespace std::string_literals;

Bytes bytes(const std::string& text) {
  return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}
std::string text_of(const std::vector<std::uint8_t>& message) {
  return {message.begin(), message.end()};
}

const std::string kHead = "\x12\x34\x01\0\0\1\0\0\0\0\0\0"s;
const std::string kHeadEdns = "\x12\x34\x01\0\0\1\0\0\0\0\0\1"s;
const std::string kName = "\x03wWw\x07" + "Example\0"s;
const std::string kTypeA = "\0\1\0\1"s;
std::string edns(const std::string& size, const std::string& rest = "\0\0\0\0\0\0"s) {
  return "\0\0\x29"s + size + rest;
}

DnsQuestion question(const std::string& message) {
  const auto parsed = parse_dns_question(bytes(message));
  EXPECT_TRUE(parsed);
  return parsed.value_or(DnsQuestion{});
}
DnsRcode error(const std::string& message) { return question(message).error; }

TEST(DnsQuestion, IsRead) {
  const DnsQuestion plain = question(kHead + kName + kTypeA);
  EXPECT_EQ(plain.error, DnsRcode::kNoError);
  EXPECT_EQ(plain.id, 0x1234);
  EXPECT_EQ(plain.name, "www.example");
  EXPECT_TRUE(plain.is_host);
  EXPECT_EQ(plain.type, DnsType::kA);
  EXPECT_EQ(plain.of_class, kDnsInternet);
  EXPECT_FALSE(plain.has_edns);
  EXPECT_EQ(plain.udp_size, 512u);
  EXPECT_EQ(std::string(plain.wire.begin(), plain.wire.end()), kName + kTypeA);
  const DnsQuestion other = question(kHead + "\x05_sip_\0\x01\x02\0\xff"s);
  EXPECT_EQ(other.name, "_sip_");
  EXPECT_EQ(static_cast<int>(other.type), 0x102);
  EXPECT_EQ(other.of_class, 255);
}

TEST(DnsQuestion, MayHaveEdns) {
  const DnsQuestion usual = question(kHeadEdns + kName + kTypeA + edns("\x04\xb0"));
  EXPECT_EQ(usual.error, DnsRcode::kNoError);
  EXPECT_TRUE(usual.has_edns);
  EXPECT_EQ(usual.udp_size, 1200u);
  const auto size = [](const std::string& value) {
    return question(kHeadEdns + kName + kTypeA + edns(value)).udp_size;
  };
  EXPECT_EQ(size("\0\0"s), 512u);
  EXPECT_EQ(size("\xff\xff"), 1232u);
  const std::string cookie = "\0\x0a\0\x02xy"s;
  EXPECT_EQ(error(kHeadEdns + kName + kTypeA + edns("\x04\xb0", "\0\0\x80\0\0\x06"s + cookie)),
            DnsRcode::kNoError);
  const DnsQuestion newer =
      question(kHeadEdns + kName + kTypeA + edns("\x04\xb0", "\0\1\0\0\0\0"s));
  EXPECT_EQ(newer.error, DnsRcode::kBadVers);
  EXPECT_EQ(newer.name, "www.example");
  const auto bad = [](const std::string& record) {
    return error(kHeadEdns + kName + kTypeA + record);
  };
  EXPECT_EQ(bad(""), DnsRcode::kFormErr);
  EXPECT_EQ(bad(edns("\x04\xb0", "\0\0\0\0\0\1"s)), DnsRcode::kFormErr);
  EXPECT_EQ(bad(edns("\x04\xb0", "\0\0\0\0\0\4\0\x0a\0\1"s)), DnsRcode::kFormErr);
  EXPECT_EQ(bad(edns("\x04\xb0") + "x"), DnsRcode::kFormErr);
  EXPECT_EQ(bad("\1a" + edns("\x04\xb0")), DnsRcode::kFormErr);
  EXPECT_EQ(bad("\0\0\1\0\1\0\0\0\0\0\4abcd"s), DnsRcode::kFormErr);  // another record
  EXPECT_EQ(error("\x12\x34\x01\0\0\1\0\0\0\0\0\2"s + kName + kTypeA + edns("\x04\xb0") +
                  edns("\x04\xb0")),
            DnsRcode::kFormErr);
  EXPECT_EQ(error(kHead + kName + kTypeA + edns("\x04\xb0")), DnsRcode::kFormErr);
}

TEST(DnsQuestion, IsNoQuestionAtAll) {
  const std::string whole = kHead + kName + kTypeA;
  for (std::size_t size = 0; size < 12; ++size) {
    EXPECT_FALSE(parse_dns_question(bytes(whole.substr(0, size)))) << size;
  }
  EXPECT_FALSE(parse_dns_question(bytes("\x12\x34\x81\0\0\1\0\0\0\0\0\0"s + kName + kTypeA)));
}

TEST(DnsQuestion, IsRefusedWithItsId) {
  const std::string whole = kHead + kName + kTypeA;
  for (std::size_t size = 12; size < whole.size(); ++size) {
    const DnsQuestion cut = question(whole.substr(0, size));
    EXPECT_EQ(cut.error, DnsRcode::kFormErr) << size;
    EXPECT_EQ(cut.id, 0x1234);
    EXPECT_TRUE(cut.wire.empty());
  }
  const auto header = [](const std::string& flags_and_counts) {
    return error("\x12\x34"s + flags_and_counts + kName + kTypeA);
  };
  EXPECT_EQ(header("\x11\0\0\1\0\0\0\0\0\0"s), DnsRcode::kNotImp);
  EXPECT_EQ(header("\x03\0\0\1\0\0\0\0\0\0"s), DnsRcode::kFormErr);
  EXPECT_EQ(header("\x01\0\0\0\0\0\0\0\0\0"s), DnsRcode::kFormErr);
  EXPECT_EQ(header("\x01\0\0\2\0\0\0\0\0\0"s), DnsRcode::kFormErr);
  EXPECT_EQ(header("\x01\0\0\1\0\1\0\0\0\0"s), DnsRcode::kFormErr);
  EXPECT_EQ(header("\x01\0\0\1\0\0\0\1\0\0"s), DnsRcode::kFormErr);
  EXPECT_EQ(error(whole + "x"), DnsRcode::kFormErr);
}

TEST(DnsQuestion, HasAPlainName) {
  const auto named = [](const std::string& name) { return question(kHead + name + kTypeA); };
  EXPECT_EQ(named("\xc0\x0c").error, DnsRcode::kFormErr);
  EXPECT_EQ(named("\x01"
                  "a\xc0\x0c")
                .error,
            DnsRcode::kFormErr);
  EXPECT_EQ(named("\x40" + std::string(64, 'a') + "\0"s).error, DnsRcode::kFormErr);
  EXPECT_EQ(named("\x3f" + std::string(63, 'a') + "\0"s).error, DnsRcode::kNoError);
  for (const char c : {'.', ' ', '\0', '*', '/', '@', '\\', '\x7f', '\xc3'}) {
    EXPECT_EQ(named("\x02"
                    "a"s +
                    c + "\0"s)
                  .error,
              DnsRcode::kFormErr)
        << c;
  }
  std::string longest;
  for (int i = 0; i < 126; ++i) longest += "\1a";
  EXPECT_EQ(named(longest + "\1a\0"s).error, DnsRcode::kNoError);
  EXPECT_EQ(named(longest + "\1a\0"s).name.size(), 253u);
  EXPECT_EQ(named(longest + "\2aa\0"s).error, DnsRcode::kFormErr);
  // Good DNS, and no host's name.
  EXPECT_EQ(named("\0"s).name, "");
  EXPECT_FALSE(named("\0"s).is_host);
  EXPECT_FALSE(named("\2-a\0"s).is_host);
  EXPECT_FALSE(named("\1"
                     "1\1"
                     "2\0"s)
                   .is_host);
}

TEST(DnsAnswer, IsWritten) {
  const DnsQuestion asked = question(kHead + kName + kTypeA);
  const auto say = [&](const DnsAnswer& answer) {
    return text_of(build_dns_answer(asked, answer, asked.udp_size));
  };
  const std::string tail = kName + kTypeA;
  EXPECT_EQ(
      say({.ttl = 60, .address = parse_address("198.18.1.2")}),
      "\x12\x34\x81\x80\0\1\0\1\0\0\0\0"s + tail + "\xc0\x0c\0\1\0\1\0\0\0\x3c\0\4\xc6\x12\1\2"s);
  EXPECT_EQ(say({.ttl = 1, .pointer = "b.cd"}), "\x12\x34\x81\x80\0\1\0\1\0\0\0\0"s + tail +
                                                    "\xc0\x0c\0\x0c\0\1\0\0\0\1\0\6\1b\2cd\0"s);
  EXPECT_EQ(say({}), "\x12\x34\x81\x80\0\1\0\0\0\0\0\0"s + tail);
  EXPECT_EQ(say({.rcode = DnsRcode::kNxDomain}), "\x12\x34\x81\x83\0\1\0\0\0\0\0\0"s + tail);
  EXPECT_EQ(say({.rcode = DnsRcode::kRefused}), "\x12\x34\x81\x85\0\1\0\0\0\0\0\0"s + tail);
  // No record beside an error.
  EXPECT_EQ(say({.rcode = DnsRcode::kServFail, .address = parse_address("198.18.1.2")}),
            "\x12\x34\x81\x82\0\1\0\0\0\0\0\0"s + tail);
}

TEST(DnsAnswer, RepeatsWhatItMust) {
  const DnsQuestion asked =
      question("\0\1\x00\x10\0\1\0\0\0\0\0\1"s + kName + kTypeA + edns("\x10\0"s, "\0\1\0\0\0\0"s));
  EXPECT_EQ(text_of(build_dns_answer(asked, {.rcode = asked.error}, asked.udp_size)),
            "\0\1\x80\x90\0\1\0\0\0\0\0\1"s + kName + kTypeA + "\0\0\x29\x04\xd0\1\0\0\0\0\0"s);
  const DnsQuestion bad = question(kHead);
  EXPECT_EQ(text_of(build_dns_answer(bad, {.rcode = bad.error}, bad.udp_size)),
            "\x12\x34\x81\x81\0\0\0\0\0\0\0\0"s);
}

TEST(DnsAnswer, IsNotLargerThanTheClientTakes) {
  const DnsQuestion asked = question(kHead + kName + kTypeA);
  const DnsAnswer answer{.ttl = 60, .address = parse_address("2001:db8::1")};
  const std::size_t size = build_dns_answer(asked, answer, kMaxDnsMessage).size();
  EXPECT_EQ(build_dns_answer(asked, answer, size).size(), size);
  EXPECT_EQ(text_of(build_dns_answer(asked, answer, size - 1)),
            "\x12\x34\x83\x80\0\1\0\0\0\0\0\0"s + kName + kTypeA);
  // With the longest names, without EDNS, all that can be said fits.
  std::string longest;
  for (int i = 0; i < 127; ++i) longest += "\1a";
  const DnsQuestion large = question(kHead + longest + "\0\0\x0c\0\1"s);
  EXPECT_LE(build_dns_answer(large, {.address = parse_address("::1")}, 512).size(), 512u);
}

TEST(DnsReverse, IsAnAddress) {
  const auto reverse = [](std::string_view name) {
    const auto block = parse_reverse_name(name);
    return block ? format_block(*block) : "none";
  };
  EXPECT_EQ(reverse("2.1.18.198.in-addr.arpa"), "198.18.1.2");
  EXPECT_EQ(reverse("0.0.0.0.in-addr.arpa"), "0.0.0.0");
  EXPECT_EQ(reverse("1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.3.7.f.6.e.6.5.6.d.6.5.6.4.7.d.f.ip6.arpa"),
            "fd74:656d:656e:6f73::1");
  for (const std::string_view name :
       {"in-addr.arpa", ".in-addr.arpa", "1.18.198.in-addr.arpa", "1.2.3.4.5.in-addr.arpa",
        "256.1.18.198.in-addr.arpa", "01.1.18.198.in-addr.arpa", "1..18.198.in-addr.arpa",
        "a.1.18.198.in-addr.arpa", "2.1.18.198.in-addr.arpa.x", "2.1.18.198", "",
        "4294967298.1.18.198.in-addr.arpa", "ip6.arpa", "1.0.ip6.arpa",
        "1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.3.7.f.6.e.6.5.6.d.6.5.6.4.7.d.g.ip6.arpa",
        "1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.3.7.f.6.e.6.5.6.d.6.5.6.4.7.d.f.0.ip6.arpa",
        "10.0.0.0.0.0.0.0.0.0.0.0.0.0.0.3.7.f.6.e.6.5.6.d.6.5.6.4.7.d.f.ip6.arpa"}) {
    EXPECT_EQ(reverse(name), "none") << name;
  }
}

}  // namespace
}  // namespace temenos::wire
