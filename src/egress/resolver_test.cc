#include "egress/resolver.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>

#include <chrono>
#include <cstring>
#include <map>

#include "codec/address.h"
#include "egress/socket_address.h"

namespace temenos::egress {
namespace {

using ::testing::ElementsAre;

std::int64_t now_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// A name server on 127.0.0.1 that says what it is told: name -> addresses.
class Server {
 public:
  Server() : fd_(socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)) {
    const SocketAddress at(*parse_address("127.0.0.1"), 0);
    EXPECT_EQ(bind(fd_.get(), at.get(), at.size()), 0);
    sockaddr_in in{};
    socklen_t size = sizeof in;
    EXPECT_EQ(getsockname(fd_.get(), reinterpret_cast<sockaddr*>(&in), &size), 0);
    port = ntohs(in.sin_port);
  }
  int fd() const { return fd_.get(); }

  void serve() {
    std::uint8_t query[512];
    sockaddr_storage from{};
    socklen_t size = sizeof from;
    const ssize_t count =
        recvfrom(fd_.get(), query, sizeof query, 0, reinterpret_cast<sockaddr*>(&from), &size);
    port_of_question = ntohs(reinterpret_cast<sockaddr_in&>(from).sin_port);
    if (count < 17 || silent) return;
    std::string name;
    std::size_t at = 12;
    while (query[at] != 0) {
      name += std::string(reinterpret_cast<char*>(query) + at + 1, query[at]) + ".";
      at += query[at] + 1u;
    }
    const bool v6 = query[at + 2] == 28;
    ++questions[name];
    if (name.starts_with("silent.")) return;
    if (name == silent_about) return;
    std::string out(reinterpret_cast<char*>(query), at + 5);
    out[2] = '\x81';
    out[3] = static_cast<char>(0x80 | (answers.contains(name) ? 0 : 3));
    std::uint8_t records = 0;
    for (const char* text : answers.contains(name) ? answers[name] : std::vector<const char*>()) {
      const AddressBlock address = *parse_address(text);
      if (address.v4 == v6) continue;
      out += std::string("\xc0\x0c\0", 3) + (v6 ? '\x1c' : '\x01') +
             std::string("\0\x01\0\0\0", 5) + static_cast<char>(ttl) + '\0' +
             (v6 ? '\x10' : '\x04');
      out.append(reinterpret_cast<const char*>(address.bytes.data()), v6 ? 16 : 4);
      ++records;
    }
    std::memcpy(out.data() + 4, "\0\x01\0\0\0\0\0\0", 8);
    out[7] = static_cast<char>(records);
    (void)sendto(fd_.get(), out.data(), out.size(), 0, reinterpret_cast<sockaddr*>(&from), size);
  }

  std::map<std::string, std::vector<const char*>> answers;
  std::map<std::string, int> questions;
  std::uint8_t ttl = 30;
  bool silent = false;
  std::string silent_about;
  std::uint16_t port = 0;
  std::uint16_t port_of_question = 0;

 private:
  UniqueFd fd_;
};

class ResolverTest : public ::testing::Test {
 protected:
  ResolverTest() {
    options_.port = server_.port;
    make();
  }
  void make() {
    resolver_ = std::make_unique<Resolver>(
        Resolver::Calls{.done =
                            [this](std::uint64_t ticket, LookUpStatus status,
                                   std::span<const AddressBlock> addresses) {
                              Answer answer{status, {}};
                              for (const auto& one : addresses)
                                answer.addresses.push_back(format_block(one));
                              answers_[ticket] = answer;
                            },
                        .wants_config = [this] { ++wants_; },
                        .nat64 =
                            [this](const std::vector<AddressBlock>& prefixes) {
                              told_after_ = answers_.size();
                              for (const auto& one : prefixes)
                                prefixes_.push_back(format_block(one));
                            },
                        .watch =
                            [this](int fd, bool readable, bool writable) {
                              if (!readable && !writable) {
                                watched_.erase(fd);
                              } else {
                                watched_[fd] = static_cast<short>((readable ? POLLIN : 0) |
                                                                  (writable ? POLLOUT : 0));
                              }
                            }},
        options_);
    ASSERT_TRUE(*resolver_);
  }
  void config(const char* hosts = "") {
    resolver_->set_config("# comment\nnameserver 127.0.0.1\nsearch evil.example\n", hosts,
                          now_ms() + skew_);
  }
  void pump() {
    resolver_->tick(now_ms() + skew_);
    std::vector<pollfd> fds{{server_.fd(), POLLIN, 0}};
    for (const auto& [fd, events] : watched_) fds.push_back({fd, events, 0});
    poll(fds.data(), fds.size(), 20);
    if (fds[0].revents != 0) server_.serve();
    for (std::size_t i = 1; i < fds.size(); ++i) {
      if (fds[i].revents == 0) continue;
      resolver_->on_event(fds[i].fd, (fds[i].revents & ~POLLOUT) != 0,
                          (fds[i].revents & POLLOUT) != 0, now_ms() + skew_);
    }
  }
  void run(std::uint64_t ticket) {
    const std::int64_t until = now_ms() + 5000;
    while (!answers_.contains(ticket) && now_ms() < until) pump();
    ASSERT_TRUE(answers_.contains(ticket));
  }
  void ask(std::uint64_t ticket, const char* name) {
    resolver_->look_up(ticket, name, now_ms() + skew_);
  }

