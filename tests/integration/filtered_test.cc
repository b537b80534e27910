// A box whose network is filtered, from inside: gVisor's own stack on the link to the router. What
// front serves is taken from keeper and served by the test, while front stands still.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <future>

#include "egress/netns_answer.h"
#include "sys/file_sys.h"
#include "sys/process_sys.h"
#include "temenos/box_manager.h"
#include "temenos/policy_builder.h"
#include "tests/integration/durable_box.h"
#include "tests/integration/live_box.h"

namespace temenos::testing {
namespace {

using ::testing::HasSubstr;

constexpr char kListening[] =
    "import socket,sys,time\n"
    "def tcp(host, port):\n"
    "  s = socket.create_connection((host, port), 10)\n"
    "  s.sendall(b'ping')\n"
    "  print(s.recv(100).decode())\n"
    "def udp(host, port):\n"
    "  s = socket.socket(socket.AF_INET6 if ':' in host else socket.AF_INET, socket.SOCK_DGRAM)\n"
    "  s.settimeout(10); s.connect((host, port)); s.send(b'ping')\n"
    "  begin = time.monotonic()\n"
    "  try: print(s.recv(100).decode())\n"
    "  except ConnectionRefusedError: print('refused', time.monotonic() - begin < soon)\n";

class FilteredTest : public LiveBoxTest {
 protected:
  NetworkMode network() const override { return NetworkMode::kFiltered; }

