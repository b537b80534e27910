#include "tests/integration/netns_fixture.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/try.h"
#include "keeper/id_plan.h"
#include "keeper/messages.h"
#include "keeper/network_start.h"
#include "testing/cli.h"

namespace temenos::testing {

void must(bool condition, const std::string& what) {
  if (condition) return;
  fprintf(stderr, "%s: %s\n", what.c_str(), strerror(errno));
  _exit(1);
}

Endpoint endpoint(const std::string& host, unsigned port) {
  Endpoint out;
  if (host.find(':') == std::string::npos) {
    auto* in = reinterpret_cast<sockaddr_in*>(&out.address);
    in->sin_family = AF_INET;
    in->sin_port = htons(static_cast<std::uint16_t>(port));
    EXPECT_EQ(inet_pton(AF_INET, host.c_str(), &in->sin_addr), 1) << host;
    out.size = sizeof *in;
  } else {
    auto* in = reinterpret_cast<sockaddr_in6*>(&out.address);
    in->sin6_family = AF_INET6;
    in->sin6_port = htons(static_cast<std::uint16_t>(port));
    EXPECT_EQ(inet_pton(AF_INET6, host.c_str(), &in->sin6_addr), 1) << host;
    out.size = sizeof *in;
  }
  return out;
}

std::string text_of(const sockaddr_storage& address) {
  char text[INET6_ADDRSTRLEN] = "";
  if (address.ss_family == AF_INET) {
    const auto& in = reinterpret_cast<const sockaddr_in&>(address);
    inet_ntop(AF_INET, &in.sin_addr, text, sizeof text);
    return std::string(text) + " " + std::to_string(ntohs(in.sin_port));
  }
  const auto& in = reinterpret_cast<const sockaddr_in6&>(address);
  inet_ntop(AF_INET6, &in.sin6_addr, text, sizeof text);
  return std::string(text) + " " + std::to_string(ntohs(in.sin6_port));
}

void NetnsTest::SetUp() {
  auto listeners = start();
  ASSERT_TRUE(listeners) << listeners.error().to_string();
  listeners_ = std::move(*listeners);
}

void NetnsTest::TearDown() {
  control_.reset();
  holder_.wait();
}

Result<netns::Listeners> NetnsTest::start(const std::function<void()>& prepare) {
  TearDown();
  const std::string bin = temenos_program().substr(0, temenos_program().rfind('/'));
  const std::string path = bin + "/../libexec/temenos/temenos-netsetup";
  const UniqueFd program(open(path.c_str(), O_PATH | O_CLOEXEC));
  if (!program) return fail_errno(errno, path);
  auto [here, there] = TRY(sys::socket_pair(SOCK_SEQPACKET));
  UniqueFd pidfd;
  const pid_t pid = TRY(sys::raw_fork(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWNET, &pidfd));
  if (pid == 0) {
    here.reset();
    const auto mapped = keeper::receive_message(there.get());
    must(mapped && sys::become_namespace_root() && sys::die_with_parent(), "becoming root");
    if (prepare) prepare();
    keeper::NetworkStart network;
    auto done = network.begin(program.get());
    if (done) done = network.finish(there.get());
    if (!done) (void)keeper::send_message(there.get(), keeper::failure(done.error()));
    (void)keeper::receive_message(there.get());  // until the test has ended
    _exit(0);
  }
  there.reset();
  holder_ = sys::Process(pid, std::move(pidfd));
  control_ = std::move(here);
  TRY(keeper::apply_ids(keeper::plan_ids(), pid));
  TRY(keeper::send_message(control_.get(), {}));
  auto received = TRY(keeper::receive_message_with_fds(control_.get(), netns::kListeners));
  if (received.message.kind != keeper::Message::kNetwork) {
    return tl::make_unexpected(keeper::to_error(received.message));
  }
  const std::string ns = "/proc/" + std::to_string(pid) + "/ns/";
  user_ns_.reset(open((ns + "user").c_str(), O_RDONLY | O_CLOEXEC));
  box_ns_.reset(open((ns + "net").c_str(), O_RDONLY | O_CLOEXEC));
  if (!user_ns_ || !box_ns_) return fail_errno(errno, ns);
  return egress::checked_listeners(std::move(received.fds));
}

sys::Process NetnsTest::go(Place place, const std::function<int()>& act) {
  auto process = sys::start_in_namespaces(0, [&] {
    must(setns(user_ns_.get(), CLONE_NEWUSER) == 0, "entering the user namespace");
    const int net = place == Place::kBox ? box_ns_.get() : ioctl(listeners_[0].get(), SIOCGSKNS);
    must(net >= 0 && setns(net, CLONE_NEWNET) == 0, "entering the network namespace");
    must(sys::become_namespace_root().has_value() && sys::die_with_parent().has_value(), "root");
    return act();
  });
  EXPECT_TRUE(process);
  return process ? std::move(*process) : sys::Process();
}

void NetnsTest::in(Place place, const std::function<int()>& act) { expect_well(go(place, act)); }

void NetnsTest::expect_well(sys::Process process) {
  pollfd fd{process.pidfd(), POLLIN, 0};
  EXPECT_EQ(poll(&fd, 1, 60'000), 1) << "it does not end";
  process.send(SIGKILL);
  const auto status = process.wait();
  EXPECT_TRUE(status && status->code == 0) << "it failed; its words are above";
}

bool NetnsTest::readable(int fd, int milliseconds) {
  pollfd poll_fd{fd, POLLIN, 0};
  return poll(&poll_fd, 1, milliseconds) == 1;
}

UniqueFd NetnsTest::accepted(const UniqueFd& listener) {
  EXPECT_TRUE(readable(listener.get())) << "nobody has connected";
  UniqueFd fd(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  EXPECT_TRUE(fd) << strerror(errno);
  return fd;
}

}  // namespace temenos::testing
