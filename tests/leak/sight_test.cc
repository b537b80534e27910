// What a box sees of the host: nothing that was not given to it.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <pwd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>
#include <set>
#include <sstream>

#include "base/unique_fd.h"
#include "leak/leak.h"

namespace temenos::leak {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;

class Sight : public ::testing::TestWithParam<std::string> {};

constexpr char kSecret[] = "leak-canary-8f31c2";

TEST_P(Sight, AFileThatIsNotMounted) {
  const TestHost host;
  const std::string secret = host.file("outside/secret", std::string(kSecret) + "\n");
  const std::string write = host.dir("write");
  const std::string read = host.dir("read");
  // What an earlier box could have planted.
  const std::string climb = "../../../../../../../..";
  const std::pair<const char*, std::string> links[] = {{"absolute", secret},
                                                       {"relative", climb + secret},
                                                       {"directory", host.path() + "/outside"},
                                                       {"root", "/proc/self/root"},
                                                       {"one", "two"},
                                                       {"two", "absolute"},
                                                       {"cwd", "/proc/self/cwd/" + climb + secret},
                                                       {"slash", "/"}};
  Words paths{secret};
  for (const std::string& dir : {write, read}) {
    for (const auto& [name, target] : links) {
      ASSERT_EQ(symlink(target.c_str(), (dir + "/" + name).c_str()), 0);
      paths.push_back(dir + "/" + name);
    }
    for (const char* through : {"/directory/secret", "/../outside/secret"}) {
      paths.push_back(dir + through);
    }
    for (const char* through : {"/root", "/slash"}) paths.push_back(dir + through + secret);
  }
  ASSERT_EQ(chmod(write.c_str(), 0777), 0);
  Words words{"three", "reach", kSecret, write};
  words.insert(words.end(), paths.begin(), paths.end());
  const auto all =
      attempts(host.temenos(attack(GetParam(), {"--write", write, "--read", read}, words)));
  std::map<std::string, std::set<std::string>> ways;
  for (const auto& attempt : all) {
    EXPECT_NE(attempt.outcome, "ok") << attempt.text();
    ways[attempt.attacker].insert(attempt.what);
  }
  for (const auto& attacker : kAttackers) {
    EXPECT_THAT(ways[attacker], ::testing::IsSupersetOf({"directly", "through root", "through cwd",
                                                         "through a descriptor", "own symlink"}));
  }
  EXPECT_EQ(read_text(secret), std::string(kSecret) + "\n");
  struct stat st{};
  ASSERT_EQ(stat(secret.c_str(), &st), 0);
  EXPECT_EQ(st.st_nlink, 1u) << "hard-linked";
}

Words host_only_paths() {
  Words out{"/etc/shadow",
            "/etc/shadow-",
            "/etc/gshadow",
            "/etc/sudoers",
            "/etc/sudoers.d",
            "/etc/ssh",
            "/etc/ssl/private",
            "/etc/machine-id",
            "/var/lib/dbus/machine-id",
            "/etc/fstab",
            "/etc/crontab",
            "/etc/security",
            "/etc/subuid",
            "/etc/apt",
            "/var/lib/dpkg",
            "/boot",
            std::string("/root") + "/.ssh",
            "/etc/NetworkManager",
            "/var/run/docker.sock",
            "/run/systemd",
            "/run/user",
            "/run/dbus",
            "/dev/mem",
            "/dev/kmsg",
            "/dev/sda",
            "/dev/kvm",
            "/proc/kcore",
            "/sys/kernel/debug",
            "/sys/fs/cgroup/cgroup.procs"};
  setpwent();
  while (const passwd* user = getpwent()) {
    const std::string home = user->pw_dir;
    if (home.starts_with("/home/") && home != "/home/user") out.push_back(home);
  }
  endpwent();
  return out;
}

TEST_P(Sight, WhatOnlyTheHostHas) {
  const TestHost host;
  Words words{"three", "look", kSecret};
  const Words paths = host_only_paths();
  words.insert(words.end(), paths.begin(), paths.end());
  const auto all = attempts(host.temenos(attack(GetParam(), {}, words), "", "",
                                         {{"TEMENOS_LEAK_CANARY", kSecret}, {kSecret, "x"}}));
  std::map<std::string, int> looked;
  for (const auto& attempt : all) {
    ++looked[attempt.attacker + " " + attempt.what];
    if (attempt.what == "exists") {
      EXPECT_THAT(attempt.outcome, AnyOf("ENOENT", "EACCES")) << attempt.text();
    } else if (attempt.what == "text") {
      EXPECT_EQ(attempt.outcome, "absent") << attempt.text();
    } else if (attempt.what == "hostname") {
      EXPECT_EQ(attempt.outcome, "temenos");
    } else if (attempt.what == "listing") {
      const std::map<std::string, std::string> expected{
          {"/home", "user"}, {"/root", ""}, {"/home/user", ""}, {"/var/lib", ""},
          {"/dev/shm", ""},  {"/tmp", ""},  {"/run", "temenos"}};
      EXPECT_EQ(attempt.outcome, expected.at(attempt.on)) << attempt.text();
    } else if (attempt.what == "descriptors" && !attempt.on.ends_with("/run/temenos/init")) {
      // Of a command: its three, which are /dev/null and pipes of the sandbox.
      std::istringstream fds(attempt.outcome);
      for (std::string fd; fds >> fd;) {
        EXPECT_THAT(fd, ::testing::MatchesRegex("[012]=(/dev/null|pipe:\\[[0-9]+\\])"))
            << attempt.text();
      }
    }
  }
  for (const auto& attacker : kAttackers) {
    EXPECT_EQ(looked[attacker + " exists"], static_cast<int>(paths.size()));
    EXPECT_GT(looked[attacker + " text"], 6);
    EXPECT_GT(looked[attacker + " descriptors"], 2);
  }
}

struct Listener {
  UniqueFd fd;
  int port = 0;
};

template <typename Address>
Listener listen_on(Address address, int type) {
  Listener out{UniqueFd(socket(address.ss_family, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)), 0};
  const socklen_t size = address.ss_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  const int only = 1;
  if (address.ss_family == AF_INET6) {
    setsockopt(out.fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &only, sizeof only);
  }
  EXPECT_EQ(bind(out.fd.get(), reinterpret_cast<sockaddr*>(&address), size), 0) << strerror(errno);
  if (type == SOCK_STREAM) EXPECT_EQ(listen(out.fd.get(), 8), 0);
  socklen_t length = sizeof address;
  getsockname(out.fd.get(), reinterpret_cast<sockaddr*>(&address), &length);
  out.port = ntohs(reinterpret_cast<sockaddr_in*>(&address)->sin_port);
  return out;
}

sockaddr_storage any_address(int family, int port) {
  sockaddr_storage out{};
  out.ss_family = static_cast<sa_family_t>(family);
  auto* v4 = reinterpret_cast<sockaddr_in*>(&out);
  v4->sin_port = htons(static_cast<std::uint16_t>(port));  // at the same place in both
  return out;
}

UniqueFd listen_unix(const std::string& name, bool abstract) {
  UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  memcpy(address.sun_path + (abstract ? 1 : 0), name.data(),
         std::min(name.size(), sizeof address.sun_path - 2));
  EXPECT_EQ(bind(fd.get(), reinterpret_cast<sockaddr*>(&address),
                 static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size() + 1)),
            0)
      << strerror(errno);
  EXPECT_EQ(listen(fd.get(), 8), 0);
  return fd;
}

