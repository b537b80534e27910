// Cooperative enforcement: a box with the host's network and a proxy that its programs are asked to
// use, only when it is named, and said to be no boundary by everything that reports.
#include <gmock/gmock.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "codec/json.h"
#include "temenos/allow/cooperative_enforcement.h"
#include "temenos/box_manager.h"
#include "temenos/policy_builder.h"
#include "tests/integration/durable_box.h"
#include "tests/integration/web_server.h"

namespace temenos::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

constexpr char kWarning[] =
    "temenos: warning: the network of this box is cooperative, not a boundary: it is the host's, "
    "and only programs that heed HTTP_PROXY and HTTPS_PROXY are held to the allowlist\n";

class CooperativeTest : public IntegrationTest {
 protected:
  CliResult cooperative(const std::vector<std::string>& flags, const std::string& script) const {
    std::vector<std::string> args{"run", "--enforcement", "cooperative"};
    args.insert(args.end(), flags.begin(), flags.end());
    args.insert(args.end(), {"--", "sh", "-c", script});
    return host_.temenos(args);
  }
  WebServer server_;
};

TEST_F(CooperativeTest, ProgramsThatHeedTheProxyAreHeldToTheList) {
  const std::string port = std::to_string(server_.port());
  const auto result = cooperative(
      {"--allow-host", server_.at()},
      "curl -sS http://" + server_.at() + "/; echo; wget -qO- http://localhost:" + port +
          "/; echo; curl -sS --proxytunnel http://host.temenos.internal:" + port +
          "/; echo; python3 -c 'import urllib.request; "
          "print(urllib.request.urlopen(\"http://" +
          server_.at() + "\").read().decode())'; curl -sS http://refused.example:81/; exit 7");
  EXPECT_EQ(result.status, 7);
  EXPECT_EQ(result.out,
            "hello from the host\nhello from the host\nhello from the host\n"
            "hello from the host\n"
            "egress refused: refused.example:81 is not in the allowlist\n"
            "To allow it, start the box with --allow-host refused.example:81\n");
  EXPECT_EQ(result.err,
            std::string(kWarning) +
                "temenos: refused: refused.example:81 (--allow-host refused.example:81)\n");
}

// The variables and nothing else: loopback is the host's, so nothing goes past the proxy to it.
TEST_F(CooperativeTest, ThereIsNoNoProxy) {
  const auto result = cooperative({}, "env | grep -i proxy | sed 's/=.*@127/=127/' | sort -f");
  std::string names;
  for (std::istringstream lines(result.out); std::getline(lines, names, '=');) {
    EXPECT_THAT(names, Not(HasSubstr("NO_PROXY")));
    EXPECT_THAT(names, Not(HasSubstr("no_proxy")));
    std::getline(lines, names);
    EXPECT_THAT(names, StartsWith("127.0.0.1:"));
  }
  EXPECT_EQ(std::count(result.out.begin(), result.out.end(), '\n'), 6) << result.out;
  EXPECT_EQ(result.err, kWarning);
}

TEST_F(CooperativeTest, AnEmptyListRefusesLoopbackToo) {
  const auto result = cooperative({"--json"}, "curl -sS http://" + server_.at() + "/");
  const auto json = parse_json(result.out, {});
  ASSERT_TRUE(json) << result.out << result.err;
  const auto& denials = json->at("denials").as_array();
  ASSERT_EQ(denials.size(), 1u) << result.out;
  EXPECT_EQ(denials[0].at("target").as_string(), server_.at());
  EXPECT_EQ(denials[0].at("hint").as_string(), "--allow-host " + server_.at());
  EXPECT_EQ(server_.heard(), "");
}

// What it is called for: it holds nobody who goes past the proxy. Should this ever fail, it is
// better than what the documents say.
TEST_F(CooperativeTest, ItIsNotABoundary) {
  const auto result = cooperative({}, "curl -sS --noproxy '*' http://" + server_.at() + "/");
  EXPECT_EQ(result.out, WebServer::kBody);
  EXPECT_EQ(result.err, kWarning);
}

