// The real dialer against a front that the box owns, in an internet of the test's own that records
// what reaches it: nothing that is not allowed, whatever front asks.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstring>
#include <random>
#include <set>

#include "codec/address.h"
#include "egress/control.h"
#include "egress/dial_protocol.h"
#include "egress/log.h"
#include "egress/names.h"
#include "egress/plan.h"
#include "egress/synthetic.h"
#include "leak/internet.h"
#include "sys/file_sys.h"
#include "sys/process_sys.h"
#include "testing/cli.h"

namespace temenos::testing {
namespace {

using namespace egress;
constexpr int kWaitMs = 15'000;

const std::vector<std::string> kAddresses = {
    "93.184.216.34",    "198.51.100.77",      "10.1.2.3",      "10.9.9.9",
    "192.168.7.7",      "169.254.169.254",    "168.63.129.16", "100.100.100.200",
    "192.80.8.124",     "2606:4700::1",       "fd00:ec2::254", "64:ff9b::5db8:d822",
    "64:ff9b::a01:203", "64:ff9b::a9fe:a9fe", "8.8.8.8"};

const std::vector<NetName> kNames = {
    {"example.com", {"93.184.216.34", "2606:4700::1"}},
    {"evil.com", {"8.8.8.8"}},
    {"meta.wild.net", {"169.254.169.254"}},
    {"meta6.wild.net", {"fd00:ec2::254"}},
    {"azure.wild.net", {"168.63.129.16"}},
    {"loop.wild.net", {"127.0.0.1", "::1"}},
    {"mapped.wild.net", {"::ffff:127.0.0.1"}},
    {"own.wild.net", {"203.0.113.2"}},
    {"private.wild.net", {"10.1.2.3"}},
    {"mixed.wild.net", {"10.1.2.3", "127.0.0.1", "169.254.169.254", "93.184.216.34"}},
    {"nat.wild.net", {"64:ff9b::5db8:d822"}},
    {"natprivate.wild.net", {"64:ff9b::a01:203"}},
    {"natmeta.wild.net", {"64:ff9b::a9fe:a9fe"}},
    {"synthetic.wild.net", {"198.18.1.0", "fd74:656d:656e:6f73:0:1::"}},
    {"flip.wild.net", {"93.184.216.34", "127.0.0.1"}},
    {"lan.example", {"10.1.2.3"}},
    {"later.wild.net", {"198.51.100.77"}},
    {"slow.wild.net", {"198.51.100.200"}},
    {"second.wild.net", {"198.51.101.131"}},
    {"routed.wild.net", {"198.51.102.7"}},
    {"routed6.wild.net", {"2001:db8:9::7"}},
};

constexpr const char* kRules =
    "127.0.0.1:8080\n198.51.100.0/24:443\n*.wild.net:443\nexample.com\nprivate:lan.example:5432\n";

// keeper and front, both as the test has them.
class Box {
 public:
  Box() {
    names_.reset(memfd_create("names", MFD_CLOEXEC));
    ok_ = ftruncate(names_.get(), static_cast<off_t>(NameTable::kBytes)) == 0;
    for (auto& log : log_) {
      log.reset(memfd_create("log", MFD_CLOEXEC));
      ok_ = ok_ && fcntl(log.get(), F_SETFL, O_APPEND) == 0;
    }
  }
  ~Box() { stop(); }

