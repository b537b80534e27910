// A stock kernel loads what a filtered network needs when an ordinary user's box asks for it; and
// what is told where it does not, because the kernel has no such module. Modules are unloaded and
// forbidden here, and allowed again after each test.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <sstream>

#include "codec/json.h"
#include "tests/integration/program.h"
#include "tests/vm/machine.h"

namespace temenos::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr char kUser[] = "user";
// Those of docs/host.md, and what they need.
constexpr char kModules[] = "nft_tproxy nft_reject_inet nf_tables nfnetlink veth";

class ModulesTest : public IntegrationTest {
 protected:
  void SetUp() override {
    ASSERT_EQ(access("/etc/temenos-vm", F_OK), 0)
        << "this changes the machine: see tests/vm/suites";
    ASSERT_EQ(geteuid(), 0u);
    const passwd* entry = getpwnam(kUser);
    ASSERT_NE(entry, nullptr);
    data_ = host_.dir("of-user");
    ASSERT_EQ(chown(data_.c_str(), entry->pw_uid, entry->pw_gid), 0);
    cache_ = "/var/tmp/temenos-test-cache-" + std::to_string(entry->pw_uid);
    as_root("install -d -o user -g user " + cache_);
    // The namespaces of earlier boxes go a little later than these.
    ASSERT_TRUE(comes_true("modprobe -qr " + std::string(kModules) + "; ! lsmod | grep -Eqw '" +
                               any_of(kModules) + "'",
                           kHangs))
        << as_root("lsmod");
  }
  void TearDown() override {
    if (data_.empty()) return;
    allow_all();
    as_root("find " + data_ + " -mindepth 1 -delete");
    IntegrationTest::TearDown();
  }
  static std::string any_of(std::string words) {
    std::replace(words.begin(), words.end(), ' ', '|');
    return "^(" + words + ")";
  }
  // As if the kernel had been built without it.
  static void forbid(const std::string& module) {
    as_root("mkdir -p /run/modprobe.d; echo 'install " + module +
            " /bin/false' >/run/modprobe.d/temenos-test.conf");
  }
  static void allow_all() { as_root("rm -f /run/modprobe.d/temenos-test.conf"); }
  CliResult temenos(std::vector<std::string> words, const std::string& more = "LC_ALL=C") {
    words.insert(words.begin(),
                 {"/usr/bin/nsenter", "--mount=/proc/1/ns/mnt", "--", "/usr/bin/setpriv",
                  "--reuid=user", "--regid=user", "--init-groups", "--reset-env", "/usr/bin/env",
                  "-C", data_, "XDG_DATA_HOME=" + data_, "XDG_CONFIG_HOME=" + data_,
                  "XDG_CACHE_HOME=" + cache_, more, temenos_program()});
    Program program(host_, std::move(words));
    program.close_in();
    auto result = program.finish(kHangs);
    EXPECT_NE(result.status, -1) << "it hangs; so far: " << result.out << result.err;
    return result;
  }
  CliResult run() {
    return temenos({"run", "--net", "filtered", "--platform", "systrap", "--", "echo", "ran"});
  }

 private:
  std::string data_, cache_;
};

TEST_F(ModulesTest, AnOrdinaryUsersBoxLoadsWhatItNeeds) {
  const auto result = run();
  EXPECT_EQ(result.out, "ran\n") << result.err;
  const auto loaded = as_root("lsmod | cut -d' ' -f1");
  std::istringstream modules(kModules);
  for (std::string module; modules >> module;) EXPECT_THAT(loaded, HasSubstr(module + "\n"));
}

struct Lacking {
  const char* module;
  bool netns, nft;
  const char* why;
  const char* fix;
};
void PrintTo(const Lacking& lacking, std::ostream* out) { *out << lacking.module; }

class LackingTest : public ModulesTest, public ::testing::WithParamInterface<Lacking> {};
INSTANTIATE_TEST_SUITE_P(
    Each, LackingTest,
    ::testing::Values(Lacking{"veth", false, false, "making a veth pair", "sudo modprobe veth"},
                      Lacking{"nfnetlink", true, false, "does not take the rules of nft",
                              "sudo modprobe -a nf_tables nft_reject_inet"},
                      Lacking{"nf_tables", true, false, "does not take the rules of nft",
                              "sudo modprobe -a nf_tables nft_reject_inet"},
                      Lacking{"nft_reject_inet", true, false, "does not take the rules of nft",
                              "sudo modprobe -a nf_tables nft_reject_inet"},
                      Lacking{"nft_tproxy", true, true, "that lead to the proxy",
                              "sudo modprobe nft_tproxy"}),
    [](const auto& info) { return std::string(info.param.module); });

TEST_P(LackingTest, IsToldWithTheFixAndNoBoxStarts) {
  forbid(GetParam().module);
  const auto refused = run();
  EXPECT_EQ(refused.out, "");
  expect_error(refused, 125,
               {"the box cannot have a filtered network", GetParam().why, GetParam().fix});
  // What needs none is not hindered.
  const auto without = temenos({"run", "--no-net", "--platform", "systrap", "--", "echo", "ran"});
  EXPECT_EQ(without.out, "ran\n") << without.err;
  const auto doctor = temenos({"doctor", "--json"}, "TEMENOS_RUNSC=/none");  // no box is tried
  const auto json = parse_json(doctor.out, {});
  ASSERT_TRUE(json) << doctor.out << doctor.err;
  const auto& network = json->at("network").as_object();
  // Which needs none of them, and is had only by its name.
  EXPECT_EQ(network.at("mode").as_string(), "cooperative");
  EXPECT_EQ(network.at("netns").as_bool(), GetParam().netns);
  EXPECT_EQ(network.at("nft").as_bool(), GetParam().nft);
  EXPECT_FALSE(network.at("tproxy").as_bool());
  EXPECT_THAT(std::string(network.at("why").as_string()),
              AllOf(HasSubstr("cooperative, not a boundary: "), HasSubstr(GetParam().why)));
  EXPECT_THAT(std::string(network.at("fix").as_string()), HasSubstr(GetParam().fix));
  // What is told to do helps, at once.
  allow_all();
  std::string fix = GetParam().fix;
  as_root(fix.substr(fix.find("modprobe")));
  EXPECT_EQ(run().out, "ran\n");
}

}  // namespace
}  // namespace temenos::testing