TEST_F(CooperativeTest, OnlyWithAFilteredNetwork) {
  for (const auto& flags :
       std::vector<std::vector<std::string>>{{"--no-net"}, {"--net", "none"}, {"--net", "host"}}) {
    const auto result = cooperative(flags, "true");
    expect_error(result, 2, {"--enforcement cooperative goes with --net filtered only"});
  }
}

// Never by itself: who cannot enforce refuses, and names the flag last.
TEST_F(CooperativeTest, AHostThatCannotEnforceRunsItWhenItIsNamed) {
  const std::string bin = temenos_program().substr(0, temenos_program().rfind('/'));
  const std::string prefix = host_.dir("prefix");
  host_shell("cp -r " + bin + "/../bin " + bin + "/../libexec " + prefix + "/ && cp " +
             guest("fake_netsetup") + " " + prefix +
             "/libexec/temenos/temenos-netsetup && chmod -R a+rX " + prefix);
  setenv("TEMENOS_BIN", (prefix + "/bin/temenos").c_str(), 1);
  const auto refused = host_.temenos({"run", "--", "echo", "ran"});
  const auto ran = cooperative({}, "echo ran");
  setenv("TEMENOS_BIN", (bin + "/temenos").c_str(), 1);
  expect_error(refused, 125,
               {"the box cannot have a filtered network: no TPROXY here: sudo modprobe x; or, "
                "without a boundary: --enforcement cooperative"});
  EXPECT_THAT(refused.err, EndsWith("--enforcement cooperative\n"));
  EXPECT_EQ(ran.out, "ran\n");
  EXPECT_EQ(ran.err, kWarning);
}

class CooperativeBox : public DurableBoxTest {
 protected:
  void SetUp() override {
    enter_host();
    auto manager = BoxManager::open();
    ASSERT_TRUE(manager) << manager.error().to_string();
    manager_.emplace(std::move(*manager));
  }
  void TearDown() override {
    if (manager_) EXPECT_TRUE(manager_->remove({"", "box"}));
    DurableBoxTest::TearDown();
  }
  Result<Box> create() {
    return manager_->create({"", "box"},
                            *Policy::Builder()
                                 .enforcement_cooperative(allow::CooperativeEnforcement{})
                                 .allow_host(server_.at())
                                 .build());
  }
  ExecRequest curl() const {
    ExecRequest request;
    request.argv = {"curl", "-sS", "http://" + server_.at() + "/", "http://refused.example/"};
    return request;
  }
  static std::string proxy_of(const Box& box) {
    const auto variables = box.environment();
    const auto found = std::find_if(variables.begin(), variables.end(), [](const auto& variable) {
      return variable.starts_with("HTTP_PROXY=");
    });
    return found == variables.end() ? "" : *found;
  }
  static std::string password_of(const std::string& proxy) {
    return proxy.substr(proxy.find("temenos:") + 8, 32);
  }

  WebServer server_;
  std::optional<BoxManager> manager_;
};