  struct Answer {
    LookUpStatus status = LookUpStatus::kNoAnswer;
    std::vector<std::string> addresses;
  };
  Server server_;
  Resolver::Options options_;
  std::unique_ptr<Resolver> resolver_;
  std::map<std::uint64_t, Answer> answers_;
  std::map<int, short> watched_;
  std::vector<std::string> prefixes_;
  std::size_t told_after_ = 0;  // so many answers
  int wants_ = 0;
  std::int64_t skew_ = 0;
};

TEST_F(ResolverTest, BothFamiliesInTurn) {
  config();
  server_.answers["a.net."] = {"93.184.216.34", "93.184.216.35", "2606:4700::1", "10.0.0.1"};
  ask(1, "a.net");
  ask(2, "a.net");
  run(2);
  EXPECT_EQ(answers_[1].status, LookUpStatus::kFound);
  EXPECT_EQ(answers_[1].addresses.front(), "2606:4700::1");
  EXPECT_THAT(answers_[1].addresses,
              ::testing::UnorderedElementsAre("2606:4700::1", "93.184.216.34", "93.184.216.35",
                                              "10.0.0.1"));
  EXPECT_EQ(answers_[2].addresses, answers_[1].addresses);
  EXPECT_EQ(server_.questions["a.net."], 2);  // A and AAAA, for both who asked
  EXPECT_EQ(wants_, 0);
}

TEST_F(ResolverTest, AnswersAreKeptForTheirTime) {
  config();
  server_.answers["a.net."] = {"93.184.216.34"};
  ask(1, "a.net");
  run(1);
  server_.answers["a.net."] = {"93.184.216.99"};
  ask(2, "a.net");
  EXPECT_THAT(answers_[2].addresses, ElementsAre("93.184.216.34"));
  skew_ += 31'000;
  config();
  ask(3, "a.net");
  run(3);
  EXPECT_THAT(answers_[3].addresses, ElementsAre("93.184.216.99"));
}

TEST_F(ResolverTest, NoSearchDomainsAndNoSuchName) {
  config();
  server_.answers["intranet."] = {"93.184.216.34"};
  server_.answers["missing.evil.example."] = {"93.184.216.34"};
  ask(1, "intranet");
  ask(2, "missing");
  run(1);
  run(2);
  EXPECT_EQ(answers_[1].status, LookUpStatus::kFound);
  EXPECT_EQ(answers_[2].status, LookUpStatus::kNoSuchName);
  EXPECT_EQ(server_.questions.count("missing.evil.example."), 0u);
}

TEST_F(ResolverTest, TheHostsFileGoesFirst) {
  config(
      "127.0.0.1 localhost\n93.184.216.40\tone.net  two.net # three.net\nbad line\n::1 six\n"
      "2606:4700::9 one.net\n");
  ask(1, "one.net");
  EXPECT_THAT(answers_[1].addresses, ElementsAre("2606:4700::9", "93.184.216.40"));
  ask(2, "two.net");
  EXPECT_THAT(answers_[2].addresses, ElementsAre("93.184.216.40"));
  ask(3, "three.net");
  run(3);
  EXPECT_EQ(answers_[3].status, LookUpStatus::kNoSuchName);
}

TEST_F(ResolverTest, TheHostsFilesAreAskedForAndWaitedForAWhile) {
  server_.answers["a.net."] = {"93.184.216.34"};
  ask(1, "a.net");
  ask(2, "a.net");
  EXPECT_EQ(wants_, 1);
  EXPECT_TRUE(answers_.empty());
  EXPECT_TRUE(server_.questions.empty());
  config();
  run(2);
  EXPECT_EQ(answers_[2].status, LookUpStatus::kFound);
  // Old ones are asked for again, and used when no answer comes.
  skew_ += 6000;
  ask(3, "a.net");
  EXPECT_EQ(wants_, 2);
  EXPECT_FALSE(answers_.contains(3));
  skew_ += 300;
  resolver_->tick(now_ms() + skew_);
  EXPECT_EQ(answers_[3].status, LookUpStatus::kFound);
}

TEST_F(ResolverTest, WithoutTheHostsFilesThereIsNoAnswer) {
  ask(1, "a.net");
  skew_ += 5001;
  resolver_->tick(now_ms() + skew_);
  EXPECT_EQ(answers_[1].status, LookUpStatus::kNoAnswer);
}

TEST_F(ResolverTest, ASilentServerEndsAtTheDeadline) {
  config();
  server_.silent = true;
  ask(1, "a.net");
  EXPECT_FALSE(answers_.contains(1));
  skew_ += 8001;
  resolver_->tick(now_ms() + skew_);
  EXPECT_EQ(answers_[1].status, LookUpStatus::kNoAnswer);
}

// Whoever forges answers would have all the time to find that port.
TEST_F(ResolverTest, AQuestionThatNobodyAnswersKeepsNoPort) {
  config();
  resolver_->tick(now_ms());
  resolver_->look_up(1, "silent.net", now_ms());
  resolver_->look_up(2, "a.net", now_ms());
  run(2);
  const std::uint16_t first = server_.port_of_question;
  skew_ += 2500;
  config();
  resolver_->tick(now_ms() + skew_);
  resolver_->look_up(3, "silent.org", now_ms() + skew_);
  resolver_->look_up(4, "b.net", now_ms() + skew_);
  run(4);
  EXPECT_TRUE(answers_.contains(4));
  EXPECT_FALSE(answers_.contains(1));  // it may still be answered
  EXPECT_NE(first, 0);
  EXPECT_NE(server_.port_of_question, first);
}

TEST_F(ResolverTest, WhatIsUnderWayIsAskedOfNewServers) {
  resolver_->set_config("nameserver 127.0.0.9\n", "", now_ms());
  server_.answers["a.net."] = {"93.184.216.34"};
  ask(1, "a.net");
  EXPECT_FALSE(answers_.contains(1));
  config();
  run(1);
  EXPECT_EQ(answers_[1].status, LookUpStatus::kFound);
}

TEST_F(ResolverTest, NamesInFlightAreBounded) {
  config();
  server_.silent = true;
  for (std::uint64_t i = 0; i < 300; ++i) ask(i, ("h" + std::to_string(i) + ".net").c_str());
  int too_many = 0;
  for (const auto& [ticket, answer] : answers_) {
    too_many += answer.status == LookUpStatus::kTooMany ? 1 : 0;
  }
  EXPECT_EQ(too_many, 300 - 256);  // the question of temenos' own is none of them
  resolver_->forget_all();
  answers_.clear();
  skew_ += 9000;
  resolver_->tick(now_ms() + skew_);
  EXPECT_TRUE(answers_.empty());
}

TEST_F(ResolverTest, ThePrefixesOfANat64AreKnownBeforeTheFirstAnswer) {
  config();
  server_.answers["a.net."] = {"93.184.216.34", "2001:db8:64::5db8:d822"};
  server_.answers["ipv4only.arpa."] = {"192.0.0.170", "192.0.0.171", "2001:db8:64::c000:aa",
                                       "2001:db8:64::c000:ab"};
  EXPECT_TRUE(server_.questions.empty());  // nothing is asked before something has to be
  ask(1, "a.net");
  run(1);
  EXPECT_THAT(prefixes_, ElementsAre("2001:db8:64::/96"));
  EXPECT_EQ(told_after_, 0u);
  EXPECT_EQ(answers_[1].addresses.size(), 2u);
  server_.answers["b.net."] = {"93.184.216.34"};
  ask(2, "b.net");
  run(2);
  EXPECT_EQ(server_.questions["ipv4only.arpa."], 1);
}

TEST_F(ResolverTest, WhileNobodyTellsOfANat64OnlyIpv4IsUsed) {
  config();
  server_.silent_about = "ipv4only.arpa.";
  server_.answers["a.net."] = {"93.184.216.34", "2001:db8:64::5db8:d822"};
  server_.answers["six.net."] = {"2001:db8:64::5db8:d822"};
  ask(1, "a.net");
  ask(2, "six.net");
  while (server_.questions["a.net."] + server_.questions["six.net."] < 4) pump();
  pump();
  EXPECT_TRUE(answers_.empty());  // they wait
  skew_ += 3001;
  run(1);
  run(2);
  EXPECT_THAT(answers_[1].addresses, ElementsAre("93.184.216.34"));
  EXPECT_EQ(answers_[2].status, LookUpStatus::kNoAnswer);
  EXPECT_THAT(prefixes_, ElementsAre());
}

TEST(HostFiles, AreReadStrictlyAndBounded) {
  EXPECT_THAT(name_servers(""), ElementsAre(*parse_address("127.0.0.1")));
  EXPECT_THAT(
      name_servers("nameserver 1.1.1.1\n nameserver\t::1 x\nnameserver fe80::1%eth0\n"
                   "nameservers 2.2.2.2\n;nameserver 3.3.3.3\nnameserver 4.4.4.4\n"
                   "nameserver 5.5.5.5"),
      ElementsAre(*parse_address("1.1.1.1"), *parse_address("::1"), *parse_address("4.4.4.4")));
  std::string many;
  for (int i = 0; i < 100'000; ++i) many += "1.1.1.1 a\n";
  EXPECT_LE(hosts_entries(many).size(), 65'536u);
  EXPECT_TRUE(hosts_entries(std::string(2 << 20, 'x')).empty());
}

}  // namespace
}  // namespace temenos::egress
