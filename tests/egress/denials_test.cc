// What a command, and a person, are told of what a filtered network has refused, and of its parts'
// deaths.
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <future>
#include <sstream>

#include "codec/json.h"
#include "temenos/box_manager.h"
#include "temenos/policy_builder.h"
#include "tests/egress/egress_test.h"
#include "tests/egress/told.h"

namespace temenos::testing {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::UnorderedElementsAre;

// KIND TARGET (HINT), of `temenos run --json`.
std::vector<std::string> denials_in(const CliResult& result) {
  std::vector<std::string> out;
  const auto document = parse_json(result.out);
  if (!document) {
    ADD_FAILURE() << result.out << result.err;
    return out;
  }
  for (const auto& value : document->as_object().at("denials").as_array()) {
    const auto& denial = value.as_object();
    const auto text = [&](const char* field) { return std::string(denial.at(field).as_string()); };
    EXPECT_NE(text("rule"), "");
    EXPECT_THAT(text("time"), ::testing::StartsWith("20"));
    out.push_back(text("kind") + " " + text("target") + " (" + text("hint") + ")");
  }
  return out;
}

class DenialsTest : public EgressTest {};
INSTANTIATE_TEST_SUITE_P(Each, DenialsTest, everybody(), name_of);

constexpr char kAllWays[] = R"sh(
direct="env -u http_proxy -u https_proxy -u HTTP_PROXY -u HTTPS_PROXY"
curl -s https://refused.site/                      # a name, to the proxy
$direct curl -s http://evil.net/                   # a name, by way of DNS
$direct curl -s http://45.46.0.66:8080/            # an address
$direct curl -gs 'http://[2606:4546::66]:8080/'
$direct curl -s http://169.254.169.254/            # what nothing opens
$direct curl -s http://127.0.0.1:9/                # its own loopback
getent hosts other.site                            # a look-up alone
curl -s https://allowed.site/
true)sh";

