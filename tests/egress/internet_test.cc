// The tests' internet itself: what is sent to it is answered and recorded, and nothing else is.
#include <arpa/inet.h>
#include <sys/socket.h>

#include <cstring>

#include "tests/egress/egress_test.h"

namespace temenos::testing {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;
using ::testing::UnorderedElementsAre;

class InternetTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const auto why = TestInternet::lacking(); !why.empty()) GTEST_SKIP() << why;
    host_.emplace();
    internet_.emplace(*host_);
  }
  // To port 443, where there are ports.
  static void send_one(const char* address, int type, int protocol, const std::string& bytes) {
    const bool v6 = strchr(address, ':') != nullptr;
    sockaddr_in v4to{};
    v4to.sin_family = AF_INET;
    v4to.sin_port = htons(443);
    inet_pton(AF_INET, address, &v4to.sin_addr);
    sockaddr_in6 v6to{};
    v6to.sin6_family = AF_INET6;
    inet_pton(AF_INET6, address, &v6to.sin6_addr);
    const UniqueFd fd(socket(v6 ? AF_INET6 : AF_INET, type | SOCK_CLOEXEC, protocol));
    const auto* to =
        v6 ? reinterpret_cast<const sockaddr*>(&v6to) : reinterpret_cast<const sockaddr*>(&v4to);
    ASSERT_EQ(sendto(fd.get(), bytes.data(), bytes.size(), 0, to, v6 ? sizeof v6to : sizeof v4to),
              static_cast<ssize_t>(bytes.size()))
        << address << ": " << strerror(errno);
  }
  std::optional<TestHost> host_;
  std::optional<TestInternet> internet_;
};

TEST_F(InternetTest, NothingComesByItself) {
  EXPECT_EQ(host_shell("ip -br address show up0 | awk '{print $3, $4}'"),
            "45.45.45.2/30 2606:4545::2/126\n");
  EXPECT_THAT(internet_->record(), UnorderedElementsAre());
}

TEST_F(InternetTest, EveryAddressAnswersAndIsRecorded) {
  for (const char* address :
       {"8.8.8.8", "10.1.2.3", "169.254.169.254", "192.168.7.77", "100.100.100.200",
        "[2001:4860:4860::8888]", "[fd00:ec2::254]", "[64:ff9b::a01:203]"}) {
    const std::string where = std::string(address) + ":8080";
    EXPECT_THAT(host_shell("curl -gsS -m 5 http://" + where + "/x 2>&1"),
                HasSubstr("reached " + where + " GET /x"));
    EXPECT_THAT(internet_->record(), Contains("tcp " + where));
  }
  EXPECT_EQ(internet_->record().size(), 8u);
}

TEST_F(InternetTest, NamesAreAnsweredByTheZone) {
  internet_->zone(
      "changing.world.site 45.46.1.1 | 10.0.0.1\nalias.world.site cname=allowed.site\n"
      "large.world.site truncate 45.46.1.3\n");
  const std::string ask = "getent ahostsv4 changing.world.site | awk '/STREAM/ {print $1}'";
  EXPECT_EQ(host_shell(ask + "; " + ask + "; " + ask), "45.46.1.1\n10.0.0.1\n10.0.0.1\n");
  EXPECT_THAT(host_shell("getent ahosts alias.world.site"),
              AllOf(HasSubstr("45.46.0.10"), HasSubstr("2606:4546::10")));
  EXPECT_THAT(host_shell("getent ahostsv4 large.world.site"), HasSubstr("45.46.1.3"));
  EXPECT_EQ(host_shell("getent hosts nobody.world.site"), "");
  EXPECT_EQ(internet_->record(),
            (std::set<std::string>{"dns changing.world.site", "dns alias.world.site",
                                   "dns large.world.site", "dns nobody.world.site",
                                   "tcp 45.45.45.1:53"}));
}

TEST_F(InternetTest, HttpsIsTrustedAndSpeaksBothVersions) {
  EXPECT_THAT(host_shell("curl -4sS -m 5 --http1.1 https://allowed.site/ 2>&1"),
              HasSubstr("reached 45.46.0.10:443"));
  const auto second = host_shell("command -v node && curl -sS -m 5 --http2 https://allowed.site/");
  if (!second.empty()) EXPECT_THAT(second, HasSubstr("x-http: 2"));
  EXPECT_THAT(host_shell("curl -sS -m 5 https://nobody.site --connect-to ::45.46.0.10:443 2>&1"),
              HasSubstr("no alternative certificate subject name"));
}

TEST_F(InternetTest, PacketsOfAllKindsAreRecorded) {
  send_one("45.46.3.4", SOCK_DGRAM, 0, "x");
  send_one("45.46.3.5", SOCK_RAW, 132, "x");
  send_one("45.46.3.3", SOCK_RAW, IPPROTO_ICMP, std::string("\x08\0\xf7\xff\0\0\0\0", 8));
  send_one("2606:4546::33", SOCK_RAW, IPPROTO_ICMPV6, std::string("\x80\0\0\0\0\0\0\0", 8));
  EXPECT_THAT(internet_->record(), IsSupersetOf({"icmp 45.46.3.3", "icmp 2606:4546::33",
                                                 "udp 45.46.3.4:443", "ip 132 45.46.3.5"}));
}

TEST_F(InternetTest, TheHostsOwnAddressesAreRecordedApart) {
  for (const char* address : {"127.0.0.1", kHost4, kHostLan, "[::1]"}) {
    EXPECT_THAT(host_shell(std::string("curl -gsS -m 5 http://") + address + ":8081/ 2>&1"),
                HasSubstr("reached"));
    EXPECT_THAT(internet_->record(), Contains(std::string("host tcp ") + address + ":8081"));
  }
  EXPECT_EQ(internet_->record().size(), 4u);
}

TEST_F(InternetTest, SshAndRedisAreTheRealOnes) {
  if (const auto why = internet_->serve_redis(); !why.empty()) GTEST_SKIP() << why;
  EXPECT_EQ(host_shell("redis-cli -h 45.46.1.1 ping 2>&1"), "PONG\n");
  if (const auto why = internet_->serve_ssh(); !why.empty()) GTEST_SKIP() << why;
  EXPECT_EQ(host_shell("cp " + internet_->ssh_key() + " " + host_->path() + "/key; chmod 600 " +
                       host_->path() + "/key; ssh -F none -o StrictHostKeyChecking=no -o " +
                       "UserKnownHostsFile=/dev/null -o LogLevel=ERROR -i " + host_->path() +
                       "/key root@git.site echo in 2>&1"),
            "in\n");
  EXPECT_THAT(host_shell("psql 'host=45.46.1.1 user=a dbname=a' -Atc 'select 1' 2>&1"),
              HasSubstr("reached 45.46.1.1:5432"));
}

}  // namespace
}  // namespace temenos::testing