  // False with what went wrong in `trouble`.
  bool start() {
    auto pair = sys::socket_pair(SOCK_SEQPACKET);
    const std::string program = program_path();
    const int fds[] = {pair->second.get(), log_[0].get(), log_[1].get(), names_.get()};
    // In a user namespace its root is nobody of the host, and dialer is started as an ordinary
    // user starts it, in a namespace below.
    const bool real_root = is_real_root();
    auto started = sys::start_in_namespaces(0, [&] {
      (void)sys::die_with_parent();
      if (!real_root) {
        const sys::IdMapLine user{1000, 0, 1};
        if (unshare(CLONE_NEWUSER) != 0) return 126;
        if (!sys::write_id_maps(getpid(), {&user, 1}, {&user, 1}, true)) return 126;
      }
      const rlimit descriptors{most_descriptors, most_descriptors};
      if (most_descriptors != 0 && setrlimit(RLIMIT_NOFILE, &descriptors) != 0) return 126;
      int high[4];
      for (int i = 0; i < 4; ++i) high[i] = fcntl(fds[i], F_DUPFD_CLOEXEC, 20);
      for (int i = 0; i < 4; ++i) dup2(high[i], 3 + i);
      execl(program.c_str(), program.c_str(), nullptr);
      return 127;
    });
    if (!started) return false;
    dialer_ = std::move(*started);
    control_ = std::move(pair->first);
    pair->second.reset();
    return expect(ControlType::kJailed) && new_front() && give_resolver();
  }
  // Not only of a user namespace.
  static bool is_real_root() {
    return shell("test $(awk '{print $3}' /proc/self/uid_map) -gt 65536");
  }
  void stop() {
    if (!dialer_) return;
    dialer_.send(SIGKILL);
    (void)dialer_.wait();
    dialer_ = sys::Process();
  }

  bool expect(ControlType type, std::uint32_t value = 0) {
    const auto record = control();
    return record && record->type == type && (value == 0 || record->value == value);
  }
  // Answers for the resolver files are given on the way.
  std::optional<Control> control() {
    for (;;) {
      pollfd fd{control_.get(), POLLIN, 0};
      if (poll(&fd, 1, kWaitMs) != 1) return std::nullopt;
      const auto got = sys::receive_with_fds(control_.get(), 64, 0);
      if (!got || got->bytes.size() != sizeof(Control)) return std::nullopt;
      Control record;
      std::memcpy(&record, got->bytes.data(), sizeof record);
      if (record.type != ControlType::kWantsResolver) return record;
      give_resolver();
    }
  }
  bool say(ControlType type, std::vector<int> fds) {
    const Control record{type};
    return static_cast<bool>(sys::send_with_fds(
        control_.get(), {reinterpret_cast<const char*>(&record), sizeof record}, fds));
  }
  bool new_front() {
    auto pair = sys::socket_pair(SOCK_SEQPACKET);
    front_ = std::move(pair->first);
    return say(ControlType::kFront, {pair->second.get()});
  }
  bool give_resolver() {
    const auto conf = sys::sealed_memory("resolv", std::string("nameserver ") + kNameServer + "\n");
    const auto hosts = sys::sealed_memory("hosts", "127.0.0.1 localhost filed.wild.net\n");
    return say(ControlType::kResolver, {conf->get(), hosts->get()});
  }
  // It comes before the answer to front, or after.
  bool self_tested() { return self_tested_ || expect(ControlType::kSelfTested); }
  // How many rules were taken; -1: refused.
  int rules(const std::string& text) {
    const auto file = sys::sealed_memory("rules", text);
    if (!say(ControlType::kRules, {file->get()})) return -2;
    const auto record = control();
    if (!record) return -3;
    return record->type == ControlType::kRulesTaken ? static_cast<int>(record->value) : -1;
  }