TEST_P(DenialsTest, ByNameByAddressAndByDns) {
  const auto result = run({"allowed.site"}, kAllWays, {"--json"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(
      denials_in(result),
      UnorderedElementsAre("egress refused.site:443 (--allow-host refused.site)",
                           "egress evil.net:80 (--allow-host evil.net)",
                           "egress 45.46.0.66:8080 (--allow-host 45.46.0.66:8080)",
                           "egress [2606:4546::66]:8080 (--allow-host [2606:4546::66]:8080)",
                           "egress 169.254.169.254:80 (no rule opens it: special_address)",
                           "dns other.site (--allow-host other.site)"));
  EXPECT_EQ(result.err, "");
}

TEST_P(DenialsTest, ARunSaysThemOnStderr) {
  const auto result = run({"allowed.site"}, "curl -s https://refused.site/; getent hosts evil.net");
  EXPECT_THAT(result.err,
              AllOf(HasSubstr("temenos: refused: refused.site:443 (--allow-host refused.site)\n"),
                    HasSubstr("temenos: refused: evil.net (--allow-host evil.net)\n")));
  const auto many = run({"allowed.site"},
                        "for i in 1 2 3 4 5 6 7; do curl -s https://h$i.refused.site/; done; true");
  EXPECT_THAT(many.err, HasSubstr("temenos: and 2 others: --json has them\n"));
  EXPECT_EQ(run({"allowed.site"}, "curl -s https://allowed.site/ >/dev/null").err, "");
}

// A name is the box's choice of bytes: nothing of it moves a cursor or forges a line.
TEST_P(DenialsTest, ControlBytesInNamesGetNowhere) {
  const std::string script = R"sh(cat >/tmp/ask.py <<'END'
import socket, struct
evil = b'\x1b[2J\x07evil\nforged: line.net'
def socks(name):
    peer = socket.create_connection(('198.18.0.1', 3128), 10)
    peer.sendall(b'\x05\x01\x00')
    peer.recv(2)
    peer.sendall(b'\x05\x01\x00\x03' + bytes([len(name)]) + name + struct.pack('>H', 443))
    peer.recv(100)
def dns(label):
    peer = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    peer.settimeout(5)
    peer.connect(('198.18.0.1', 53))
    peer.send(struct.pack('>6H', 7, 0x100, 1, 0, 0, 0) + bytes([len(label)]) + label +
              b'\x03net\x00' + struct.pack('>2H', 1, 1))
    try: peer.recv(512)
    except OSError: pass
def head(name):
    peer = socket.create_connection(('198.18.0.1', 3128), 10)
    peer.sendall(b'CONNECT ' + name + b':443 HTTP/1.1\r\nHost: x\r\n\r\n')
    peer.recv(100)
def host(name):
    peer = socket.create_connection(('allowed.site', 80), 10)
    peer.sendall(b'GET / HTTP/1.1\r\nHost: ' + name + b'\r\n\r\n')
    peer.recv(100)
for ask, name in ((socks, evil), (dns, evil), (head, evil), (host, evil), (socks, b'\xff\xfe.net'),
                  (socks, b'refused.site')):
    try: ask(name)
    except OSError: pass
END
python3 /tmp/ask.py)sh";
  // What is no name is refused and is nobody's destination; the last one is a name.
  EXPECT_THAT(denials_in(run({"allowed.site"}, script, {"--json"})),
              UnorderedElementsAre("egress allowed.site:80 (no rule opens it: malformed)",
                                   "egress refused.site:443 (--allow-host refused.site)"));
  EXPECT_EQ(run({"allowed.site"}, script).err,
            "temenos: refused: allowed.site:80 (no rule opens it: malformed)\n"
            "temenos: refused: refused.site:443 (--allow-host refused.site)\n");
}

// A box without a name has no log that outlives it: who waits for its command is told.
TEST_P(DenialsTest, TheDeathOfAPartIsAWarningOfTheRun) {
  auto words = run_words({"allowed.site"}, "", {"-i"});
  words.resize(words.size() - 3);
  words.insert(words.end(), {"/bin/bash", "-s"});
  Told box(std::make_unique<Program>(host(), argv(words)));
  EXPECT_THAT(box.ask("curl -sS https://allowed.site/"), HasSubstr("reached"));
  const pid_t dialer = child_of(box_processes(box.pid()).keeper, "temenos-dialer");
  ASSERT_GT(dialer, 0);
  ASSERT_EQ(kill(dialer, SIGKILL), 0);
  EXPECT_THAT(box.ask("until curl -sS https://allowed.site/; do :; done"), HasSubstr("reached"));
  EXPECT_THAT(box.finish().err,
              HasSubstr("temenos: warning: the dialer of the box's network has died; it is started "
                        "again\n"));
  EXPECT_EQ(run({"allowed.site"}, "curl -s https://allowed.site/ >/dev/null").err, "");
}

// The library, in this process.
class LibraryDenials : public EgressTest {
 protected:
  void SetUp() override {
    EgressTest::SetUp();
    if (IsSkipped()) return;
    for (const auto& variable : host().environment()) {
      const auto equals = variable.find('=');
      setenv(variable.substr(0, equals).c_str(), variable.substr(equals + 1).c_str(), 1);
    }
  }
  static Policy policy(const Words& allowed) {
    Policy::Builder builder;
    builder.network(NetworkMode::kFiltered);
    for (const auto& entry : allowed) builder.allow_host(entry);
    return *builder.build();
  }
  static ExecResult exec(Box& box, const std::string& script) {
    ExecRequest request;
    request.argv = {"bash", "-c", script};
    auto result = box.exec(request);
    if (result) return std::move(*result);
    ADD_FAILURE() << result.error().to_string();
    return {};
  }
  static Words targets(const ExecResult& result) {
    Words out;
    for (const auto& denial : result.denials) out.push_back(denial.target);
    return out;
  }
};
INSTANTIATE_TEST_SUITE_P(Each, LibraryDenials, ::testing::Values(Who::kRoot), name_of);

TEST_P(LibraryDenials, EachCommandHasItsOwn) {
  auto manager = BoxManager::open();
  ASSERT_TRUE(manager) << manager.error().to_string();
  auto box = manager->run(policy({"allowed.site"}));
  ASSERT_TRUE(box) << box.error().to_string();
  EXPECT_THAT(targets(exec(*box, "curl -s https://refused.site/")),
              ElementsAre("refused.site:443"));
  EXPECT_THAT(targets(exec(*box, "true")), IsEmpty());
  EXPECT_THAT(targets(exec(*box, "curl -s https://evil.net/")), ElementsAre("evil.net:443"));
  // The same again, which the log counts together with the first.
  EXPECT_THAT(targets(exec(*box, "curl -s https://evil.net/; curl -s https://evil.net/")),
              ElementsAre("evil.net:443"));
  EXPECT_THAT(targets(exec(*box, "curl -s https://allowed.site/")), IsEmpty());
}

TEST_P(LibraryDenials, ABoxWithoutANameIsEditedAndToldOfItsNetwork) {
  auto manager = BoxManager::open();
  ASSERT_TRUE(manager) << manager.error().to_string();
  auto box = manager->run(policy({"allowed.site"}));
  ASSERT_TRUE(box) << box.error().to_string();
  const auto before = box->warnings();
  EXPECT_THAT(targets(exec(*box, "curl -s https://other.site/")), ElementsAre("other.site:443"));
  const auto wider = box->allow_hosts({"Other.site"});
  ASSERT_TRUE(wider) << wider.error().to_string();
  EXPECT_THAT(wider->entries, ElementsAre("allowed.site", "other.site"));
  EXPECT_THAT(exec(*box, "curl -sS https://other.site/").stdout_data, HasSubstr("reached"));
  EXPECT_FALSE(box->deny_hosts({"other.site", "evil.net"}));
  const auto narrower = box->deny_hosts({"other.site"});
  ASSERT_TRUE(narrower) << narrower.error().to_string();
  EXPECT_EQ(*box->allowed_hosts(), narrower->entries);
  EXPECT_THAT(narrower->entries, ElementsAre("allowed.site"));
  EXPECT_THAT(targets(exec(*box, "curl -s https://other.site/")), ElementsAre("other.site:443"));
  EXPECT_EQ(box->warnings(), before);

  const pid_t keeper = box_processes(getpid()).keeper;
  for (const char* part : {"temenos-front", "temenos-dialer"}) {
    const pid_t pid = child_of(keeper, part);
    ASSERT_GT(pid, 0) << part;
    ASSERT_EQ(kill(pid, SIGKILL), 0);
    const auto result = exec(*box, "until curl -sS https://allowed.site/; do :; done");
    EXPECT_THAT(result.stdout_data, HasSubstr("reached"));
    EXPECT_THAT(box->warnings().back(),
                HasSubstr(std::string("the ") + (part + sizeof "temenos") +
                          " of the box's network has died; it is started again"));
    EXPECT_THAT(exec(*box, "curl -s https://other.site/").stdout_data, Not(HasSubstr("reached")));
  }
  EXPECT_EQ(box->warnings().size(), before.size() + 2);
  EXPECT_TRUE(box->stop());
  const auto gone = box->allow_hosts({"other.site"});
  ASSERT_FALSE(gone);
  EXPECT_EQ(gone.error().code, Code::kBoxDied);
}

// A command that loses a connection in the midst of it is told why.
TEST_P(LibraryDenials, WhatADenyHasClosedIsInTheResult) {
  internet().zone("one.world.site 45.46.2.1\n");
  auto manager = BoxManager::open();
  ASSERT_TRUE(manager) << manager.error().to_string();
  auto box = manager->create({"", "closing"}, policy({"one.world.site:2525"}));
  ASSERT_TRUE(box) << box.error().to_string();
  ASSERT_TRUE(box->start());
  auto other = manager->find({"", "closing"});
  ASSERT_TRUE(other) << other.error().to_string();
  // The command's first word comes when its connection is open.
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  const UniqueFd reader(ends[0]);
  UniqueFd writer(ends[1]);
  auto denied = std::async(std::launch::async, [&] {
    char byte;
    return read(reader.get(), &byte, 1) == 1 && other->deny_hosts({"one.world.site:2525"});
  });
  ExecRequest request;
  request.argv = {"bash", "-c", "exec 3<>/dev/tcp/one.world.site/2525 && head -1 <&3 && cat <&3"};
  ExecIo io;
  io.stdout_fd = writer.get();
  const auto result = box->exec(request, io);
  writer.reset();
  ASSERT_TRUE(result) << result.error().to_string();
  EXPECT_TRUE(denied.get());
  EXPECT_THAT(targets(*result), ElementsAre("one.world.site:2525"));
  EXPECT_TRUE(manager->remove({"", "closing"}));
}

}  // namespace
}  // namespace temenos::testing
