#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "jail/dialer_jail.h"
#include "jail/front_jail.h"
#include "jail/runsc_filter.h"
#include "jail/session_jail.h"
#include "sys/file_sys.h"
#include "sys/process_sys.h"

namespace temenos::jail {
namespace {

// What of `probe` was not refused after `enter`, a line each, then "done".
template <typename Enter, typename Probe>
void expect_all_refused(Enter enter, Probe probe_jail) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  const UniqueFd reader(ends[0]);
  UniqueFd writer(ends[1]);
  const int out = writer.get();
  auto child = sys::start_in_namespaces(0, [&] {
    const auto jailed = enter();
    std::string report = jailed ? "" : "JAIL " + jailed.error().to_string() + "\n";
    if (jailed) {
      for (const auto& probe : probe_jail()) {
        if (!probe.refused) report += probe.attempt + "\n";
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

TEST(SessionJail, RefusesEveryAttemptFromInside) {
  expect_all_refused([] { return enter_session_jail(); }, probe_session_jail);
}

TEST(FrontJail, RefusesEveryAttemptFromInside) {
  expect_all_refused([] { return enter_front_jail(64, {}); }, probe_front_jail);
}

// Keeper's death is seen at a socket by who still reads it; who is the box's by now does not.
template <typename Enter>
void expect_end_with_parent(Enter enter) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  const UniqueFd reader(ends[0]);
  UniqueFd writer(ends[1]);
  const int out = writer.get();
  auto parent = sys::start_in_namespaces(0, [&] {
    auto child = sys::start_in_namespaces(0, [&] {
      alarm(60);  // whatever happens
      const char word = enter() ? 'j' : 'f';
      if (write(out, &word, 1) != 1) return 1;
      for (;;) (void)poll(nullptr, 0, -1);
    });
    for (;;) pause();
    return child ? 0 : 1;
  });
  ASSERT_TRUE(parent);
  writer.reset();
  char word = 0;
  ASSERT_EQ(read(reader.get(), &word, 1), 1);
  ASSERT_EQ(word, 'j');
  parent->send(SIGKILL);
  parent->wait();
  // The last writer has gone.
  pollfd gone{reader.get(), POLLIN, 0};
  EXPECT_EQ(poll(&gone, 1, 10'000), 1);
}

TEST(EveryJail, EndsWithKeeper) {
  expect_end_with_parent([] { return enter_session_jail().has_value(); });
  expect_end_with_parent([] { return enter_front_jail(64, {}).has_value(); });
  expect_end_with_parent([] { return enter_dialer_jail(0).has_value(); });
}

// 0, or the number of the step that did not go as it must.
int front_calls(int listener, int nobody_listens) {
  if (!enter_front_jail(64, {})) return 1;
  const UniqueFd accepted(accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (!accepted) return 2;
  sockaddr_in own{};
  socklen_t size = sizeof own;
  if (getsockname(accepted.get(), reinterpret_cast<sockaddr*>(&own), &size) != 0) return 3;
  int ends[2];
  if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) return 4;
  if (fcntl(ends[1], F_SETPIPE_SZ, 128 * 1024) < 128 * 1024) return 5;
  if (splice(accepted.get(), nullptr, ends[1], nullptr, 100, SPLICE_F_NONBLOCK) != 5) return 6;
  if (splice(ends[0], nullptr, accepted.get(), nullptr, 5, SPLICE_F_NONBLOCK) != 5) return 7;
  const linger at_once{1, 0};
  if (setsockopt(accepted.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once) != 0) return 8;
  const unsigned ms = 1;
  if (setsockopt(accepted.get(), IPPROTO_TCP, TCP_USER_TIMEOUT, &ms, sizeof ms) != 0) return 9;
  // A socket that it was handed leads nowhere else.
  if (connect(nobody_listens, reinterpret_cast<sockaddr*>(&own), size) == 0 || errno != EPERM)
    return 10;
  return 0;
}

TEST(FrontJail, HasWhatForwardingNeeds) {
  const UniqueFd listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in at{.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
  socklen_t size = sizeof at;
  ASSERT_EQ(bind(listener.get(), reinterpret_cast<sockaddr*>(&at), size), 0);
  ASSERT_EQ(getsockname(listener.get(), reinterpret_cast<sockaddr*>(&at), &size), 0);
  ASSERT_EQ(listen(listener.get(), 8), 0);
  const UniqueFd client(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(connect(client.get(), reinterpret_cast<sockaddr*>(&at), size), 0);
  ASSERT_EQ(write(client.get(), "hello", 5), 5);
  const UniqueFd spare(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  auto child =
      sys::start_in_namespaces(0, [&] { return front_calls(listener.get(), spare.get()); });
  ASSERT_TRUE(child);
  EXPECT_EQ(child->wait()->code, 0);
}

// Descriptors under way are counted for all processes of a user: who never reads could keep all of
// the user's boxes from passing any. 0, or the number of the step that did not go as it must.
int passing_calls(UniqueFd datagrams, int unix_socket, int to_front, const sockaddr_in& there) {
  UniqueFd* const listeners[] = {&datagrams};
  const int given = datagrams.get();
  if (!enter_front_jail(64, listeners)) return 1;
  if (datagrams.get() == given || fcntl(given, F_GETFD) >= 0) return 2;
  char byte = 'x';
  iovec part{&byte, 1};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  alignas(cmsghdr) char room[CMSG_SPACE(sizeof(in_pktinfo))] = {};
  const auto put = [&](int level, int type, const auto& value) {
    message.msg_control = room;
    message.msg_controllen = CMSG_SPACE(sizeof value);
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    *header = {CMSG_LEN(sizeof value), level, type};
    memcpy(CMSG_DATA(header), &value, sizeof value);
  };
  // The address that an answer to a question comes from.
  message.msg_name = const_cast<sockaddr_in*>(&there);
  message.msg_namelen = sizeof there;
  put(SOL_IP, IP_PKTINFO, in_pktinfo{.ipi_spec_dst = {htonl(INADDR_LOOPBACK)}});
  if (sendmsg(datagrams.get(), &message, 0) != 1) return 3;
  message.msg_name = nullptr;
  message.msg_namelen = 0;
  put(SOL_SOCKET, SCM_RIGHTS, unix_socket);
  if (sendmsg(unix_socket, &message, MSG_DONTWAIT) >= 0 || errno != EPERM) return 4;
  // A number that is free again, and sockets that come from elsewhere until there is no room.
  const int number = datagrams.get();
  datagrams.reset();
  if (dup2(unix_socket, number) >= 0 || fcntl(unix_socket, F_DUPFD, number) >= 0) return 8;
  if (dup3(unix_socket, number, O_CLOEXEC) >= 0) return 9;
  for (int last = -1; last < number; ++last) {
    char received = 0;
    iovec into{&received, 1};
    msghdr incoming{};
    incoming.msg_iov = &into;
    incoming.msg_iovlen = 1;
    incoming.msg_control = room;
    incoming.msg_controllen = sizeof room;
    if (recvmsg(to_front, &incoming, MSG_DONTWAIT) != 1) return 5;
    if (CMSG_FIRSTHDR(&incoming) == nullptr) break;
  }
  for (int fd = 0; fd < 80; ++fd) {
    if (sendmsg(fd, &message, MSG_DONTWAIT) >= 0) return 6;
    if (errno != (fd == number ? EBADF : EPERM)) return 7;
  }
  return 0;
}

TEST(FrontJail, PassesNoDescriptors) {
  UniqueFd datagrams(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const UniqueFd client(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_in at{.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
  socklen_t size = sizeof at;
  ASSERT_EQ(bind(client.get(), reinterpret_cast<sockaddr*>(&at), size), 0);
  ASSERT_EQ(getsockname(client.get(), reinterpret_cast<sockaddr*>(&at), &size), 0);
  const auto pair = sys::socket_pair(SOCK_SEQPACKET);
  ASSERT_TRUE(pair);
  const int passed = pair->first.get();
  for (int i = 0; i < 80; ++i) {
    ASSERT_TRUE(sys::send_with_fds(pair->first.get(), "s", {&passed, 1}));
  }
  auto child = sys::start_in_namespaces(0, [&] {
    return passing_calls(std::move(datagrams), pair->first.get(), pair->second.get(), at);
  });
  ASSERT_TRUE(child);
  EXPECT_EQ(child->wait()->code, 0);
}

// 0, or the number of the step that did not go as it must. `own` and `given` are one file.
int spool_calls(int own, int given, std::uint64_t max_file) {
  std::signal(SIGXFSZ, SIG_IGN);
  if (!enter_session_jail(max_file)) return 1;
  char byte = 'x';
  // What it was started with stays as it is, also when it is a file.
  if (ftruncate(own, 0) == 0 || errno != EPERM) return 2;
  if (max_file == 0) {
    if (ftruncate(given, 0) == 0 || errno != EPERM) return 3;
    return write(given, &byte, 1) < 0 && errno == EFBIG ? 0 : 4;
  }
  if (ftruncate(given, 0) != 0) return 5;
  if (ftruncate(given, static_cast<off_t>(max_file) + 1) == 0 || errno != EFBIG) return 6;
  if (ftruncate(given, static_cast<off_t>(max_file) - 1) != 0) return 7;
  if (write(given, &byte, 1) != 1) return 8;
  if (write(given, &byte, 1) >= 0 || errno != EFBIG) return 9;
  // No way to a number that the filter leaves out.
  if (dup2(given, own) >= 0 || fcntl(given, F_DUPFD, 0) >= 0) return 10;
  return 0;
}

TEST(SessionJail, ItsFilesAreBoundedByTheKernel) {
  for (const std::uint64_t max_file : {std::uint64_t{0}, std::uint64_t{1} << 20}) {
    auto child = sys::start_in_namespaces(0, [max_file] {
      const UniqueFd file(memfd_create("log", MFD_CLOEXEC));
      const int own = dup2(file.get(), 4);
      const int given = fcntl(file.get(), F_DUPFD, 10);
      if (own != 4 || given < 10 || fcntl(given, F_SETFL, O_APPEND) != 0) return 100;
      return spool_calls(own, given, max_file);
    });
    ASSERT_TRUE(child);
    EXPECT_EQ(child->wait()->code, 0) << max_file;
  }
}

// The calls that gVisor makes for a guest, made by a child under the filter; the parent answers.
class RunscFilter : public ::testing::Test {
 protected:
  void SetUp() override {
    path_ = "/tmp/temenos-filter-XXXXXX";
    ASSERT_NE(mkdtemp(path_.data()), nullptr);
  }
  void TearDown() override {
    const UniqueFd tmp(open("/tmp", O_PATH | O_CLOEXEC));
    EXPECT_TRUE(sys::remove_tree(tmp.get(), path_.substr(5)));
  }
  // Runs `calls` (returns 0 when all was as expected, else the number of the failed step).
  template <typename F>
  int run(dev_t own_dev, F calls) {
    auto pair = sys::socket_pair(SOCK_SEQPACKET);
    const int there = pair->second.get();
    auto child = sys::start_in_namespaces(0, [&] {
      auto listener = load_runsc_filter(options_);
      if (!listener) return 100;
      const int fd = listener->get();
      if (!sys::send_with_fds(there, "l", {&fd, 1})) return 101;
      listener->reset();
      return calls();
    });
    pair->second.reset();
    auto received = sys::receive_with_fds(pair->first.get(), 16, 1);
    if (!received || received->fds.size() != 1) return 102;
    const int listener = received->fds[0].get();
    for (;;) {
      pollfd fds[] = {{listener, POLLIN, 0}, {child->pidfd(), POLLIN, 0}};
      if (poll(fds, 2, 10000) <= 0) return 103;
      if ((fds[0].revents & POLLIN) != 0) {
        const auto answered = answer_runsc(listener, own_dev);
        if (!answered) return 104;
        if (*answered) farewells_.push_back(**answered);
        continue;
      }
      if (fds[1].revents != 0) return child->wait()->code;
    }
  }
  FilterOptions options_;
  std::string path_;
  std::vector<Farewell> farewells_;
};

int guest_calls(const std::string& dir, bool expect_kept) {
  const int fd = open((dir + "/f").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0755);
  if (fd < 0) return 1;
  if (syscall(SYS_fchmod, fd, 06755) != 0) return 2;
  struct stat st{};
  if (fstat(fd, &st) != 0) return 3;
  if (((st.st_mode & 06000) == 06000) != expect_kept) return 4;
  if (syscall(SYS_fchmod, fd, 0644) != 0) return 5;
  if (syscall(SYS_openat, AT_FDCWD, (dir + "/s").c_str(), O_CREAT | O_WRONLY, 04755) >= 0) return 6;
  if (errno != EPERM) return 7;
  if (syscall(SYS_mknodat, AT_FDCWD, (dir + "/d").c_str(), S_IFCHR | 0600, 0x103) == 0) return 8;
  if (syscall(SYS_mknodat, AT_FDCWD, (dir + "/w").c_str(), S_IFCHR | 0600, 0) == 0) return 9;
  if (syscall(SYS_chmod, (dir + "/f").c_str(), 04755) == 0) return 10;
  if (syscall(SYS_fchmodat, AT_FDCWD, (dir + "/f").c_str(), 04755) == 0) return 11;
  if (syscall(SYS_openat2, AT_FDCWD, ".", nullptr, 0) == 0 || errno != ENOSYS) return 12;
  if (syscall(SYS_membarrier, 0, 0, 0) == 0 || errno != ENOSYS) return 13;
  if (syscall(SYS_fsetxattr, fd, "user.x", "v", 1, 0) == 0 || errno != EOPNOTSUPP) return 14;
  if (syscall(SYS_setxattr, dir.c_str(), "security.capability", "v", 1, 0) == 0) return 15;
  char value[16];
  const int link = open("/proc/self/exe", O_PATH | O_NOFOLLOW | O_CLOEXEC);
  if (syscall(SYS_fgetxattr, link, "user.x", value, 16) == 0 || errno != EOPNOTSUPP) return 16;
  return 0;
}

TEST_F(RunscFilter, StripsBitsAndOwnersOutsideTheOverlay) {
  EXPECT_EQ(run(static_cast<dev_t>(-1),
                [&] {
                  const int rc = guest_calls(path_, false);
                  if (rc != 0) return rc;
                  // Told that it worked; the owner stays.
                  const int fd = open((path_ + "/f").c_str(), O_RDWR | O_CLOEXEC);
                  if (syscall(SYS_fchownat, fd, "", 33, 33, AT_EMPTY_PATH) != 0) return 20;
                  struct stat st{};
                  return fstat(fd, &st) == 0 && st.st_uid == geteuid() ? 0 : 21;
                }),
            0);
}

TEST_F(RunscFilter, KeepsBitsOnTheOverlay) {
  struct stat st{};
  ASSERT_EQ(stat(path_.c_str(), &st), 0);
  EXPECT_EQ(run(st.st_dev, [&] { return guest_calls(path_, true); }), 0);
}

// Each name is moved or removed once, by the supervisor, and only a single component is a name.
int name_calls(const std::string& dir) {
  const int fd = open(dir.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC);
  if (mkdirat(fd, "sub", 0755) != 0 || mkdirat(fd, "other", 0755) != 0) return 1;
  const int sub = openat(fd, "sub", O_PATH | O_DIRECTORY | O_CLOEXEC);
  const int file = openat(fd, "a", O_CREAT | O_WRONLY | O_CLOEXEC, 0644);
  if (file < 0) return 2;
  if (syscall(SYS_renameat2, fd, "a", sub, "b", 0) != 0) return 3;
  if (syscall(SYS_renameat, sub, "b", fd, "c") != 0) return 4;
  if (syscall(SYS_renameat2, fd, "c", fd, "other", RENAME_NOREPLACE) == 0 || errno != EEXIST)
    return 5;
  if (syscall(SYS_renameat2, fd, "../x", fd, "y", 0) == 0 || errno != EPERM) return 6;
  if (syscall(SYS_renameat2, fd, "c", fd, "sub/c", 0) == 0 || errno != EPERM) return 7;
  if (syscall(SYS_renameat2, fd, nullptr, fd, "y", 0) == 0 || errno != EPERM) return 8;
  if (syscall(SYS_unlinkat, fd, "other", 0) == 0 || errno != EISDIR) return 9;
  if (syscall(SYS_unlinkat, fd, "other", AT_REMOVEDIR) != 0) return 10;
  if (syscall(SYS_unlinkat, fd, "c", 0) != 0) return 11;
  if (syscall(SYS_unlinkat, fd, "c", 0) == 0 || errno != ENOENT) return 12;
  if (syscall(SYS_unlinkat, fd, std::string(300, 'n').c_str(), 0) == 0) return 13;
  return 0;
}

TEST_F(RunscFilter, RenamesAndUnlinksForTheCaller) {
  EXPECT_EQ(run(static_cast<dev_t>(-1), [&] { return name_calls(path_); }), 0);
}

// 0 when exactly these can be made, else the number of the first that is wrong, and 1.
int families_are(std::initializer_list<int> allowed) {
  for (int family = 0; family < 50; ++family) {
    const bool listed = std::find(allowed.begin(), allowed.end(), family) != allowed.end();
    const UniqueFd fd(socket(family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (listed ? !fd : fd || errno != EAFNOSUPPORT) return family + 1;
  }
  // What the kernel would take for AF_INET, or for a family of a later one.
  for (const long odd : {AF_INET | 1L << 32, 64L, 1L << 31}) {
    if (syscall(SYS_socket, odd, SOCK_DGRAM, 0) >= 0 || errno != EAFNOSUPPORT) return 100;
  }
  return 0;
}

TEST_F(RunscFilter, OnlySocketsOfTheListedFamilies) {
  options_.socket_families = {AF_UNIX, AF_NETLINK};
  EXPECT_EQ(run(0,
                [] {
                  const UniqueFd netlink(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, 0));
                  return netlink ? families_are({AF_UNIX, AF_NETLINK}) : 101;
                }),
            0);
}

TEST_F(RunscFilter, WhoLeavesByItselfSaysSoAndWhoIsKilledDoesNot) {
  EXPECT_EQ(run(0, [] { return 42; }), 42);
  ASSERT_EQ(farewells_.size(), 1u);
  EXPECT_EQ(farewells_[0].status, 42);
  EXPECT_EQ(farewells_[0].parent, getpid());
  EXPECT_FALSE(farewells_[0].name.empty());
  farewells_.clear();
  EXPECT_EQ(run(0,
                [] {
                  // From another thread: it is the process that leaves.
                  std::thread([] { _exit(43); }).join();
                  return 1;
                }),
            43);
  ASSERT_EQ(farewells_.size(), 1u);
  EXPECT_EQ(farewells_[0].parent, getpid());
  farewells_.clear();
  EXPECT_EQ(run(0,
                [] {
                  raise(SIGKILL);
                  return 1;
                }),
            -1);
  EXPECT_TRUE(farewells_.empty());
}

}  // namespace
}  // namespace temenos::jail