Words own_addresses() {
  Words out;
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return out;
  for (const ifaddrs* i = all; i != nullptr; i = i->ifa_next) {
    if (i->ifa_addr == nullptr || i->ifa_addr->sa_family != AF_INET) continue;
    char text[INET_ADDRSTRLEN];
    const auto* address = reinterpret_cast<const sockaddr_in*>(i->ifa_addr);
    if (inet_ntop(AF_INET, &address->sin_addr, text, sizeof text) != nullptr) out.push_back(text);
  }
  freeifaddrs(all);
  return out;
}

// Nobody came.
void expect_untouched(const UniqueFd& listener) {
  EXPECT_LT(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC), 0);
  EXPECT_EQ(errno, EAGAIN);
}

TEST_P(Sight, NoNetworkMeansNone) {
  const TestHost host;
  const std::string write = host.dir("write");
  ASSERT_EQ(chmod(write.c_str(), 0777), 0);
  const std::string name = "temenos-leak-" + std::to_string(getpid());
  const UniqueFd abstract = listen_unix(name, true);
  const UniqueFd path = listen_unix(write + "/socket", false);
  ASSERT_EQ(chmod((write + "/socket").c_str(), 0777), 0);
  // On every address of the host, one port for all.
  const Listener v4 = listen_on(any_address(AF_INET, 0), SOCK_STREAM);
  const Listener v6 = listen_on(any_address(AF_INET6, v4.port), SOCK_STREAM);
  const Listener udp = listen_on(any_address(AF_INET, v4.port), SOCK_DGRAM);
  Words words{"three", "network", std::to_string(v4.port), name, write + "/socket"};
  const Words addresses = own_addresses();
  words.insert(words.end(), addresses.begin(), addresses.end());
  const auto all = attempts(host.temenos(attack(GetParam(), {"--write", write}, words)));
  std::map<std::string, int> tried;
  for (const auto& attempt : all) {
    ++tried[attempt.attacker + " " + attempt.what];
    EXPECT_NE(attempt.what, "route") << attempt.text();
    if (attempt.what == "interface") EXPECT_EQ(attempt.outcome, "loopback") << attempt.text();
    if (attempt.what == "tcp" || attempt.what == "abstract" || attempt.what == "unix") {
      EXPECT_NE(attempt.outcome, "ok") << attempt.text();
    }
    const bool loopback = attempt.on == "127.0.0.1" || attempt.on == "::1";
    if (attempt.what == "udp" && !loopback) EXPECT_NE(attempt.outcome, "ok") << attempt.text();
  }
  for (const auto& attacker : kAttackers) {
    EXPECT_GE(tried[attacker + " tcp"], 5);
    EXPECT_EQ(tried[attacker + " abstract"], 3);
    EXPECT_EQ(tried[attacker + " unix"], 3);
  }
  for (const UniqueFd* listener : {&abstract, &path, &v4.fd, &v6.fd}) expect_untouched(*listener);
  char byte;
  EXPECT_LT(recv(udp.fd.get(), &byte, 1, 0), 0) << "a datagram came out";
}

