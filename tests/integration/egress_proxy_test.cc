// EgressProxy as a program of the host uses it: the real front and dialer, clients of the host that
// are told of it by their environment, and a server on loopback.
#include "temenos/egress_proxy.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <functional>
#include <optional>
#include <thread>

#include "base/text.h"
#include "tests/integration/program.h"
#include "tests/integration/web_server.h"

namespace temenos::testing {
namespace {

using namespace std::chrono_literals;
using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

std::vector<HostRule> rules(const std::vector<std::string>& texts) {
  std::vector<HostRule> out;
  for (const auto& text : texts) out.push_back(*HostRule::parse(text));
  return out;
}

std::string libexec() {
  const std::string program = temenos_program();
  return program.substr(0, program.rfind('/')) + "/../libexec/temenos";
}

// Children of `parent` with this name; a name in /proc has 15 bytes at most.
std::vector<pid_t> children(pid_t parent, const std::string& name) {
  std::vector<pid_t> out;
  for (const auto& line :
       split(host_shell("pgrep -x -P " + std::to_string(parent) + " " + name + " || true"), '\n')) {
    if (!line.empty()) out.push_back(atoi(line.c_str()));
  }
  return out;
}

bool until(const std::function<bool()>& holds, std::chrono::seconds most = 20s) {
  const auto end = std::chrono::steady_clock::now() + most;
  while (!holds()) {
    if (std::chrono::steady_clock::now() >= end) return false;
    std::this_thread::sleep_for(20ms);
  }
  return true;
}

class EgressProxyTest : public IntegrationTest {
 protected:
  void start(const std::vector<std::string>& allowed) {
    auto started = EgressProxy::start(rules(allowed), {.libexec = libexec()});
    ASSERT_TRUE(started) << started.error().to_string();
    proxy_.emplace(std::move(*started));
  }
  void TearDown() override {
    proxy_.reset();
    IntegrationTest::TearDown();
  }
  EgressProxy& proxy() { return *proxy_; }
  void end() { proxy_.reset(); }
  std::string url() { return proxy().environment().at("HTTP_PROXY"); }
  std::string password() {
    const std::string text = url();
    const auto begin = text.find("temenos:") + 8;
    return text.substr(begin, text.find('@') - begin);
  }
  // What a shell's script prints, both outputs, with the proxy's variables and no others.
  std::string client(const std::string& script) {
    std::string command = "env -i PATH=/usr/bin:/bin HOME=" + host_.path();
    for (const auto& [name, value] : proxy().environment()) command += " " + name + "=" + value;
    return host_shell(command + " sh -c '" + script + "' 2>&1 || true");
  }
  std::string python(const std::string& script) {
    return client("python3 - <<EOF\n" + script + "\nEOF\n");
  }
  // The first answer to these bytes.
  std::string raw(const std::string& bytes) {
    const UniqueFd fd = connect_loopback(proxy().port());
    EXPECT_TRUE(send_text(fd.get(), bytes));
    return hear(fd.get()).text;
  }
  pid_t keeper() {
    const auto found = children(getpid(), "temenos-keeper");
    return found.size() == 1 ? found[0] : 0;
  }

  WebServer server_;