  void send(const Request& request) {
    (void)sys::send_with_fds(front_.get(),
                             {reinterpret_cast<const char*>(&request), sizeof request}, {});
  }
  bool send_now(const Request& request) {
    return ::send(front_.get(), &request, sizeof request, MSG_DONTWAIT) == sizeof request;
  }
  // As often as front's socket takes it, with nothing that is answered taken from it.
  std::uint32_t flood(const Request& request) {
    std::uint32_t sent = 0;
    pollfd room{front_.get(), POLLOUT, 0};
    while (poll(&room, 1, 500) == 1) sent += send_now(request) ? 1 : 0;
    return sent;
  }
  // Ticks of the CPU.
  unsigned long ran() const {
    return std::stoul("0" + host_shell("awk '{print $14 + $15}' /proc/" +
                                       std::to_string(dialer_.pid()) + "/stat"));
  }
  void send_bytes(const std::string& bytes) { (void)sys::send_with_fds(front_.get(), bytes, {}); }
  // The next answer; connections come with it.
  std::optional<std::pair<Reply, UniqueFd>> reply(int wait_ms = kWaitMs) {
    const std::int64_t until = now() + wait_ms;
    for (;;) {
      // keeper's part, so that look-ups do not wait for it.
      pollfd fds[] = {{front_.get(), POLLIN, 0}, {control_.get(), POLLIN, 0}};
      const std::int64_t left = std::max<std::int64_t>(until - now(), 0);
      if (poll(fds, 2, static_cast<int>(left)) <= 0) return std::nullopt;
      if (fds[1].revents != 0) {
        if ((fds[1].revents & POLLIN) == 0) return std::nullopt;
        const auto got = sys::receive_with_fds(control_.get(), 64, 0);
        if (!got || got->bytes.size() != sizeof(Control)) return std::nullopt;
        Control record;
        std::memcpy(&record, got->bytes.data(), sizeof record);
        if (record.type == ControlType::kWantsResolver) give_resolver();
        if (record.type == ControlType::kSelfTested) self_tested_ = true;
      }
      if (fds[0].revents == 0) continue;
      auto got = sys::receive_with_fds(front_.get(), sizeof(Reply), 1);
      if (!got || got->bytes.size() != sizeof(Reply)) return std::nullopt;
      Reply out;
      std::memcpy(&out, got->bytes.data(), sizeof out);
      return std::pair(out, got->fds.empty() ? UniqueFd() : std::move(got->fds[0]));
    }
  }
  // "refused WHY", "failed WHY", "tls NAME", "reached ADDRESS PORT", ...
  std::string ask(Request request) {
    request.id = ++id_;
    send(request);
    const auto got = reply();
    if (!got) return "no answer";
    const auto& [answer, fd] = *got;
    if (answer.id != id_) return "another's answer";
    const std::string name(answer.name, answer.name_size);
    const std::string why = " " + std::to_string(static_cast<int>(answer.why));
    switch (answer.verdict) {
      case Verdict::kAny:
      case Verdict::kConnected:
        return "reached " + greeting(fd.get());
      case Verdict::kNeedsTls:
        return "tls " + name;
      case Verdict::kNeedsHttp:
        return "http " + name;
      case Verdict::kRefused:
        return (fd ? "with a socket refused" : "refused") + why;
      case Verdict::kFailed:
        return (fd ? "with a socket failed" : "failed") + why;
      case Verdict::kResolved:
        return "number " + std::to_string(answer.number);
      case Verdict::kNamed:
        return "named " + name;
      case Verdict::kEnd:
        return "end " + name;
    }
    return "?";
  }
  static std::string greeting(int fd) {
    std::string out;
    char byte;
    for (;;) {
      pollfd wait{fd, POLLIN, 0};
      if (poll(&wait, 1, kWaitMs) != 1 || read(fd, &byte, 1) != 1) return "silence";
      if (byte == '\n') return out;
      out += byte;
    }
  }
  static std::int64_t now() {
    return std::chrono::duration_cast<std::chrono::milliseconds>(
               std::chrono::steady_clock::now().time_since_epoch())
        .count();
  }
  LogText log() {
    std::string texts[2];
    for (int i = 0; i < 2; ++i) {
      (void)lseek(log_[i].get(), 0, SEEK_SET);
      texts[i] = *sys::read_all(log_[i].get(), 8u << 20);
    }
    return read_log(texts[0], texts[1]);
  }
  // Only the host's root can look at them: dialer forbids its inspection. Else -1.
  int descriptors() const {
    const UniqueFd dir(open(("/proc/" + std::to_string(dialer_.pid()) + "/fd").c_str(),
                            O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    const auto names =
        dir ? sys::list_names(dir.get(), 100'000) : fail_errno(errno, "the descriptors of dialer");
    return names ? static_cast<int>(names->size()) : -1;
  }
  bool ok() const { return ok_; }

  rlim_t most_descriptors = 0;  // 0: as it comes

 private:
  static std::string program_path() {
    const std::string bin = temenos_program();
    return bin.substr(0, bin.rfind("/bin/")) + "/libexec/temenos/temenos-dialer";
  }

  bool ok_ = false;
  UniqueFd names_;
  UniqueFd log_[2];
  UniqueFd control_;
  UniqueFd front_;
  sys::Process dialer_;
  std::uint64_t id_ = 100;
  bool self_tested_ = false;
};

Request by_name(Ask ask, std::string_view name, std::uint16_t port = 0) {
  Request request{.ask = ask, .port = port};
  request.name_size = static_cast<std::uint8_t>(name.size());
  std::memcpy(request.name, name.data(), name.size());
  return request;
}

Request by_address(Ask ask, const AddressBlock& address, std::uint16_t port) {
  Request request{.ask = ask, .port = port, .family = address.v4 ? Family::kV4 : Family::kV6};
  std::memcpy(request.address, address.bytes.data(), sizeof request.address);
  return request;
}

std::string refused(Why why) { return "refused " + std::to_string(static_cast<int>(why)); }
std::string failed(Why why) { return "failed " + std::to_string(static_cast<int>(why)); }

// What a body found wrong, a line each.
class Findings {
 public:
  void expect(const std::string& what, const std::string& got, const std::string& wanted) {
    if (got != wanted) text_ += what + ": " + got + ", not " + wanted + "\n";
  }
  void require(const std::string& what, bool holds) {
    if (!holds) text_ += what + "\n";
  }
  // Only what is in `allowed` has been reached.
  void only(Internet& internet, const std::set<std::string>& allowed) {
    for (const auto& where : internet.arrived()) {
      if (!allowed.contains(where)) text_ += "reached: " + where + "\n";
    }
  }
  std::string text() const { return text_ + "done\n"; }

 private:
  std::string text_;
};

void expect_done(const std::function<std::string(Internet&)>& body) {
  const std::string out = in_internet(kAddresses, kNames, body);
  if (out.starts_with("SKIP")) {
    if (getenv("TEMENOS_MUST_WORK") != nullptr) FAIL() << out;
    GTEST_SKIP() << out;
  }
  EXPECT_EQ(out, "done\n");
}

const std::set<std::string> kMayBeReached = {
    "93.184.216.34 443",      "93.184.216.34 80", "2606:4700::1 443",  "2606:4700::1 80",
    "64:ff9b::5db8:d822 443", "10.1.2.3 5432",    "198.51.100.77 443", "host 127.0.0.1 8080"};

TEST(Dialer, ReachesWhatTheListNames) {
  expect_done([](Internet& internet) {
    Findings found;
    Box box;
    if (!box.ok() || !box.start()) return std::string("dialer does not start\n");
    found.require("rules", box.rules(kRules) == 5);
    found.expect("tls", box.ask(by_name(Ask::kDestination, "example.com", 443)), "tls example.com");
    found.expect("http", box.ask(by_name(Ask::kDestination, "example.com", 80)),
                 "http example.com");
    found.expect("v6 first", box.ask(by_name(Ask::kConnect, "example.com", 443)),
                 "reached 2606:4700::1 443");
    found.expect("mixed", box.ask(by_name(Ask::kConnect, "mixed.wild.net", 443)),
                 "reached 93.184.216.34 443");
    found.expect("NAT64", box.ask(by_name(Ask::kConnect, "nat.wild.net", 443)),
                 "reached 64:ff9b::5db8:d822 443");
    found.expect("private", box.ask(by_name(Ask::kDestination, "lan.example", 5432)),
                 "reached 10.1.2.3 5432");
    found.expect("block",
                 box.ask(by_address(Ask::kDestination, *parse_address("198.51.100.77"), 443)),
                 "reached 198.51.100.77 443");
    found.expect("the host's port", box.ask(by_name(Ask::kDestination, kHostName, 8080)),
                 "reached 127.0.0.1 8080");
    found.expect("a number", box.ask(by_name(Ask::kResolve, "example.com")).substr(0, 7),
                 "number ");
    const auto log = box.log();
    found.require("the log", log.totals.contains("example.com") && log.malformed == 0);
    found.only(internet, kMayBeReached);
    return found.text();
  });
}

TEST(Dialer, NothingElseIsReachedWhateverNameServersSay) {
  expect_done([](Internet& internet) {
    Findings found;
    Box box;
    if (!box.ok() || !box.start()) return std::string("dialer does not start\n");
    found.require("rules", box.rules(kRules) == 5);
    const struct {
      const char* name;
      std::string wanted;
    } rows[] = {{"meta.wild.net", refused(Why::kSpecialAddress)},
                {"meta6.wild.net", refused(Why::kSpecialAddress)},
                {"azure.wild.net", refused(Why::kSpecialAddress)},
                {"loop.wild.net", refused(Why::kSpecialAddress)},
                {"mapped.wild.net", refused(Why::kSpecialAddress)},
                {"filed.wild.net", refused(Why::kSpecialAddress)},
                {"own.wild.net", refused(Why::kHostAddress)},
                {"private.wild.net", refused(Why::kPrivateAddress)},
                {"natprivate.wild.net", refused(Why::kPrivateAddress)},
                {"natmeta.wild.net", refused(Why::kSpecialAddress)},
                {"synthetic.wild.net", refused(Why::kSpecialAddress)},
                {"missing.wild.net", failed(Why::kNoSuchName)},
                {"evil.com", refused(Why::kNotAllowed)},
                {"wild.net", refused(Why::kNotAllowed)}};
    for (const auto& row : rows) {
      found.expect(row.name, box.ask(by_name(Ask::kConnect, row.name, 443)), row.wanted);
    }
    for (int i = 0; i < 6; ++i) {
      const std::string got = box.ask(by_name(Ask::kConnect, "flip.wild.net", 443));
      found.require("flip: " + got,
                    got == "reached 93.184.216.34 443" || got == refused(Why::kSpecialAddress));
    }
    for (const char* address : {"127.0.0.1", "203.0.113.2", "169.254.169.254", "10.9.9.9",
                                "8.8.8.8", "192.168.7.7", "fd00:ec2::254", "::1", "fdaa::2"}) {
      for (const int port : {443, 80, 22}) {
        const std::string got = box.ask(
            by_address(Ask::kConnect, *parse_address(address), static_cast<std::uint16_t>(port)));
        found.require(std::string(address) + " " + got, got.starts_with("refused "));
      }
    }
    found.only(internet, kMayBeReached);
    return found.text();
  });
}

TEST(Dialer, AnAddressThatTheHostGetsLaterIsTheHosts) {
  expect_done([](Internet& internet) {
    Findings found;
    Box box;
    if (!box.ok() || !box.start()) return std::string("dialer does not start\n");
    found.require("rules", box.rules(kRules) == 5);
    const Request literal = by_address(Ask::kDestination, *parse_address("198.51.100.77"), 443);
    found.expect("before", box.ask(literal), "reached 198.51.100.77 443");
    found.expect("by name", box.ask(by_name(Ask::kConnect, "later.wild.net", 443)),
                 "reached 198.51.100.77 443");
    if (!shell("ip addr add 198.51.100.77/32 dev lo")) return std::string("no address\n");
    found.expect("after", box.ask(literal), refused(Why::kHostAddress));
    found.expect("by name", box.ask(by_name(Ask::kConnect, "later.wild.net", 443)),
                 refused(Why::kHostAddress));
    found.only(internet, kMayBeReached);
    return found.text();
  });
}

// A connection to these comes from another address of the host than the one it goes to: the second
// one of a network (ip-address(8): secondary), and those that a route of type local makes its own.
TEST(Dialer, WhatTheHostAnswersAtIsTheHostsWhateverItsSourceWouldBe) {
  expect_done([](Internet& internet) {
    Findings found;
    Box box;
    if (!box.ok() || !box.start()) return std::string("dialer does not start\n");
    found.require("rules", box.rules("*.wild.net:443\n198.51.101.0/24:443\n[2001:db8:9::/64]:443\n"
                                     "private:0.0.0.0/0:22\n") == 4);
    if (!shell(
            "ip addr add 198.51.101.130/25 dev outer && ip addr add 198.51.101.131/25 dev outer && "
            "ip route add local 198.51.102.0/24 dev lo src 203.0.113.2 && "
            "ip -6 route add local 2001:db8:9::/64 dev lo")) {
      return std::string("no addresses\n");
    }
    for (const char* name : {"second.wild.net", "routed.wild.net", "routed6.wild.net"}) {
      found.expect(name, box.ask(by_name(Ask::kConnect, name, 443)), refused(Why::kHostAddress));
    }
    for (const char* address : {"198.51.101.130", "198.51.101.131", "2001:db8:9::8"}) {
      found.expect(address, box.ask(by_address(Ask::kDestination, *parse_address(address), 443)),
                   refused(Why::kHostAddress));
    }
    found.expect(
        "private:", box.ask(by_address(Ask::kDestination, *parse_address("198.51.101.131"), 22)),
        refused(Why::kHostAddress));
    found.only(internet, kMayBeReached);
    return found.text();
  });
}

// A request of any bytes, or one that looks right.
Request any_request(std::mt19937_64& random, std::uint64_t id) {
  Request request;
  auto* const bytes = reinterpret_cast<std::uint8_t*>(&request);
  for (std::size_t i = 0; i < sizeof request; ++i) bytes[i] = static_cast<std::uint8_t>(random());
  request.id = id;
  const std::uint16_t ports[] = {22, 80, 443, 5432, 8080, 8443};
  request.ask = static_cast<Ask>(random() % 8 == 0 ? 2 : 1 + random() % 5);
  request.port = random() % 16 == 0 ? request.port : ports[random() % std::size(ports)];
  switch (random() % 4) {
    case 0: {
      const std::string& name = kNames[random() % kNames.size()].name;
      request.family = Family::kName;
      request.name_size = static_cast<std::uint8_t>(name.size());
      std::memcpy(request.name, name.data(), name.size());
      if (random() % 4 == 0) request.name[random() % name.size()] ^= 0x20;
      break;
    }
    case 1: {
      const auto address = *parse_address(kAddresses[random() % kAddresses.size()]);
      request.family = address.v4 ? Family::kV4 : Family::kV6;
      std::memcpy(request.address, address.bytes.data(), sizeof request.address);
      if (random() % 4 == 0) {
        request.address[random() % 16] ^= static_cast<std::uint8_t>(1u << random() % 8);
      }
      break;
    }
    case 2: {
      const auto number = static_cast<std::uint32_t>(random() % 70'000);
      const auto address = random() % 2 == 0 ? synthetic4(number) : synthetic6(number);
      request.family = address.v4 ? Family::kV4 : Family::kV6;
      std::memcpy(request.address, address.bytes.data(), sizeof request.address);
      break;
    }
    default:
      break;
  }
  return request;
}

TEST(Dialer, AnOwnedFrontReachesNothingElse) {
  expect_done([](Internet& internet) {
    Findings found;
    Box box;
    if (!box.ok() || !box.start()) return std::string("dialer does not start\n");
    found.require("rules", box.rules(kRules) == 5);
    const std::uint64_t seed = std::random_device()();
    std::mt19937_64 random(seed);
    const int before = box.descriptors();
    std::set<std::string> reached;
    for (std::uint64_t round = 0; round < 200; ++round) {
      for (std::uint64_t i = 0; i < 50; ++i) box.send(any_request(random, i));
      // The answer to this one comes after those of all that were judged at once.
      Request mark = by_name(Ask::kResolve, "mark.example");
      mark.id = 999'999;
      box.send(mark);
      for (;;) {
        auto got = box.reply();
        if (!got) return "no answer, seed " + std::to_string(seed) + "\n";
        if (got->second) reached.insert(Box::greeting(got->second.get()));
        if (got->first.id == mark.id) break;
      }
    }
    while (auto got = box.reply(2000)) {
      if (got->second) reached.insert(Box::greeting(got->second.get()));
    }
    found.require("nothing was reached at all", !reached.empty());
    for (const auto& where : reached) {
      found.require(
          "handed over: " + where + ", seed " + std::to_string(seed),
          kMayBeReached.contains(where) || where == "127.0.0.1 8080" || where == "silence");
    }
    // Other records than requests end that front and nothing else.
    for (const std::size_t size : {0u, 1u, 319u, 321u, 4096u}) {
      if (!box.new_front()) return std::string("no new front\n");
      const std::string bytes(size + (size == 0 ? 1 : 0), 'x');
      box.send_bytes(bytes);
      found.expect("a broken front", box.ask(by_name(Ask::kDestination, "example.com", 443)),
                   "no answer");
    }
    if (!box.new_front()) return std::string("no new front\n");
    found.expect("the next front", box.ask(by_name(Ask::kDestination, "example.com", 443)),
                 "tls example.com");
    found.require(
        "descriptors: " + std::to_string(before) + ", then " + std::to_string(box.descriptors()),
        (before > 0 || !Box::is_real_root()) && box.descriptors() <= before + 4);
    found.only(internet, kMayBeReached);
    return found.text();
  });
}

TEST(Dialer, AFloodIsBoundedAndEndsWithItsFront) {
  expect_done([](Internet& internet) {
    Findings found;
    Box box;
    if (!box.ok() || !box.start()) return std::string("dialer does not start\n");
    found.require("rules", box.rules(kRules) == 5);
    const int before = box.descriptors();
    // Nobody answers there, so each of these waits.
    int too_many = 0;
    const auto take = [&](int wait_ms) {
      while (const auto got = box.reply(wait_ms)) too_many += got->first.why == Why::kTooMany;
    };
    for (int i = 0; i < 3000; ++i) {
      Request request = by_name(Ask::kConnect, "slow.wild.net", 443);
      request.id = static_cast<std::uint64_t>(i);
      // Both sockets can be full: dialer hears nothing more of who takes no answers then.
      while (!box.send_now(request)) take(10);
      take(0);
    }
    take(500);
    found.require("too many: " + std::to_string(too_many), too_many >= 3000 - 2048);
    found.require("descriptors: " + std::to_string(box.descriptors()),
                  box.descriptors() <= before + 1100);
    if (!box.new_front()) return std::string("no new front\n");
    found.expect("the next front", box.ask(by_name(Ask::kConnect, "example.com", 443)),
                 "reached 2606:4700::1 443");
    found.require("descriptors: " + std::to_string(box.descriptors()),
                  box.descriptors() <= before + 4);
    found.only(internet, kMayBeReached);
    return found.text();
  });
}

TEST(Dialer, WhatFrontHasSaidBeforeAFlushIsInTheLogThoughItTakesNoAnswer) {
  expect_done([](Internet& internet) {
    Findings found;
    Box box;
    if (!box.ok() || !box.start()) return std::string("dialer does not start\n");
    found.require("rules", box.rules(kRules) == 5);
    const std::uint32_t sent = box.flood(by_name(Ask::kConnect, "evil.com", 443));
    found.require("a flood", sent > 200 && box.say(ControlType::kFlushLog, {}));
    const auto answer = box.control();
    found.require("flushed", answer && answer->type == ControlType::kLogFlushed);
    const auto counted = answer ? answer->value : 0;
    found.require("sent " + std::to_string(sent) + ", logged " + std::to_string(counted),
                  sent == counted);
    found.only(internet, {});
    return found.text();
  });
}

// The kernel has a limit for descriptors that are under way, for each user (unix(7), ETOOMANYREFS).
TEST(Dialer, AFrontThatTakesNoDescriptorsCostsNoTime) {
  expect_done([](Internet& internet) {
    Findings found;
    Box box;
    box.most_descriptors = 32;
    if (!box.ok() || !box.start()) return std::string("dialer does not start\n");
    found.require("rules", box.rules(kRules) == 5);
    const Request request = by_address(Ask::kConnect, *parse_address("198.51.100.77"), 443);
    // One by one, since dialer has few descriptors of its own, until it is at the limit.
    for (std::size_t i = 1; i <= 45; ++i) {
      box.send(request);
      const std::int64_t until = Box::now() + kWaitMs;
      while (i <= 30 && internet.arrived().size() < i && Box::now() < until) usleep(1000);
    }
    // The last ones are not seen to arrive: it may still be at work, but there comes a second
    // without.
    unsigned long ticks = 5;
    for (int second = 0; second < 2 * slowness() && ticks >= 5; ++second) {
      const unsigned long before = box.ran();
      usleep(1'000'000);
      ticks = box.ran() - before;
    }
    found.require("ticks: " + std::to_string(ticks), ticks < 5);
    // Taken later, the answers are all there; dialer itself may have had no descriptor for some.
    int answers = 0;
    int taken = 0;
    while (answers < 45) {
      const auto got = box.reply(5000);
      answers += got ? 1 : 45;
      taken += got && got->second ? 1 : 0;
    }
    found.require(std::to_string(answers) + " answers, " + std::to_string(taken) + " connections",
                  answers == 45 && taken > 32);
    found.only(internet, kMayBeReached);
    return found.text();
  });
}

TEST(Dialer, ListsChangeWholeAndABadOneChangesNothing) {
  expect_done([](Internet& internet) {
    Findings found;
    Box box;
    if (!box.ok() || !box.start()) return std::string("dialer does not start\n");
    const Request request = by_name(Ask::kConnect, "example.com", 443);
    found.expect("no list", box.ask(request), refused(Why::kNotAllowed));
    found.require("rules", box.rules(kRules) == 5);
    found.expect("a list", box.ask(request), "reached 2606:4700::1 443");
    found.require("a bad list", box.rules("evil.com\n127.0.0.1\n") == -1);
    found.expect("evil", box.ask(by_name(Ask::kConnect, "evil.com", 443)),
                 refused(Why::kNotAllowed));
    found.expect("the old list", box.ask(request), "reached 2606:4700::1 443");
    found.require("an empty list", box.rules("") == 0);
    found.expect("nothing", box.ask(request), refused(Why::kNotAllowed));
    found.expect("the self-test",
                 box.ask(by_address(Ask::kDestination, *parse_address(kSelfTest4), kSelfTestPort)),
                 refused(Why::kSelfTest));
    found.require("is told", box.self_tested());
    found.only(internet, kMayBeReached);
    return found.text();
  });
}

TEST(Dialer, KilledAndStartedAgainItHasTheSameNames) {
  expect_done([](Internet& internet) {
    Findings found;
    Box box;
    if (!box.ok() || !box.start()) return std::string("dialer does not start\n");
    found.require("rules", box.rules(kRules) == 5);
    const std::string first = box.ask(by_name(Ask::kResolve, "example.com"));
    const std::string wild = box.ask(by_name(Ask::kResolve, "mixed.wild.net"));
    box.stop();
    if (!box.start()) return std::string("dialer does not start again\n");
    // Before it has a list it reaches nothing, and a number that was given stays a name's.
    const auto number = static_cast<std::uint32_t>(std::stoul(wild.substr(7)));
    const Request cached = by_address(Ask::kConnect, synthetic4(number), 443);
    found.expect("no list", box.ask(cached), refused(Why::kNotAllowed));
    found.require("rules", box.rules(kRules) == 5);
    found.expect("a cached address", box.ask(cached), "reached 93.184.216.34 443");
    found.expect("another name", box.ask(by_name(Ask::kResolve, "nat.wild.net")).substr(0, 7),
                 "number ");
    found.expect("the first name", box.ask(by_name(Ask::kResolve, "example.com")), first);
    found.expect("the second name", box.ask(by_name(Ask::kResolve, "mixed.wild.net")), wild);
    found.expect("its name", box.ask(by_address(Ask::kReverse, synthetic6(number), 0)),
                 "named mixed.wild.net");
    found.only(internet, kMayBeReached);
    return found.text();
  });
}

}  // namespace
}  // namespace temenos::testing