  void SetUp() override {
    LiveBoxTest::SetUp();
    if (HasFatalFailure()) return;
    take_listeners();
  }
  void TearDown() override {
    for (auto& listener : listeners_) listener.reset();
    LiveBoxTest::TearDown();
  }
  std::string python(const std::string& script, const std::string& before = "exec") {
    return output_of(before + " python3 - <<'EOF'\nsoon = " + std::to_string(0.5 * slowness()) +
                     "\n" + kListening + script + "\nEOF\n");
  }
  std::future<std::string> python_beside(const std::string& script) {
    return std::async(std::launch::async, [this, script] { return python(script); });
  }
  // Says what the client asked for and where it thought to go.
  void serve_tcp(std::size_t listener) {
    pollfd ready{listeners_[listener].get(), POLLIN, 0};
    ASSERT_EQ(poll(&ready, 1, 20'000), 1) << "nobody has connected";
    const UniqueFd fd(accept4(listeners_[listener].get(), nullptr, nullptr, SOCK_CLOEXEC));
    ASSERT_TRUE(fd);
    char data[8];
    ASSERT_EQ(recv(fd.get(), data, sizeof data, 0), 4);
    const std::string told = destination(fd.get());
    ASSERT_EQ(send(fd.get(), told.data(), told.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(told.size()));
  }

  netns::Listeners listeners_;

 private:
  static std::string destination(int fd) {
    sockaddr_in6 address{};
    socklen_t size = sizeof address;
    EXPECT_EQ(getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size), 0);
    char host[INET6_ADDRSTRLEN] = "";
    if (address.sin6_family == AF_INET) {
      const auto& in = reinterpret_cast<const sockaddr_in&>(address);
      inet_ntop(AF_INET, &in.sin_addr, host, sizeof host);
    } else {
      inet_ntop(AF_INET6, &address.sin6_addr, host, sizeof host);
    }
    return "for " + std::string(host) + " " + std::to_string(ntohs(address.sin6_port));
  }

  // Keeper has six sockets of the internet's kinds in a row, and no others.
  void take_listeners() {
    const pid_t keeper = box_processes(getpid()).keeper;
    ASSERT_GT(keeper, 0);
    // Front would take them first.
    const std::string front =
        host_shell("pgrep -x -P " + std::to_string(keeper) + " temenos-front");
    ASSERT_FALSE(front.empty());
    ASSERT_EQ(kill(atoi(front.c_str()), SIGSTOP), 0);
    const auto pidfd = sys::open_pidfd(keeper);
    ASSERT_TRUE(pidfd);
    std::vector<UniqueFd> found;
    for (int number = 0; number < 64; ++number) {
      UniqueFd fd(static_cast<int>(syscall(SYS_pidfd_getfd, pidfd->get(), number, 0)));
      ASSERT_TRUE(fd || errno == EBADF) << strerror(errno);
      int domain = 0;
      socklen_t size = sizeof domain;
      if (fd && getsockopt(fd.get(), SOL_SOCKET, SO_DOMAIN, &domain, &size) == 0 &&
          (domain == AF_INET || domain == AF_INET6)) {
        found.push_back(std::move(fd));
      }
    }
    auto listeners = egress::checked_listeners(std::move(found));
    ASSERT_TRUE(listeners) << listeners.error().to_string();
    listeners_ = std::move(*listeners);
  }
};
INSTANTIATE_TEST_SUITE_P(Each, FilteredTest, ::testing::ValuesIn(platforms()),
                         [](const auto& info) { return info.param; });

TEST_P(FilteredTest, TheBoxSeesOneLinkWithItsAddresses) {
  EXPECT_EQ(python("print(sorted(name for _, name in socket.if_nameindex()))"), "['eth0', 'lo']\n");
  EXPECT_EQ(output_of("cat /etc/resolv.conf"), "nameserver 198.18.0.1\n");
  EXPECT_THAT(output_of("cat /proc/net/if_inet6"), HasSubstr("fd74656d656e6f730000000000000002 "));
  EXPECT_EQ(python("for host in '1.2.3.4', '2001:db8::1':\n"
                   "  s = socket.socket(socket.AF_INET6 if ':' in host else socket.AF_INET,\n"
                   "                    socket.SOCK_DGRAM)\n"
                   "  s.connect((host, 9)); print(s.getsockname()[0])"),
            "198.18.0.2\nfd74:656d:656e:6f73::2\n");
}

TEST_P(FilteredTest, WhereAClientConnectsToIsKnown) {
  struct {
    const char* host;
    int port;
    std::size_t listener;
  } const rows[] = {{"1.2.3.4", 5, 0},     {"198.18.0.1", 3128, 0},
                    {"2001:db8::1", 5, 1}, {"fd74:656d:656e:6f73:0:1:0:7", 443, 1},
                    {"9.9.9.9", 53, 4},    {"2620:fe::fe", 53, 5}};
  for (const auto& row : rows) {
    auto client =
        python_beside("tcp('" + std::string(row.host) + "', " + std::to_string(row.port) + ")");
    serve_tcp(row.listener);
    EXPECT_EQ(client.get(), "for " + std::string(row.host) + " " + std::to_string(row.port) + "\n");
  }
}

TEST_P(FilteredTest, OtherUdpIsRefusedAtOnce) {
  EXPECT_EQ(python("for host in '1.1.1.1', '198.18.0.1', '2606:4700::1111':\n"
                   "  for port in 443, 123, 1024: udp(host, port)"),
            "refused True\nrefused True\nrefused True\nrefused True\nrefused True\nrefused True\n"
            "refused True\nrefused True\nrefused True\n");
}

// A process of the box may make namespaces in the sentry, and has every right there. It gets a
// stack of its own, which leads nowhere.
TEST_P(FilteredTest, NamespacesInTheBoxLeadNowhere) {
  EXPECT_EQ(python("raw = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)\n"
                   "packet = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0x300)\n"
                   "print([name for _, name in socket.if_nameindex()])\n"
                   "for s in raw, socket.socket():\n"
                   "  try: s.connect(('1.2.3.4', 5)); s.send(b'x'); print('sent')\n"
                   "  except OSError as error: print(error.errno)",
                   "unshare -Urmn"),
            "['lo']\n113\n113\n");
  for (const auto& listener : listeners_) {
    pollfd ready{listener.get(), POLLIN, 0};
    EXPECT_EQ(poll(&ready, 1, 0), 0);
  }
}

// The sandbox takes the addresses off the link, so each start makes it anew.
class FilteredLife : public DurableBoxTest {};

TEST_F(FilteredLife, EachStartOfABoxHasANetwork) {
  enter_host();
  auto boxes = BoxManager::open();
  ASSERT_TRUE(boxes);
  auto box = boxes->create({"", "box"}, *Policy::Builder().build());
  ASSERT_TRUE(box) << box.error().to_string();
  ExecRequest request;
  request.argv = {"cat", "/proc/net/if_inet6"};
  for (int i = 0; i < 2; ++i) {
    const auto seen = box->exec(request);
    ASSERT_TRUE(seen) << seen.error().to_string();
    EXPECT_THAT(seen->stdout_data, HasSubstr("fd74656d656e6f730000000000000002 "));
    EXPECT_TRUE(box->stop());
  }
}

TEST_F(FilteredLife, WithoutItsNetworkThereIsNoBox) {
  // A program that only ends stands for all that can go wrong with it; and one that says why.
  const std::string bin = temenos_program().substr(0, temenos_program().rfind('/'));
  const std::string prefix = host_.dir("prefix");
  host_shell("cp -r " + bin + "/../bin " + bin + "/../libexec " + prefix + "/ && cp /bin/false " +
             prefix + "/libexec/temenos/temenos-netsetup && chmod -R a+rX " + prefix);
  setenv("TEMENOS_BIN", (prefix + "/bin/temenos").c_str(), 1);
  const auto result = host_.temenos({"run", "--net", "filtered", "--", "true"});
  host_shell("cp " + guest("fake_netsetup") + " " + prefix + "/libexec/temenos/temenos-netsetup");
  const auto told = host_.temenos({"run", "--net", "filtered", "--", "true"});
  setenv("TEMENOS_BIN", (bin + "/temenos").c_str(), 1);
  expect_error(result, 125, {"cannot have a filtered network", "netsetup ended without an answer"});
  expect_error(told, 125, {"cannot have a filtered network", "no TPROXY here", "sudo modprobe x"});
}

// At once, and in words that lead to the cause: no time-out, and nothing of sockets.
TEST_F(FilteredLife, APartOfItsNetworkThatCannotRunIsNamed) {
  const std::string bin = temenos_program().substr(0, temenos_program().rfind('/'));
  const std::string prefix = host_.dir("prefix");
  const std::string libexec = prefix + "/libexec/temenos/";
  host_shell("cp -r " + bin + "/../bin " + bin + "/../libexec " + prefix + "/ && chmod -R a+rX " +
             prefix);
  for (const std::string part : {"temenos-dialer", "temenos-front"}) {
    SCOPED_TRACE(part);
    setenv("TEMENOS_BIN", (prefix + "/bin/temenos").c_str(), 1);
    const auto run = [this] { return host_.temenos({"run", "--net", "filtered", "--", "true"}); };
    host_shell("cd " + libexec + " && mv " + part + " kept && cp /bin/false " + part);
    const auto ended = run();
    host_shell("cd " + libexec + " && rm " + part + " && echo no program > " + part +
               " && chmod 755 " + part);
    const auto no_program = run();
    host_shell("cd " + libexec + " && mv kept " + part);
    const auto whole = run();
    setenv("TEMENOS_BIN", (bin + "/temenos").c_str(), 1);
    expect_error(ended, 125,
                 {"the box's network does not start", part + " has ended with status 1",
                  libexec + part + " --version"});
    expect_error(no_program, 125,
                 {"the box's network does not start", part + " cannot be executed"});
    EXPECT_EQ(whole.status, 0) << whole.err;
  }
}

}  // namespace
}  // namespace temenos::testing