 private:
  std::optional<EgressProxy> proxy_;
};

TEST_F(EgressProxyTest, SaysWhatItIs) {
  ASSERT_NO_FATAL_FAILURE(start({}));
  EXPECT_FALSE(proxy().enforced());
  EXPECT_THAT(std::string(proxy().enforcement_reason()),
              StartsWith("cooperative, not a boundary: "));
  const auto variables = proxy().environment();
  std::vector<std::string> names;
  for (const auto& [name, value] : variables) {
    names.push_back(name);
    EXPECT_EQ(value, url());
  }
  EXPECT_THAT(names, ElementsAre("ALL_PROXY", "HTTPS_PROXY", "HTTP_PROXY", "all_proxy",
                                 "http_proxy", "https_proxy"));
  EXPECT_EQ(url(), "http://temenos:" + password() + "@127.0.0.1:" + std::to_string(proxy().port()));
  EXPECT_EQ(password().size(), 32u);
}

// As they are, with nothing but the variables.
TEST_F(EgressProxyTest, OrdinaryClientsTakeThePasswordFromTheVariables) {
  ASSERT_NO_FATAL_FAILURE(start({server_.at()}));
  const std::string page = "http://" + server_.at() + "/";
  EXPECT_EQ(client("curl -sS " + page), WebServer::kBody);
  EXPECT_EQ(client("curl -sS --proxytunnel " + page), WebServer::kBody);
  EXPECT_EQ(client("curl -sS http://localhost:" + std::to_string(server_.port()) + "/"),
            WebServer::kBody);
  EXPECT_EQ(client("curl -sS http://host.temenos.internal:" + std::to_string(server_.port()) + "/"),
            WebServer::kBody);
  EXPECT_EQ(client("wget -qO- " + page), WebServer::kBody);
  EXPECT_EQ(python("import urllib.request\nprint(urllib.request.urlopen(\"" + page +
                   "\").read().decode(), end=\"\")"),
            WebServer::kBody);
  EXPECT_EQ(python("import requests\nprint(requests.get(\"" + page + "\").text, end=\"\")"),
            WebServer::kBody);
  // What goes on says nothing of it.
  EXPECT_THAT(server_.heard(), Not(HasSubstr(password())));
  EXPECT_THAT(server_.heard(), Not(HasSubstr("roxy-")));
}

TEST_F(EgressProxyTest, OrdinaryClientsGetARefusalToRead) {
  ASSERT_NO_FATAL_FAILURE(start({}));
  const std::string page = "http://" + server_.at() + "/";
  const std::string words = "egress refused: " + server_.at() + " is not in the allowlist\n" +
                            "To allow it, give this proxy the rule " + server_.at() + "\n";
  EXPECT_EQ(client("curl -sS " + page), words);
  EXPECT_EQ(client("wget -qO- --content-on-error " + page), words);
  EXPECT_EQ(python("import requests\nprint(requests.get(\"" + page + "\").text, end=\"\")"), words);
  EXPECT_THAT(client("curl -sS https://refused.example/"), HasSubstr("403"));
  // npm tries again, and says at its end what it was told; git asks first without the password.
  EXPECT_THAT(client("npm view --fetch-retries=0 --registry http://refused.example/ left-pad"),
              AnyOf(HasSubstr("403"), HasSubstr("refused.example:80 is not in the allowlist")));
  EXPECT_THAT(client("git ls-remote https://refused.example/x"), HasSubstr("403"));
  EXPECT_THAT(server_.heard(), IsEmpty());
  const auto events = proxy().log();
  ASSERT_TRUE(events) << events.error().to_string();
  std::vector<std::string> asked;
  for (const auto& event : *events) {
    EXPECT_EQ(event.verdict, "refused");
    asked.push_back(event.host);
  }
  EXPECT_THAT(asked, ::testing::Contains("127.0.0.1"));
  EXPECT_THAT(asked, ::testing::Contains("refused.example"));
}

TEST_F(EgressProxyTest, Socks5WithThePasswordOnThePort) {
  ASSERT_NO_FATAL_FAILURE(start({server_.at()}));
  const std::string curl = "curl -sS --socks5-hostname temenos:" + password() +
                           "@127.0.0.1:" + std::to_string(proxy().port()) + " http://";
  EXPECT_EQ(client(curl + server_.at() + "/"), WebServer::kBody);
  EXPECT_EQ(client(curl + "host.temenos.internal:" + std::to_string(server_.port()) + "/"),
            WebServer::kBody);
  EXPECT_THAT(client(curl + "refused.example/"), HasSubstr("SOCKS5"));
  const std::string without =
      "curl -sS --socks5-hostname 127.0.0.1:" + std::to_string(proxy().port()) + " http://";
  EXPECT_THAT(client(without + server_.at() + "/"), Not(HasSubstr(WebServer::kBody)));
  const std::string wrong = "curl -sS --socks5-hostname temenos:" + std::string(32, '0') +
                            "@127.0.0.1:" + std::to_string(proxy().port()) + " http://";
  EXPECT_THAT(client(wrong + server_.at() + "/"), Not(HasSubstr(WebServer::kBody)));
}

TEST_F(EgressProxyTest, WhoDoesNotKnowThePasswordReachesNothing) {
  ASSERT_NO_FATAL_FAILURE(start({server_.at()}));
  const std::string at = server_.at();
  for (const std::string& head : {"GET http://" + at + "/ HTTP/1.1\r\nHost: " + at + "\r\n",
                                  "CONNECT " + at + " HTTP/1.1\r\nHost: " + at + "\r\n"}) {
    for (const std::string& password :
         {std::string(), std::string("temenos:"), "temenos:" + std::string(32, '0'),
          ":" + this->password()}) {
      const std::string field =
          password.empty() ? "" : "Proxy-Authorization: Basic " + base64_encode(password) + "\r\n";
      const std::string answer = raw(head + field + "\r\n");
      EXPECT_THAT(answer, StartsWith("HTTP/1.1 407 "));
      EXPECT_THAT(answer, HasSubstr("\r\nProxy-Authenticate: Basic realm=\"temenos\"\r\n"));
      EXPECT_THAT(answer, HasSubstr("egress refused: this proxy serves those that know its "));
    }
  }
  EXPECT_THAT(server_.heard(), IsEmpty());
  const auto events = proxy().log();
  ASSERT_TRUE(events);
  EXPECT_THAT(*events, IsEmpty());
}

// Other users of the host see command lines; the log is handed on.
TEST_F(EgressProxyTest, ThePasswordIsInTheVariablesAlone) {
  ASSERT_NO_FATAL_FAILURE(start({server_.at()}));
  (void)client("curl -sS http://" + server_.at() + "/; curl -sS http://refused.example/");
  ASSERT_GT(keeper(), 0);
  const auto front = children(keeper(), "temenos-front");
  const auto dialer = children(keeper(), "temenos-dialer");
  ASSERT_EQ(front.size(), 1u);
  ASSERT_EQ(dialer.size(), 1u);
  for (const pid_t pid : {keeper(), front[0], dialer[0]}) {
    const std::string proc = "/proc/" + std::to_string(pid);
    const std::string seen = host_shell("cat " + proc + "/cmdline | tr '\\0' ' '");
    EXPECT_THAT(seen, StartsWith("temenos-"));
    EXPECT_THAT(seen, Not(HasSubstr(password())));
  }
  const auto events = proxy().log();
  ASSERT_TRUE(events);
  EXPECT_FALSE(events->empty());
  for (const auto& event : *events) {
    EXPECT_EQ((event.host + event.rule + event.why + event.address).find(password()),
              std::string::npos);
  }
}

TEST_F(EgressProxyTest, TheListChangesAsAWhole) {
  ASSERT_NO_FATAL_FAILURE(start({}));
  const std::string curl = "curl -sS http://" + server_.at() + "/";
  EXPECT_THAT(client(curl), StartsWith("egress refused"));
  EXPECT_TRUE(proxy().set_rules(rules({server_.at(), "example.com"})));
  EXPECT_EQ(client(curl), WebServer::kBody);
  const auto too_many = proxy().set_rules(std::vector(5000, *HostRule::parse("a.example")));
  ASSERT_FALSE(too_many);
  EXPECT_EQ(too_many.error().code, Code::kInvalidArgument);
  EXPECT_EQ(client(curl), WebServer::kBody);
  EXPECT_TRUE(proxy().set_rules({}));
  EXPECT_THAT(client(curl), StartsWith("egress refused"));

  const auto events = proxy().log();
  ASSERT_TRUE(events) << events.error().to_string();
  const auto end = std::find_if(events->begin(), events->end(),
                                [](const EgressEvent& event) { return event.event == "end"; });
  ASSERT_NE(end, events->end());
  EXPECT_EQ(end->host, "127.0.0.1");
  EXPECT_EQ(end->port, server_.port());
  EXPECT_EQ(end->rule, server_.at());
  EXPECT_GT(end->down, std::string_view(WebServer::kBody).size());
}

TEST_F(EgressProxyTest, ANewListEndsWhatItDoesNotHaveAndNothingElse) {
  const LoopbackListener left, kept;
  const auto at = [](const LoopbackListener& listener) {
    return "127.0.0.1:" + std::to_string(listener.port);
  };
  ASSERT_NO_FATAL_FAILURE(start({at(left), at(kept)}));
  const auto connect_by_socks = [this](std::uint16_t port) {
    UniqueFd fd = connect_loopback(proxy().port());
    const std::string login = std::string("\x01\x07temenos") + char(password().size()) + password();
    std::string to("\x05\x01\x00\x01\x7f\x00\x00\x01", 8);  // a connection to 127.0.0.1
    to += {static_cast<char>(port >> 8), static_cast<char>(port & 0xff)};
    for (const auto& [said, answer] :
         {std::pair<std::string, std::size_t>{"\x05\x01\x02", 2}, {login, 2}, {to, 10}}) {
      EXPECT_TRUE(send_text(fd.get(), said));
      char room[10];
      EXPECT_EQ(recv(fd.get(), room, answer, MSG_WAITALL), static_cast<ssize_t>(answer));
      EXPECT_EQ(room[1], answer == 2 && said[0] == 5 ? 2 : 0);
    }
    return fd;
  };
  const UniqueFd to_left = connect_by_socks(left.port), to_kept = connect_by_socks(kept.port);
  const UniqueFd left_end = left.accept_one(), kept_end = kept.accept_one();
  ASSERT_TRUE(left_end && kept_end);
  EXPECT_TRUE(proxy().set_rules(rules({at(kept)})));
  char byte = 0;
  for (const int fd : {to_left.get(), left_end.get()}) {
    pollfd ended{fd, POLLIN, 0};
    ASSERT_EQ(poll(&ended, 1, 5000), 1);
    EXPECT_LE(recv(fd, &byte, 1, 0), 0);
  }
  EXPECT_TRUE(send_text(kept_end.get(), "!"));
  EXPECT_EQ(recv(to_kept.get(), &byte, 1, 0), 1);
}

TEST_F(EgressProxyTest, AKilledPartComesBackWithPortPasswordAndRules) {
  ASSERT_NO_FATAL_FAILURE(start({}));
  ASSERT_TRUE(proxy().set_rules(rules({server_.at()})));
  const auto before = proxy().environment();
  for (const char* name : {"temenos-front", "temenos-dialer"}) {
    const auto killed = children(keeper(), name);
    ASSERT_EQ(killed.size(), 1u);
    ASSERT_EQ(kill(killed[0], SIGKILL), 0);
    ASSERT_TRUE(until([&] {
      const auto now = children(keeper(), name);
      return now.size() == 1 && now[0] != killed[0];
    })) << name;
    EXPECT_TRUE(until([&] {
      return client("curl -sS http://" + server_.at() + "/") == WebServer::kBody;
    })) << name;
  }
  EXPECT_EQ(proxy().environment(), before);
}

// The fixture looks for processes that are left.
TEST_F(EgressProxyTest, EndsWithItsProgram) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  UniqueFd reader(ends[0]);
  UniqueFd writer(ends[1]);
  const pid_t child = fork();
  if (child == 0) {
    auto started = EgressProxy::start({}, {.libexec = libexec()});
    const std::uint16_t port = started ? started->port() : 0;
    (void)!write(writer.get(), &port, sizeof port);
    pause();
  }
  writer.reset();
  std::uint16_t port = 0;
  ASSERT_EQ(read(reader.get(), &port, sizeof port), static_cast<ssize_t>(sizeof port));
  ASSERT_NE(port, 0);
  connect_loopback(port).reset();
  kill(child, SIGKILL);
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  EXPECT_TRUE(until([&] {
    const UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const sockaddr_in at{
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr = {htonl(INADDR_LOOPBACK)}};
    return connect(fd.get(), reinterpret_cast<const sockaddr*>(&at), sizeof at) != 0 &&
           errno == ECONNREFUSED;
  }));
  EXPECT_TRUE(wait_for_descendants(20));
}

TEST_F(EgressProxyTest, WhenItsKeeperIsKilledItSaysThatItHasEnded) {
  ASSERT_NO_FATAL_FAILURE(start({}));
  ASSERT_EQ(kill(keeper(), SIGKILL), 0);
  ASSERT_TRUE(until([&] { return !proxy().log(); }));
  const auto after = proxy().set_rules({});
  ASSERT_FALSE(after);
  EXPECT_EQ(after.error().to_string(), "the proxy has ended: start another one");
  end();
  // Front and dialer see its end, and are ours to reap now.
  EXPECT_TRUE(wait_for_descendants(20));
}

TEST_F(EgressProxyTest, WhatCannotStartSaysWhy) {
  const auto none = EgressProxy::start({}, {.libexec = host_.path()});
  ASSERT_FALSE(none);
  EXPECT_THAT(none.error().to_string(), HasSubstr("temenos is not installed whole"));
  const std::string programs = host_.dir("programs");
  host_shell("cp " + libexec() + "/temenos-keeper " + libexec() + "/temenos-front " + programs +
             " && cp /bin/false " + programs + "/temenos-dialer && chmod -R a+rX " + programs);
  const auto dead = EgressProxy::start({}, {.libexec = programs});
  ASSERT_FALSE(dead);
  EXPECT_THAT(dead.error().to_string(),
              StartsWith("cannot start the proxy: temenos-dialer has ended with status 1 before it "
                         "was locked down: see whether this runs: " +
                         programs + "/temenos-dialer --version"));
}

}  // namespace
}  // namespace temenos::testing