TEST_F(CooperativeBox, EachHandleAndEachLifeHasItsProxy) {
  auto box = create();
  ASSERT_TRUE(box) << box.error().to_string();
  EXPECT_FALSE(box->network_enforced());
  EXPECT_THAT(std::string(box->network_enforcement_reason()),
              HasSubstr("cooperative, not a boundary"));
  EXPECT_EQ(proxy_of(*box), "");  // it does not live
  const auto seen = box->exec(curl());
  ASSERT_TRUE(seen) << seen.error().to_string();
  EXPECT_THAT(seen->stdout_data, StartsWith("hello from the hostegress refused: "));
  ASSERT_EQ(seen->denials.size(), 1u);
  EXPECT_EQ(seen->denials[0].target, "refused.example:80");
  EXPECT_EQ(std::count(box->warnings().begin(), box->warnings().end(),
                       std::string(box->network_enforcement_reason())),
            1);
  const std::string first = proxy_of(*box);
  EXPECT_NE(first, "");

  auto other = manager_->find({"", "box"});
  ASSERT_TRUE(other);
  const auto again = other->exec(curl());
  ASSERT_TRUE(again) << again.error().to_string();
  EXPECT_THAT(again->stdout_data, StartsWith("hello from the hostegress refused: "));
  EXPECT_EQ(again->denials.size(), 1u);
  EXPECT_EQ(proxy_of(*other), first);

  ASSERT_TRUE(box->stop());
  const auto next = box->exec(curl());
  ASSERT_TRUE(next) << next.error().to_string();
  EXPECT_THAT(next->stdout_data, StartsWith("hello from the hostegress refused: "));
  EXPECT_NE(password_of(proxy_of(*box)), password_of(first));

  // The audit log and the network's have the warning and the refusals, and no password.
  const std::string logs =
      host_shell("cat " + data_dir("box") + "/audit.jsonl " + data_dir("box") + "/egress.*.log");
  EXPECT_THAT(logs, HasSubstr("cooperative, not a boundary"));
  EXPECT_THAT(logs, HasSubstr("refused.example"));
  EXPECT_THAT(logs, Not(HasSubstr(password_of(first))));
  EXPECT_THAT(logs, Not(HasSubstr(password_of(proxy_of(*box)))));
  EXPECT_EQ(host_shell("grep -rl " + password_of(first) + " " + data_dir("box") + " || true"), "");
}

// For who heeds the proxy; as everywhere, of all handles and in the next life too.
TEST_F(CooperativeBox, ItsListIsEditedWhileItLives) {
  auto box = create();
  ASSERT_TRUE(box) << box.error().to_string();
  constexpr char kBoth[] = "hello from the hostegress refused: ";
  const auto before = box->exec(curl());
  ASSERT_TRUE(before) << before.error().to_string();
  EXPECT_THAT(before->stdout_data, StartsWith(kBoth));
  ASSERT_TRUE(box->deny_hosts({server_.at()}));
  const auto denied = box->exec(curl());
  ASSERT_TRUE(denied) << denied.error().to_string();
  EXPECT_THAT(denied->stdout_data,
              StartsWith("egress refused: " + server_.at() + " is not in the allowlist"));
  EXPECT_EQ(denied->denials.size(), 2u);
  auto other = manager_->find({"", "box"});
  ASSERT_TRUE(other);
  ASSERT_TRUE(other->allow_hosts({server_.at()}));
  EXPECT_THAT(*box->allowed_hosts(), ElementsAre(server_.at()));
  const auto allowed = box->exec(curl());
  ASSERT_TRUE(allowed) << allowed.error().to_string();
  EXPECT_THAT(allowed->stdout_data, StartsWith(kBoth));
  ASSERT_TRUE(box->deny_hosts({server_.at()}));
  ASSERT_TRUE(box->stop());
  const auto next = box->exec(curl());
  ASSERT_TRUE(next) << next.error().to_string();
  EXPECT_THAT(next->stdout_data, StartsWith("egress refused: " + server_.at()));
}

TEST_F(CooperativeBox, OtherNetworksAreEnforcedOrSayThatTheyAreNot) {
  auto box = create();  // for TearDown
  ASSERT_TRUE(box);
  const auto none =
      manager_->create({"", "none"}, *Policy::Builder().network(NetworkMode::kNone).build());
  const auto filtered = manager_->create({"", "filtered"}, *Policy::Builder().build());
  const auto host = manager_->create(
      {"", "host"}, *Policy::from_json(R"({"network":"host","allow_danger":["host-network"]})"));
  ASSERT_TRUE(none && filtered && host);
  EXPECT_TRUE(none->network_enforced() && filtered->network_enforced());
  EXPECT_EQ(filtered->network_enforcement_reason(), "");
  EXPECT_FALSE(host->network_enforced());
  EXPECT_EQ(host->network_enforcement_reason(), "the box has the host's network, unfiltered");
  for (const char* name : {"none", "filtered", "host"}) EXPECT_TRUE(manager_->remove({"", name}));
}

}  // namespace
}  // namespace temenos::testing
