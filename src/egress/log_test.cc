#include "egress/log.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>

#include "sys/file_sys.h"

namespace temenos::egress {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class LogTest : public ::testing::Test {
 protected:
  LogTest() {
    for (auto& fd : fds_) {
      fd.reset(memfd_create("log", MFD_CLOEXEC));
      EXPECT_EQ(fcntl(fd.get(), F_SETFL, O_APPEND), 0);
    }
  }
  Log log(const Log::Limits& limits = {}) {
    return Log({UniqueFd(fcntl(fds_[0].get(), F_DUPFD_CLOEXEC, 0)),
                UniqueFd(fcntl(fds_[1].get(), F_DUPFD_CLOEXEC, 0))},
               limits);
  }
  std::string text(std::size_t i) {
    EXPECT_EQ(lseek(fds_[i].get(), 0, SEEK_SET), 0);
    return *sys::read_all(fds_[i].get(), 16u << 20);
  }
  LogText read() { return read_log(text(0), text(1)); }
  static LogRecord refused(std::string host, std::uint16_t port = 443) {
    return {.event = "connect",
            .host = std::move(host),
            .port = port,
            .verdict = "refused",
            .why = "not_allowed"};
  }

  UniqueFd fds_[2];
};

TEST_F(LogTest, LinesComeBackAsRecords) {
  Log to = log();
  to.add({.event = "connect",
          .host = "a.net",
          .address = "93.184.216.34",
          .port = 443,
          .protocol = "tls",
          .verdict = "allowed",
          .rule = "@npm (a.net)",
          .ms = 12},
         0);
  to.add({.event = "end", .host = "a.net", .port = 443, .verdict = "allowed", .up = 7, .down = 9},
         1);
  auto foreign = refused("b.net");
  foreign.seen = "quote\" back\\ nul\x01 \xff end";
  to.add(foreign, 2);
  const LogText out = read();
  ASSERT_EQ(out.records.size(), 3u);
  EXPECT_EQ(out.malformed, 0u);
  EXPECT_EQ(out.records[0].rule, "@npm (a.net)");
  EXPECT_EQ(out.records[0].address, "93.184.216.34");
  EXPECT_EQ(out.records[0].ms, 12u);
  EXPECT_EQ(out.records[1].down, 9u);
  EXPECT_EQ(out.records[2].seen, "quote\" back\\ nul\x01 \xc3\xbf end");
  EXPECT_EQ(out.records[2].time.size(), std::string("2026-11-30T12:00:00.000Z").size());
  EXPECT_EQ(out.totals.at("a.net").allowed, 1u);
  EXPECT_EQ(out.totals.at("a.net").up, 7u);
  EXPECT_EQ(out.totals.at("b.net").refused, 1u);
}

TEST_F(LogTest, RepeatsAreCountedTogetherAndTheFirstIsThereAtOnce) {
  Log to = log();
  for (int i = 0; i < 100; ++i) to.add(refused("a.net"), i);
  to.add(refused("a.net", 80), 100);
  EXPECT_EQ(read().records.size(), 2u);
  EXPECT_EQ(to.tick(5000), 10'000);
  EXPECT_EQ(read().records.size(), 2u);
  EXPECT_EQ(to.tick(10'000), 10'100);
  auto out = read();
  ASSERT_EQ(out.records.size(), 3u);
  EXPECT_EQ(out.records[2].count, 99u);
  EXPECT_EQ(to.tick(10'100), -1);
  // The next one begins anew.
  to.add(refused("a.net"), 11'000);
  to.add(refused("a.net"), 11'001);
  to.flush(11'002);
  out = read();
  ASSERT_EQ(out.records.size(), 5u);
  EXPECT_EQ(out.totals.at("a.net").refused, 103u);
  EXPECT_EQ(to.totals().at("a.net").refused, 103u);
}

TEST_F(LogTest, AFloodIsDroppedAndCounted) {
  Log to = log({.per_second = 10, .burst = 100});
  for (int i = 0; i < 1000; ++i) to.add(refused("h" + std::to_string(i) + ".net"), 0);
  EXPECT_EQ(read().records.size(), 100u);
  EXPECT_EQ(to.tick(50), 1050);
  EXPECT_EQ(read().dropped, 0u);
  EXPECT_EQ(to.tick(500), 10'000);
  const auto out = read();
  EXPECT_EQ(out.dropped, 900u);
  EXPECT_EQ(to.tick(600), 10'000);
  EXPECT_EQ(read().dropped, 900u);
}

TEST_F(LogTest, ManyLinesStayBelowTheCapAndTotalsAddUp) {
  constexpr std::size_t kSegment = 256 << 10;
  Log to = log({.segment = kSegment, .per_second = 100'000'000, .burst = 100'000'000});
  for (int i = 0; i < 50'000; ++i) {
    to.add(refused("h" + std::to_string(i % 5000) + ".net", static_cast<std::uint16_t>(i)), i);
  }
  to.flush(50'000);
  EXPECT_LE(text(0).size() + text(1).size(), 2 * kSegment);
  const auto out = read();
  EXPECT_EQ(out.malformed, 0u);
  EXPECT_FALSE(out.records.empty());
  EXPECT_LE(out.totals.size(), kMaxLogHosts + 1);
  std::uint64_t all = 0;
  for (const auto& [host, totals] : out.totals) all += totals.refused;
  EXPECT_EQ(all, 50'000u);
  EXPECT_LE(to.totals().size(), kMaxLogHosts + 1);
}

TEST_F(LogTest, AnotherDialerGoesOnWithTheNewerSegment) {
  {
    Log to = log({.segment = 4096});
    for (int i = 0; i < 60; ++i) to.add(refused("h" + std::to_string(i) + ".net"), 0);
  }
  const auto before = read();
  Log to = log({.segment = 4096});
  to.add(refused("last.net"), 0);
  const auto out = read();
  EXPECT_EQ(out.records.size(), before.records.size() + 1);
  EXPECT_EQ(out.records.back().host, "last.net");
}

TEST_F(LogTest, AFullDiskCostsLinesOnly) {
  UniqueFd full(open("/dev/full", O_WRONLY | O_APPEND | O_CLOEXEC));
  UniqueFd other(open("/dev/full", O_WRONLY | O_APPEND | O_CLOEXEC));
  ASSERT_TRUE(full && other);
  Log to({std::move(full), std::move(other)});
  for (int i = 0; i < 100; ++i) to.add(refused("h" + std::to_string(i)), 0);
  EXPECT_EQ(to.totals().at("h7").refused, 1u);
}

TEST(LogReader, TrustsNoLine) {
  const std::string good = R"({"time":"2026-11-30T12:00:00.000Z","event":"connect","host":"a"})";
  const std::string bad[] = {
      "",
      "x",
      "[]",
      "{}",
      R"({"time":"t","event":"other"})",
      R"({"time":"t","event":"connect","port":70000})",
      R"({"time":"t","event":"connect","port":-1})",
      R"({"time":"t","event":"connect","count":0})",
      R"({"time":"t","event":"connect","up":"1"})",
      R"({"time":"t","event":"connect","up":1,"up":2})",
      R"({"time":"t","event":"connect","more":1})",
      R"({"time":"t","event":"connect","host":["a"]})",
      R"({"time":"t","event":"connect","host":")" + std::string(1025, 'a') + "\"}",
      R"({"time":"t","event":"connect","host":")" + std::string(5000, 'a') + "\"}",
      std::string("\xff\xfe\0", 3),
  };
  std::string text = good + "\n";
  for (const auto& line : bad) text += line + "\n";
  text += good;  // being written
  const LogText out = read_log(text, "");
  EXPECT_EQ(out.records.size(), 1u);
  EXPECT_EQ(out.malformed, std::size(bad));
}

TEST(LogReader, IsBoundedAndKeepsTheNewest) {
  std::string text;
  for (int i = 0; i < 1000; ++i) {
    text += R"({"time":"t","event":"connect","verdict":"refused","host":"h)" + std::to_string(i) +
            "\",\"count\":9223372036854775807}\n";
  }
  const LogText out = read_log(text, "", 10);
  ASSERT_EQ(out.records.size(), 10u);
  EXPECT_EQ(out.records.back().host, "h999");
  EXPECT_EQ(out.records.front().host, "h990");
  // Sums that would not fit stay at the largest.
  const std::string same = R"({"time":"t","event":"connect","verdict":"refused","host":"h",)"
                           R"("count":9223372036854775807})";
  EXPECT_EQ(read_log(same + "\n" + same + "\n" + same + "\n", "").totals.at("h").refused,
            ~std::uint64_t{0});
}

// A name server that gives another address for each look-up would have all but the first unseen.
TEST_F(LogTest, EachAddressAndRuleThatWasConnectedByHasALine) {
  Log to = log();
  const auto made = [](const char* address, const char* rule) {
    return LogRecord{.event = "connect",
                     .host = "a.net",
                     .address = address,
                     .port = 443,
                     .verdict = "allowed",
                     .rule = rule};
  };
  to.add(made("93.184.216.34", "a.net:443"), 0);
  to.add(made("8.8.8.8", "a.net:443"), 1);
  to.add(made("8.8.8.8", "*.net:443"), 2);
  to.add(made("8.8.8.8", "a.net:443"), 3);
  to.flush(4);
  const LogText out = read();
  ASSERT_EQ(out.records.size(), 4u);
  EXPECT_EQ(out.records[1].address, "8.8.8.8");
  EXPECT_EQ(out.records[2].rule, "*.net:443");
  EXPECT_EQ(out.totals.at("a.net").allowed, 4u);
}

TEST_F(LogTest, SumsOfFrontsNumbersStayNumbersThatAreRead) {
  Log to = log({.segment = 4096, .per_second = 1000, .burst = 1000, .together_ms = 10});
  LogRecord end{.event = "end", .host = "a.net", .port = 443, .verdict = "allowed"};
  end.up = end.down = end.ms = std::uint64_t{1} << 62;
  for (std::int64_t now = 0; now < 300; ++now) to.add(end, now);
  to.flush(300);
  const LogText out = read();
  EXPECT_EQ(out.malformed, 0u);
  EXPECT_GE(out.totals.at("a.net").up, std::uint64_t{1} << 62);
  EXPECT_THAT(text(0) + text(1), HasSubstr("\"event\":\"totals\""));
}

TEST_F(LogTest, WhatADiskHadNoRoomForIsCounted) {
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  Log to = log({.together_ms = 1});
  to.add(refused("a.net"), 0);
  rlimit full = before;
  full.rlim_cur = static_cast<rlim_t>(lseek(fds_[0].get(), 0, SEEK_END));
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &full), 0);
  auto many = refused("b.net");
  many.count = 5;
  to.add(many, 10);
  to.add(refused("c.net"), 20);
  to.add(refused("d.net"), 30);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  to.add(refused("e.net"), 40);
  const LogText out = read();
  EXPECT_EQ(out.malformed, 0u);
  EXPECT_EQ(out.dropped, 7u);
}

}  // namespace
}  // namespace temenos::egress