TEST_P(Sight, TwoBoxesSeeNothingOfEachOther) {
  const TestHost host;
  char before[256] = "";
  gethostname(before, sizeof before - 1);
  const std::string tag = std::to_string(20000 + getpid() % 20000);
  const Words flags{"-i"};
  RunningBox other(host, attack(GetParam(), flags, {"occupy", tag}));
  ASSERT_TRUE(other.ready()) << other.stderr_text();
  const auto seen = attempts(host.temenos(attack(GetParam(), {}, {"three", "neighbour", tag})));
  std::map<std::string, int> looked;
  for (const auto& attempt : seen) {
    ++looked[attempt.attacker];
    EXPECT_NE(attempt.outcome, "ok") << attempt.text();
  }
  for (const auto& attacker : kAttackers) EXPECT_EQ(looked[attacker], 8);
  // Its processes: no command line, no name, no environment holds the tag, and its host name is its
  // own.
  const auto look = attempts(host.temenos(attack(GetParam(), {}, {"three", "look", "occupy"})));
  for (const auto& attempt : look) {
    if (attempt.what == "text") EXPECT_EQ(attempt.outcome, "absent") << attempt.text();
    if (attempt.what == "hostname") EXPECT_EQ(attempt.outcome, "temenos");
    if (attempt.what == "descriptors") {
      EXPECT_THAT(attempt.on, AnyOf(HasSubstr("/run/temenos/init"), HasSubstr("/leak/attack")));
    }
  }
  const auto processes =
      host.temenos(run(GetParam(), {}, {"sh", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '"}));
  EXPECT_THAT(processes.out, Not(HasSubstr("occupy " + tag)));
  EXPECT_THAT(processes.out, HasSubstr("/run/temenos/init"));
  char after[256] = "";
  gethostname(after, sizeof after - 1);
  EXPECT_STREQ(before, after);
  EXPECT_EQ(other.finish(), 0) << other.stderr_text();
}

INSTANTIATE_TEST_SUITE_P(On, Sight, ::testing::ValuesIn(testing::platforms()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace temenos::leak
