// A server in a box, reached from the host through the box's session: gVisor's network stack, no
// network of the box's own.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "box/port_pump.h"
#include "tests/integration/live_box.h"

namespace temenos::testing {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class DialTest : public LiveBoxTest {
 protected:
  void SetUp() override {
    LiveBoxTest::SetUp();
    if (HasFatalFailure()) return;
    auto client = box_->connect();
    ASSERT_TRUE(client) << client.error().to_string();
    auto pump = PortPump::start(std::move(*client));
    ASSERT_TRUE(pump) << pump.error().to_string();
    pump_ = std::move(*pump);
  }
  void TearDown() override {
    pump_.reset();
    LiveBoxTest::TearDown();
  }
  // Starts a server in the box that lives on, and waits until it says that it listens.
  void serve(const std::string& python) {
    EXPECT_EQ(output_of("exec 3< <(setsid python3 -u -c '" + python +
                        "' 2>/tmp/server.log </dev/null); read -r line <&3; echo $line"),
              "listens\n")
        << output_of("cat /tmp/server.log");
  }
  UniqueFd dial(const PortTarget& target) {
    auto fd = pump_->dial(target);
    EXPECT_TRUE(fd) << fd.error().to_string();
    return fd ? std::move(*fd) : UniqueFd();
  }
  static std::string ask(int fd, const std::string& request) {
    EXPECT_TRUE(request.empty() || send(fd, request.data(), request.size(), MSG_NOSIGNAL) ==
                                       static_cast<ssize_t>(request.size()));
    std::string answer;
    char block[65536];
    for (ssize_t count; (count = recv(fd, block, sizeof block, 0)) > 0;) {
      answer.append(block, static_cast<std::size_t>(count));
    }
    return answer;
  }

