#include "front/dns_names.h"

#include <gtest/gtest.h>

#include <cstring>

#include "codec/address.h"
#include "egress/plan.h"

namespace temenos::front {
namespace {

using namespace egress;
using wire::DnsAnswer;
using wire::DnsQuestion;
using wire::DnsRcode;
using wire::DnsType;

DnsQuestion question(std::string name, DnsType type = DnsType::kA) {
  DnsQuestion out;
  out.name = std::move(name);
  out.is_host = true;
  out.type = type;
  out.of_class = wire::kDnsInternet;
  return out;
}
Reply resolved(std::uint32_t number, bool allowed) {
  Reply out;
  out.verdict = Verdict::kResolved;
  out.number = number;
  out.allowed = allowed ? 1 : 0;
  return out;
}
std::string text(const DnsAnswer& answer) {
  return answer.address ? format_block(*answer.address) : "none";
}

TEST(DnsNames, ANameIsAskedOfDialerAndThenKnownInBothFamilies) {
  DnsNames names;
  Request request;
  EXPECT_FALSE(names.answer(question("a.test"), request, 0));
  EXPECT_EQ(request.ask, Ask::kResolve);
  EXPECT_EQ(std::string_view(request.name), "a.test");
  const DnsAnswer answer = names.learn(question("a.test"), resolved(300, true), 0);
  EXPECT_EQ(text(answer), "198.18.2.44");
  EXPECT_EQ(answer.ttl, 60u);
  EXPECT_EQ(text(*names.answer(question("a.test", DnsType::kAaaa), request, 1)),
            "fd74:656d:656e:6f73:0:1:0:12c");
  EXPECT_FALSE(names.answer(question("a.test"), request, DnsNames::kKeepAllowed));
  (void)names.learn(question("a.test"), resolved(300, true), DnsNames::kKeepAllowed);
  names.forget();
  EXPECT_FALSE(names.answer(question("a.test"), request, DnsNames::kKeepAllowed));
}

TEST(DnsNames, ARefusedNameIsForgottenSoonAndItsAddressIsOfThePool) {
  DnsNames names;
  Request request;
  const DnsAnswer answer = names.learn(question("b.test"), resolved(kFirstRefused, false), 0);
  EXPECT_EQ(text(answer), "198.19.1.0");
  EXPECT_EQ(answer.ttl, 1u);
  EXPECT_TRUE(names.answer(question("b.test"), request, 999));
  EXPECT_FALSE(names.answer(question("b.test"), request, 1'000));
}

TEST(DnsNames, WhatDialerCannotHaveSaidIsAFailure) {
  DnsNames names;
  EXPECT_EQ(names.learn(question("a.test"), resolved(kFirstRefused + kMaxRefused, true), 0).rcode,
            DnsRcode::kServFail);
  EXPECT_EQ(names.learn(question("a.test"), Reply(), 0).rcode, DnsRcode::kServFail);
}

TEST(DnsNames, EverythingElseIsAnsweredHere) {
  DnsNames names;
  Request request;
  auto rcode = [&](const DnsQuestion& asked) { return names.answer(asked, request, 0)->rcode; };
  EXPECT_EQ(text(*names.answer(question("localhost"), request, 0)), "127.0.0.1");
  EXPECT_EQ(text(*names.answer(question("x.localhost", DnsType::kAaaa), request, 0)), "::1");
  const auto mx = names.answer(question("a.test", static_cast<DnsType>(15)), request, 0);
  EXPECT_EQ(mx->rcode, DnsRcode::kNoError);
  EXPECT_FALSE(mx->address);
  EXPECT_EQ(rcode(question("a.test", DnsType::kAny)), DnsRcode::kRefused);
  EXPECT_EQ(rcode(question("a.test", DnsType::kAxfr)), DnsRcode::kRefused);
  EXPECT_EQ(rcode(question("a.test", static_cast<DnsType>(251))), DnsRcode::kRefused);
  DnsQuestion chaos = question("version.bind");
  chaos.of_class = 3;
  EXPECT_EQ(rcode(chaos), DnsRcode::kRefused);
  DnsQuestion odd = question("_x_");
  odd.is_host = false;
  EXPECT_EQ(rcode(odd), DnsRcode::kNxDomain);
  DnsQuestion bad = question("a.test");
  bad.error = DnsRcode::kFormErr;
  EXPECT_EQ(rcode(bad), DnsRcode::kFormErr);
}

TEST(DnsNames, AddressesHaveTheNamesThatDialerSays) {
  DnsNames names;
  Request request;
  const DnsQuestion asked = question("44.2.18.198.in-addr.arpa", DnsType::kPtr);
  EXPECT_FALSE(names.answer(asked, request, 0));
  EXPECT_EQ(request.ask, Ask::kReverse);
  EXPECT_EQ(request.family, Family::kV4);
  EXPECT_EQ(request.address[3], 44);
  Reply reply;
  reply.verdict = Verdict::kNamed;
  reply.name_size = 6;
  std::memcpy(reply.name, "a.test", 6);
  EXPECT_EQ(names.learn(asked, reply, 0).pointer, "a.test");
  EXPECT_EQ(names.learn(asked, Reply(), 0).rcode, DnsRcode::kNxDomain);
  EXPECT_EQ(names.answer(question("1.0.0.127.in-addr.arpa", DnsType::kPtr), request, 0)->pointer,
            "localhost");
}

TEST(DnsNames, AFloodIsAnsweredHereAndCostsDialerABoundedRate) {
  DnsNames names;
  Request request;
  int asked = 0;
  for (int i = 0; i < 200'000; ++i) {
    const auto now = i / 20;  // 10 s in all
    const auto answer = names.answer(question("n" + std::to_string(i) + ".test"), request, now);
    if (!answer) {
      ++asked;
      (void)names.learn(question("n" + std::to_string(i) + ".test"), resolved(1, false), now);
    } else {
      ASSERT_EQ(answer->rcode, DnsRcode::kServFail);
    }
  }
  EXPECT_LE(asked, 1'000 + 10 * 500);
  EXPECT_GE(asked, 5'000);
}

}  // namespace
}  // namespace temenos::front
