#include "jail/dialer_jail.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <string>

#include "sys/file_sys.h"
#include "sys/process_sys.h"

namespace temenos::jail {
namespace {

TEST(DialerJail, RefusesEveryAttemptFromInside) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  const UniqueFd reader(ends[0]);
  UniqueFd writer(ends[1]);
  const int out = writer.get();
  auto child = sys::start_in_namespaces(0, [out] {
    const auto jailed = enter_dialer_jail(4096);
    std::string report = jailed ? "" : "JAIL " + jailed.error().to_string() + "\n";
    if (jailed) {
      for (const auto& one : probe_dialer_jail()) {
        if (!one.refused) report += one.attempt + "\n";
      }
      report += "done\n";
    }
    return write(out, report.data(), report.size()) == static_cast<ssize_t>(report.size()) ? 0 : 1;
  });
  ASSERT_TRUE(child);
  writer.reset();
  EXPECT_EQ(*sys::read_all(reader.get(), 65536), "done\n");
  EXPECT_EQ(child->wait()->code, 0);
}

// 0, or the number of the step that did not go as it must.
int dialer_calls(const sockaddr_in& listener, int segment) {
  std::signal(SIGXFSZ, SIG_IGN);
  if (!enter_dialer_jail(4096)) return 1;
  const UniqueFd tcp(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (connect(tcp.get(), reinterpret_cast<const sockaddr*>(&listener), sizeof listener) != 0) {
    return 2;
  }
  sockaddr_in own{};
  socklen_t size = sizeof own;
  if (getsockname(tcp.get(), reinterpret_cast<sockaddr*>(&own), &size) != 0) return 3;
  const int on = 1;
  if (setsockopt(tcp.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) != 0) return 4;
  const UniqueFd udp(socket(AF_INET6, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!udp && errno != EAFNOSUPPORT) return 5;
  // The log goes on, and no further than its bound.
  if (write(segment, "line", 4) != 4) return 6;
  if (ftruncate(segment, 0) != 0) return 7;
  if (ftruncate(segment, 4097) == 0 || errno != EFBIG) return 8;
  return 0;
}

TEST(DialerJail, HasWhatDialingNeeds) {
  const UniqueFd listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in at{.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
  socklen_t size = sizeof at;
  ASSERT_EQ(bind(listener.get(), reinterpret_cast<sockaddr*>(&at), size), 0);
  ASSERT_EQ(listen(listener.get(), 1), 0);
  ASSERT_EQ(getsockname(listener.get(), reinterpret_cast<sockaddr*>(&at), &size), 0);
  std::string path = "/tmp/temenos-dialer-jail-XXXXXX";
  const UniqueFd segment(mkostemp(path.data(), O_CLOEXEC | O_APPEND));
  ASSERT_TRUE(segment);
  unlink(path.c_str());
  auto child = sys::start_in_namespaces(0, [&] { return dialer_calls(at, segment.get()); });
  ASSERT_TRUE(child);
  EXPECT_EQ(child->wait()->code, 0);
}

}  // namespace
}  // namespace temenos::jail
