#include "box/network_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace temenos::box {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr char kBefore[] = "2026-11-30T12:00:00.000Z";
constexpr char kBegin[] = "2026-11-30T12:00:00.001Z";
constexpr char kAfter[] = "2026-11-30T12:00:01.000Z";

egress::LogRecord refused(std::string event, std::string host, std::uint16_t port,
                          std::string why) {
  egress::LogRecord out;
  out.time = kAfter;
  out.event = std::move(event);
  out.host = std::move(host);
  out.port = port;
  out.verdict = "refused";
  out.why = std::move(why);
  return out;
}

std::string said(const egress::LogRecord& record) {
  const auto denials = denials_of({record}, kBegin);
  if (denials.size() != 1) return std::to_string(denials.size()) + " denials";
  return denials[0].kind + " " + denials[0].target + " (" + denials[0].hint + ")";
}

TEST(NetworkLog, EachRefusalNamesWhatWouldAllowIt) {
  const struct {
    egress::LogRecord record;
    const char* text;
  } rows[] = {
      {refused("connect", "a.com", 443, "not_allowed"), "egress a.com:443 (--allow-host a.com)"},
      {refused("connect", "a.com", 22, "not_allowed"), "egress a.com:22 (--allow-host a.com:22)"},
      {refused("connect", "a.com", 80, "port"), "egress a.com:80 (--allow-host a.com)"},
      {refused("connect", "a.com", 443, "not_tls"), "egress a.com:443 (--allow-host a.com:443)"},
      {refused("connect", "2001:db8::1", 443, "not_allowed"),
       "egress [2001:db8::1]:443 (--allow-host [2001:db8::1])"},
      {refused("connect", "10.1.2.3", 5432, "private_address"),
       "egress 10.1.2.3:5432 (--allow-host private:10.1.2.3:5432)"},
      {refused("connect", "127.0.0.1", 8080, "special_address"),
       "egress 127.0.0.1:8080 (--allow-host 127.0.0.1:8080)"},
      {refused("connect", "host.temenos.internal", 8080, "port"),
       "egress host.temenos.internal:8080 (--allow-host 127.0.0.1:8080)"},
      {refused("connect", "169.254.169.254", 80, "special_address"),
       "egress 169.254.169.254:80 (no rule opens it: special_address)"},
      {refused("end", "a.com", 443, "foreign_name"),
       "egress a.com:443 (no rule opens it: foreign_name)"},
      {refused("end", "a.com", 22, "not_allowed"), "egress a.com:22 (--allow-host a.com:22)"},
      {refused("resolve", "a.com", 0, "not_allowed"), "dns a.com (--allow-host a.com)"},
      {refused("resolve", "a\\x1b.com", 0, "bad_name"),
       "dns a\\x1b.com (no rule opens it: bad_name)"},
  };
  for (const auto& row : rows) EXPECT_EQ(said(row.record), row.text);
}

TEST(NetworkLog, WhatWasBeforeOrAllowedIsNone) {
  auto old = refused("connect", "a.com", 443, "not_allowed");
  old.time = kBefore;
  auto allowed = refused("connect", "b.com", 443, "");
  allowed.verdict = "allowed";
  auto failed = refused("connect", "c.com", 443, "unreachable");
  failed.verdict = "failed";
  EXPECT_THAT(denials_of({old, allowed, failed, refused("self_test", "192.0.2.1", 9, ""),
                          refused("totals", "d.com", 0, "")},
                         kBegin),
              IsEmpty());
}

TEST(NetworkLog, ANameThatIsConnectedToIsToldByThatAlone) {
  const auto denials = denials_of(
      {refused("resolve", "a.com", 0, "not_allowed"), refused("resolve", "b.com", 0, "not_allowed"),
       refused("connect", "a.com", 443, "not_allowed"),
       refused("connect", "a.com", 443, "not_allowed")},
      kBegin);
  std::vector<std::string> targets;
  for (const auto& denial : denials) targets.push_back(denial.target);
  EXPECT_THAT(targets, ElementsAre("a.com:443", "b.com"));
}

TEST(NetworkLog, NoMoreThanItsCap) {
  std::vector<egress::LogRecord> records;
  for (int i = 0; i < 1000; ++i) {
    records.push_back(refused("connect", "h" + std::to_string(i) + ".com", 443, "not_allowed"));
  }
  EXPECT_EQ(denials_of(records, kBegin).size(), RefusalWatch::kMax);
}

}  // namespace
}  // namespace temenos::box