  std::unique_ptr<PortPump> pump_;
};
INSTANTIATE_TEST_SUITE_P(Each, DialTest, ::testing::ValuesIn(platforms()),
                         [](const auto& info) { return info.param; });

TEST_P(DialTest, AWebServerOfTheBoxIsReachedAtAPortOfTheHost) {
  output_of("mkdir -p /root/www && head -c 3000000 /dev/zero | tr '\\0' x >/root/www/page");
  serve(
      "import http.server,os\n"
      "os.chdir(\"/root/www\")\n"
      "s=http.server.ThreadingHTTPServer((\"127.0.0.1\",8080),"
      "http.server.SimpleHTTPRequestHandler)\n"
      "print(\"listens\")\n"
      "s.serve_forever()");
  UniqueFd listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(bind(listener.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(listen(listener.get(), 16), 0);
  const auto port = pump_->forward(std::move(listener), {8080, ""});
  ASSERT_TRUE(port) << port.error().to_string();
  address.sin_port = htons(*port);
  for (int i = 0; i < 5; ++i) {
    const UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    ASSERT_EQ(connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    const auto answer = ask(fd.get(), "GET /page HTTP/1.0\r\n\r\n");
    EXPECT_THAT(answer.substr(0, 200), HasSubstr("200 OK"));
    EXPECT_EQ(answer.size() - answer.find("\r\n\r\n"), 3'000'004u);
  }
}

TEST_P(DialTest, EachWayHasItsEndAndResetsAreSeen) {
  serve(
      "import socket,struct,threading\n"
      "s=socket.create_server((\"::1\",7000),family=socket.AF_INET6)\n"
      "print(\"listens\")\n"
      "c,_=s.accept()\n"
      "d=b\"\"\n"
      "while (b:=c.recv(9999)): d+=b\n"
      "c.sendall(b\"heard \"+d); c.close()\n"
      "c,_=s.accept()\n"
      "c.recv(1)\n"
      "c.setsockopt(socket.SOL_SOCKET,socket.SO_LINGER,struct.pack(\"ii\",1,0)); c.close()\n"
      "c,_=s.accept()\n"
      "try:\n"
      "  while True: c.sendall(b\"x\"*65536)\n"
      "except OSError as e: open(\"/tmp/end\",\"w\").write(type(e).__name__)");
  UniqueFd fd = dial({7000, ""});  // 127.0.0.1 refuses, so it is [::1]
  ASSERT_EQ(send(fd.get(), "hello", 5, MSG_NOSIGNAL), 5);
  ASSERT_EQ(shutdown(fd.get(), SHUT_WR), 0);
  EXPECT_EQ(ask(fd.get(), ""), "heard hello");
  fd = dial({7000, ""});
  EXPECT_EQ(ask(fd.get(), "x"), "");
  fd = dial({7000, ""});
  char block[1000];
  ASSERT_GT(recv(fd.get(), block, sizeof block, 0), 0);
  fd.reset();
  EXPECT_THAT(output_of("until [ -s /tmp/end ]; do sleep 0.05; done; cat /tmp/end"),
              ::testing::AnyOf("ConnectionResetError", "BrokenPipeError"));
}

TEST_P(DialTest, UnixSocketsAndRefusals) {
  serve(
      "import socket\n"
      "s=socket.socket(socket.AF_UNIX); s.bind(\"/tmp/sock\"); s.listen(1)\n"
      "print(\"listens\")\n"
      "while True:\n"
      "  c,_=s.accept(); c.sendall(c.recv(100)[::-1]); c.close()");
  for (int i = 0; i < 3; ++i) {
    const UniqueFd fd = dial({0, "/tmp/sock"});
    EXPECT_EQ(ask(fd.get(), "abc"), "cba");
  }
  const auto refused = pump_->dial({9, ""});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().sys_errno, ECONNREFUSED);
  const auto missing = pump_->dial({0, "/tmp/none"});
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().sys_errno, ENOENT);
}

// The other part of the protocol that a box's own kernel may see differently than the host's.
TEST_P(DialTest, DirectoriesAreMadeAndRemoved) {
  auto& files = session();
  ASSERT_EQ(files.mkdir("/root/a/b/c", 0700, true).value_or(false), true);
  EXPECT_EQ(files.mkdir("/root/a/b/c", 0755, true).value_or(true), false);
  EXPECT_EQ(output_of("stat -c '%a %U' /root/a/b/c"), "700 root\n");
  EXPECT_EQ(files.mkdir("/root/a").error().sys_errno, EEXIST);
  output_of(
      "cd /root/a && mkdir -p $(seq -f 'd%g' 1 50) && for d in d*; do "
      "touch $d/1 $d/2 $d/3; done; ln -s /usr link; ln -s /etc/passwd file");
  EXPECT_EQ(files.remove("/root/a").error().sys_errno, ENOTEMPTY);
  const auto removed = files.remove("/root/a", true);
  ASSERT_TRUE(removed) << removed.error().to_string();
  EXPECT_EQ(*removed, 3u + 50 + 150 + 2);
  EXPECT_EQ(output_of("ls -A /root/a 2>&1 || ls /usr | head -1"),
            "ls: cannot access '/root/a': No such file or directory\nbin\n");
  for (const char* mounted : {"/", "/proc", "/tmp", "/dev/shm"}) {
    const auto refused = files.remove(mounted, true);
    ASSERT_FALSE(refused) << mounted;
    EXPECT_EQ(refused.error().sys_errno, EBUSY) << mounted;
  }
  // Deeper than a path can be.
  output_of(
      "python3 -c 'import os\n"
      "os.mkdir(\"/root/deep\"); os.chdir(\"/root/deep\")\n"
      "for i in range(1100): os.mkdir(\"ddd\"); os.chdir(\"ddd\")'");
  const auto deep = files.remove("/root/deep", true);
  ASSERT_TRUE(deep) << deep.error().to_string();
  EXPECT_EQ(*deep, 1101u);
}

}  // namespace
}  // namespace temenos::testing
