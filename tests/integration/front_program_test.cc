// temenos-front as keeper starts it: jailed, with listeners that take what is sent to any address
// of a network of the test's own, as the router's do.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <thread>

#include "sys/file_sys.h"
#include "sys/process_sys.h"
#include "testing/front_bed.h"
#include "testing/tcp.h"
#include "testing/tls_bytes.h"

namespace temenos {
namespace {

using namespace egress;
using namespace temenos::testing;
using namespace std::chrono_literals;

constexpr std::uint16_t kPort = 443;
constexpr const char* kRouter6Text = "fd74:656d:656e:6f73::1";
constexpr const char* kAsked6 = "fd74:656d:656e:6f73:0:1:0:9";

std::string question_for(std::string_view host) {
  return number(2, 7) + number(2, 0x0100) + number(2, 1) + std::string(6, '\0') + sized(1, host) +
         sized(1, "test") + number(1, 0) + number(2, 1) + number(2, 1);
}

// An own network namespace, whose loopback has all of the addresses that a box sees. Root keeps its
// id, which front gives up.
void enter_network() {
  const uid_t uid = geteuid();
  const gid_t gid = getegid();
  must(unshare(CLONE_NEWNET | (uid == 0 ? 0 : CLONE_NEWUSER)) == 0);
  if (uid != 0) {
    const sys::IdMapLine users{uid, uid, 1};
    const sys::IdMapLine groups{gid, gid, 1};
    must(static_cast<bool>(sys::write_id_maps(getpid(), {&users, 1}, {&groups, 1}, true)));
  }
  const UniqueFd fd(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq request{};
  std::strcpy(request.ifr_name, "lo");
  request.ifr_flags = IFF_UP;
  must(ioctl(fd.get(), SIOCSIFFLAGS, &request) == 0);
  auto set = [&](unsigned long what, const char* text) {
    ifreq address{};
    std::strcpy(address.ifr_name, "lo:1");
    auto& at = reinterpret_cast<sockaddr_in&>(address.ifr_addr);
    at.sin_family = AF_INET;
    must(inet_pton(AF_INET, text, &at.sin_addr) == 1);
    must(ioctl(fd.get(), what, &address) == 0);
  };
  // On loopback every address of the prefix is the own one.
  set(SIOCSIFADDR, "198.18.0.1");
  set(SIOCSIFNETMASK, "255.254.0.0");
  const UniqueFd six(socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  for (const char* text : {kRouter6Text, kAsked6}) {
    struct {
      in6_addr address;
      std::uint32_t prefix;
      int index;
    } more{.prefix = 128, .index = static_cast<int>(if_nametoindex("lo"))};
    must(inet_pton(AF_INET6, text, &more.address) == 1);
    must(ioctl(six.get(), SIOCSIFADDR, &more) == 0);
  }
}

std::string program() {
  const std::string self = *sys::resolve("/proc/self/exe");
  return self.substr(0, self.rfind('/')) + "/../libexec/temenos/temenos-front";
}

class FrontProgram : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    // Once a process; the other suite is in it as well.
    static const bool entered = (enter_network(), true);
    (void)entered;
  }
  explicit FrontProgram(bool six = false)
      : bed([six] {
          FrontBed::Options options;
          options.program = program();
          options.at = "198.18.1.7";
          options.port = kPort;
          options.six = six;
          return options;
        }()) {}
  ~FrontProgram() override {
    EXPECT_TRUE(bed.back_to_its_start()) << bed.open_fds();
    EXPECT_EQ(bed.end(), 0);
  }
  UniqueFd connect_to(const char* address, std::uint16_t port) {
    UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in at{.sin_family = AF_INET, .sin_port = htons(port)};
    must(inet_pton(AF_INET, address, &at.sin_addr) == 1);
    must(::connect(fd.get(), reinterpret_cast<sockaddr*>(&at), sizeof at) == 0);
    return fd;
  }
  // KiB of front's memory that is its own; 0 for who may not look.
  long own_memory() const {
    const auto text = sys::read_path("/proc/" + std::to_string(bed.pid()) + "/smaps_rollup", 8192);
    const auto at = text ? text->find("Pss:") : std::string::npos;
    return at == std::string::npos ? 0 : std::stol(text->substr(at + 4));
  }
  LoopbackListener server;
  FrontBed bed;
};

TEST_F(FrontProgram, ForwardsToWhereTheClientMeantAndNowhereElse) {
  bed.dialer().rule("198.18.1.7:443",
                    {.verdict = Verdict::kNeedsTls, .name = "a.test", .server = server.port});
  const UniqueFd client = connect_to("198.18.1.7", kPort);
  ASSERT_TRUE(send_text(client.get(), tls_hello("a.test")));
  const UniqueFd far = server.accept_one();
  EXPECT_EQ(hear(far.get(), tls_hello("a.test").size()).text, tls_hello("a.test"));
  std::string down(4u << 20, 'd');
  std::thread sender([&] { send_text(far.get(), down); });
  EXPECT_TRUE(hear(client.get(), down.size(), 20'000).text == down);
  sender.join();
  const UniqueFd other = connect_to("198.19.250.3", kPort);
  ASSERT_TRUE(send_text(other.get(), tls_hello("a.test")));
  EXPECT_EQ(hear(other.get()).text, std::string("\x15\x03\x03\x00\x02\x02\x31", 7));
  const auto asks = bed.dialer().asks(3);
  ASSERT_EQ(asks.size(), 3u);
  EXPECT_EQ(front::address_text(asks[2].family, asks[2].address), "198.19.250.3");
  EXPECT_EQ(asks[2].port, kPort);
}

TEST_F(FrontProgram, TheProxyIsAtTheRoutersAddressOnly) {
  bed.dialer().rule("a.test:22", {.verdict = Verdict::kAny, .server = server.port});
  const UniqueFd proxy = bed.connect_proxy();
  ASSERT_TRUE(send_text(proxy.get(), "CONNECT a.test:22 HTTP/1.1\r\nHost: a.test:22\r\n\r\n"));
  EXPECT_EQ(hear(proxy.get(), 12).text, "HTTP/1.1 200");
  const UniqueFd far = server.accept_one();
  ASSERT_TRUE(far);
}

TEST_F(FrontProgram, NamesAreAnsweredFromTheAddressThatWasAsked) {
  bed.dialer().name("a.test", 7, true);
  const UniqueFd udp(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_in at{.sin_family = AF_INET, .sin_port = htons(53)};
  ASSERT_EQ(inet_pton(AF_INET, "198.18.77.9", &at.sin_addr), 1);
  const std::string question = question_for("a");
  // Not connected: the kernel lets any answer through, and the test says from where it came.
  ASSERT_EQ(sendto(udp.get(), question.data(), question.size(), 0, reinterpret_cast<sockaddr*>(&at),
                   sizeof at),
            static_cast<ssize_t>(question.size()));
  pollfd entry{udp.get(), POLLIN, 0};
  ASSERT_EQ(poll(&entry, 1, 5'000), 1);
  char answer[512];
  sockaddr_in from{};
  socklen_t size = sizeof from;
  const ssize_t count =
      recvfrom(udp.get(), answer, sizeof answer, 0, reinterpret_cast<sockaddr*>(&from), &size);
  ASSERT_GT(count, 12);
  EXPECT_EQ(std::string(answer + count - 4, 4), "\xC6\x12\x01\x07");
  EXPECT_EQ(from.sin_addr.s_addr, at.sin_addr.s_addr);
  EXPECT_EQ(from.sin_port, at.sin_port);
}

class FrontProgramSix : public FrontProgram {
 protected:
  FrontProgramSix() : FrontProgram(true) {}
  static sockaddr_in6 at(const char* text, std::uint16_t port) {
    sockaddr_in6 out{.sin6_family = AF_INET6, .sin6_port = htons(port)};
    must(inet_pton(AF_INET6, text, &out.sin6_addr) == 1);
    return out;
  }
};

TEST_F(FrontProgramSix, ConnectionsAndNamesOverIpv6) {
  bed.dialer().rule(std::string("fd74:656d:656e:6f73:0:1:0:9:443"),
                    {.verdict = Verdict::kAny, .name = "a.test", .server = server.port});
  bed.dialer().name("a.test", 7, true);
  const UniqueFd client(socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in6 asked = at(kAsked6, kPort);
  ASSERT_EQ(::connect(client.get(), reinterpret_cast<sockaddr*>(&asked), sizeof asked), 0);
  const UniqueFd far = server.accept_one();
  ASSERT_TRUE(far);
  ASSERT_TRUE(send_text(far.get(), "hello"));
  EXPECT_EQ(hear(client.get(), 5).text, "hello");
  EXPECT_EQ(bed.dialer().asks()[0].family, Family::kV6);

  // From an address for whose answers the kernel would choose another one.
  const UniqueFd udp(socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const sockaddr_in6 own = at(kRouter6Text, 0);
  ASSERT_EQ(bind(udp.get(), reinterpret_cast<const sockaddr*>(&own), sizeof own), 0);
  asked.sin6_port = htons(53);
  const std::string question = question_for("a");
  ASSERT_EQ(sendto(udp.get(), question.data(), question.size(), 0,
                   reinterpret_cast<sockaddr*>(&asked), sizeof asked),
            static_cast<ssize_t>(question.size()));
  pollfd entry{udp.get(), POLLIN, 0};
  ASSERT_EQ(poll(&entry, 1, 5'000), 1);
  char answer[512];
  sockaddr_in6 from{};
  socklen_t size = sizeof from;
  ASSERT_GT(
      recvfrom(udp.get(), answer, sizeof answer, 0, reinterpret_cast<sockaddr*>(&from), &size), 12);
  EXPECT_EQ(std::memcmp(&from.sin6_addr, &asked.sin6_addr, 16), 0);
}

TEST_F(FrontProgram, AThousandIdleConnectionsAreSmall) {
  const long alone = own_memory();
  bed.dialer().rule("198.18.1.7:443",
                    {.verdict = Verdict::kAny, .name = "a.test", .server = server.port});
  std::vector<std::pair<UniqueFd, UniqueFd>> all;
  for (int i = 0; i < 1'000; ++i) {
    UniqueFd client = bed.connect();
    all.emplace_back(std::move(client), server.accept_one());
    ASSERT_TRUE(all.back().second);
    ASSERT_TRUE(send_text(all.back().first.get(), "\n"));
    ASSERT_EQ(hear(all.back().second.get(), 1).text, "\n");
  }
  const long many = own_memory();
  RecordProperty("pss_kib", static_cast<int>(alone));
  RecordProperty("pss_kib_1000_connections", static_cast<int>(many));
  std::printf("PSS %ld KiB, with 1,000 idle connections %ld KiB\n", alone, many);
#if !defined(__has_feature) || !__has_feature(address_sanitizer)
  EXPECT_LT(alone, 2'048);
  EXPECT_LT(many - alone, 2'048);
#endif
}

}  // namespace
}  // namespace temenos
