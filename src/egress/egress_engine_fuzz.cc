// Whatever front sends, dialer connects only to what the allowlist opens.
//
// The input is a list of requests, each a few bytes that choose fields or a whole raw record, and
// between them what name servers answer, which is hostile too. The invariant is checked where the
// engine asks to connect: an independent and simple reading of the same list.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <deque>
#include <set>

#include "codec/address.h"
#include "egress/engine.h"

namespace {

using namespace temenos;
using namespace temenos::egress;

constexpr const char* kRules =
    "127.0.0.1:8080\n203.0.113.0/24:5432\n*.wild.net\nexample.com\ngit.example.com:22\n"
    "private:10.1.0.0/16:*\nprivate:lan.example\n";

void require(bool holds) {
  if (!holds) std::abort();
}

// Whether the list above opens this address and port to anything at all.
bool opened(const AddressBlock& address, std::uint16_t port, bool own) {
  const std::string text = format_block(address);
  if (own) return text == "127.0.0.1" && port == 8080;
  if (text.starts_with("203.0.113.") && port == 5432) return true;
  if (text.starts_with("10.1.")) return true;
  // By name: public on the ports that names have, and private for the one that says so.
  if (port != 443 && port != 80 && port != 22) return false;
  const AddressClass of = classify(address);
  return of == AddressClass::kPublic || (of == AddressClass::kPrivate && port != 22) ||
         text.starts_with("64:ff9b::");
}

class World final : public Outside {
 public:
  void look_up(std::uint64_t ticket, const std::string& name) override {
    require(name == "example.com" || name == "git.example.com" || name == "lan.example" ||
            name.ends_with(".wild.net"));
    look_ups.push_back(ticket);
  }
  void connect(std::uint64_t ticket, std::vector<AddressBlock> addresses, std::uint16_t port,
               bool own) override {
    require(!addresses.empty() && addresses.size() <= kMaxAddresses);
    for (const auto& address : addresses) require(opened(address, port, own));
    dials.push_back(ticket);
  }
  void reply(const Reply& reply, UniqueFd connection) override {
    require(reply.name_size <= kMaxNameBytes);
    const bool connected = reply.verdict == Verdict::kAny || reply.verdict == Verdict::kConnected;
    require(connected == static_cast<bool>(connection));
    require((reply.verdict == Verdict::kRefused || reply.verdict == Verdict::kFailed) ==
                (reply.why != Why::kNone) ||
            reply.verdict == Verdict::kResolved);
  }
  void self_tested() override {}

  std::deque<std::uint64_t> look_ups;
  std::deque<std::uint64_t> dials;
};

constexpr const char* kNames[] = {
    "example.com",  "git.example.com", "a.wild.net",  "wild.net",
    "evil.com",     "evilwild.net",    "lan.example", "host.temenos.internal",
    "127.0.0.1",    "10.1.2.3",        "::1",         "localhost",
    "EXAMPLE.com.", "203.0.113.7"};
constexpr const char* kAddresses[] = {"127.0.0.1",        "203.0.113.5", "10.1.2.3",
                                      "10.2.3.4",         "8.8.8.8",     "169.254.169.254",
                                      "198.18.1.0",       "198.18.1.1",  "198.19.1.0",
                                      "64:ff9b::a01:203", "::1",         "2606:4700::1",
                                      "64:ff9b::7f00:1",  "198.18.0.5",  "fd00:ec2::254"};
constexpr std::uint16_t kPorts[] = {443, 80, 22, 5432, 8080, 8443, 53, 0};

class Input {
 public:
  Input(const std::uint8_t* data, std::size_t size) : data_(data), size_(size) {}
  bool more() const { return at_ < size_; }
  std::uint8_t byte() { return at_ < size_ ? data_[at_++] : std::uint8_t{0}; }
  template <typename T, std::size_t N>
  T pick(T const (&from)[N]) {
    return from[byte() % N];
  }
  void fill(void* into, std::size_t size) {
    auto* const bytes = static_cast<std::uint8_t*>(into);
    for (std::size_t i = 0; i < size; ++i) bytes[i] = byte();
  }

 private:
  const std::uint8_t* data_;
  std::size_t size_;
  std::size_t at_ = 0;
};

Request request(Input& in) {
  Request out{.id = in.byte(), .ask = static_cast<Ask>(in.byte() % 6), .port = in.pick(kPorts)};
  out.why = static_cast<Why>(in.byte() % 24);
  out.app = static_cast<App>(in.byte() % 5);
  const std::uint8_t how = in.byte();
  if (how % 3 == 0) {
    const AddressBlock address = *parse_address(in.pick(kAddresses));
    out.family = address.v4 ? Family::kV4 : Family::kV6;
    std::memcpy(out.address, address.bytes.data(), sizeof out.address);
  } else if (how % 3 == 1) {
    const std::string_view name = in.pick(kNames);
    out.name_size = static_cast<std::uint8_t>(name.size());
    std::memcpy(out.name, name.data(), name.size());
  } else {
    out.family = static_cast<Family>(in.byte() % 8);
    in.fill(out.address, sizeof out.address);
    out.name_size = in.byte();
    in.fill(out.name, std::min<std::size_t>(out.name_size, 40));
  }
  return out;
}

UniqueFd memory(std::size_t size) {
  UniqueFd fd(memfd_create("fuzz", MFD_CLOEXEC));
  require(ftruncate(fd.get(), static_cast<off_t>(size)) == 0);
  return fd;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const UniqueFd file = memory(NameTable::kBytes);
  require(pwrite(file.get(), "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 16, 0) == 16);  // empty again
  auto names = NameTable::open(file.get());
  require(static_cast<bool>(names));
  Log log({memory(0), memory(0)});
  World world;
  Engine engine(world, *names, log, [](const AddressBlock& address) {
    return Route{.own = format_block(address) == "93.184.216.34"};
  });
  require(static_cast<bool>(engine.set_rules(kRules)));
  Input in(data, size);
  for (std::int64_t now = 1; in.more(); now += 100) {
    const std::uint8_t what = in.byte();
    if (what % 4 == 0 && !world.look_ups.empty()) {
      std::vector<AddressBlock> addresses;
      for (int i = in.byte() % 20; i > 0; --i)
        addresses.push_back(*parse_address(in.pick(kAddresses)));
      const std::uint64_t ticket = world.look_ups.front();
      world.look_ups.pop_front();
      engine.on_looked_up(ticket, static_cast<LookUpStatus>(in.byte() % 4), addresses, now);
    } else if (what % 4 == 1 && !world.dials.empty()) {
      const std::uint64_t ticket = world.dials.front();
      world.dials.pop_front();
      Connected connected{.address = *parse_address("8.8.8.8"), .sys_errno = in.byte()};
      if (connected.sys_errno % 2 == 0)
        connected.fd = UniqueFd(fcntl(file.get(), F_DUPFD_CLOEXEC, 3));
      connected.own = connected.sys_errno % 8 == 7;
      engine.on_connected(ticket, std::move(connected), now);
    } else {
      const Request one = request(in);
      (void)engine.on_request({reinterpret_cast<const std::uint8_t*>(&one), sizeof one}, now);
    }
    require(engine.outstanding() <= kMaxOutstanding);
    if (what == 0xff) engine.drop_front();
    if (what == 0xfe) {
      // The list is what it was: all that was allowed is.
      engine.end_refused();
      require(engine.ending() == 0);
    }
  }
  return 0;
}
