// The subcommands beside run, and the help of each.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "codec/json.h"
#include "tests/integration/program.h"

namespace temenos::testing {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;

class ProgramsTest : public IntegrationTest {};

TEST_F(ProgramsTest, HelpSaysWhatThereIs) {
  struct {
    std::vector<std::string> args;
    std::vector<const char*> fragments;
  } const cases[] = {
      {{}, {"temenos runs untrusted code in a box", "temenos run --no-net -- python3 -c"}},
      {{"--help"}, {"Usage: temenos", "run ", "doctor ", "selftest ", "version ", "Exit status:"}},
      {{"run", "--help"},
       {"Usage: temenos run [box flags] [command flags] -- COMMAND...\n",
        "--net MODE",
        "--no-net",
        "--allow-host ENTRY",
        "--read PATH",
        "--write PATH",
        "--volume HOST:TARGET[:ro|rw]",
        "--image NAME",
        "--memory MB",
        "--cpus N",
        "--cpu SECONDS",
        "--pids N",
        "--disk MB",
        "--output MB",
        "--ttl SECONDS",
        "--idle SECONDS",
        "--scratch WHERE",
        "--ephemeral",
        "--review",
        "--env K=V",
        "--secret-file HOST:TARGET",
        "--limits MODE",
        "--enforcement MODE",
        "--platform NAME",
        "--allow-danger NAME",
        "--policy FILE",
        "-i,--stdin",
        "-t ",
        "--cwd DIR",
        "--timeout SECONDS",
        "--json"}},
      {{"doctor", "--help"}, {"Usage: temenos doctor", "--json", "Exit status: 0 when a box runs"}},
      {{"selftest", "--help"}, {"Usage: temenos selftest", "--json", "--platform NAME"}},
      {{"version", "--help"}, {"Usage: temenos version", "--json"}},
  };
  for (const auto& one : cases) {
    const auto result = host_.temenos(one.args);
    EXPECT_EQ(result.status, 0);
    EXPECT_EQ(result.err, "");
    for (const char* fragment : one.fragments) EXPECT_THAT(result.out, HasSubstr(fragment));
    EXPECT_THAT(result.out, Not(HasSubstr("\x1b")));
  }
}

TEST_F(ProgramsTest, Version) {
  const auto text = host_.temenos({"version"});
  EXPECT_EQ(text.status, 0);
  EXPECT_EQ(text.out.rfind("temenos ", 0), 0u);
  EXPECT_THAT(text.out, HasSubstr("\nrunsc "));
  const auto json = parse_json(host_.temenos({"version", "--json"}).out, {});
  ASSERT_TRUE(json);
  const std::string version(json->at("temenos").as_string());
  EXPECT_EQ(text.out,
            "temenos " + version + "\nrunsc " + std::string(json->at("runsc").as_string()) + "\n");
  // Without a runsc it still answers.
  const auto none = host_.temenos({"version", "--json"}, "", "", {{"TEMENOS_RUNSC", "/none"}});
  EXPECT_EQ(none.status, 0);
  EXPECT_TRUE(parse_json(none.out, {})->at("runsc").is_null());
}

TEST_F(ProgramsTest, DoctorSaysThatABoxRuns) {
  const auto result = host_.temenos({"doctor", "--json"});
  EXPECT_EQ(result.status, 0) << result.out;
  EXPECT_EQ(result.err, "");
  const auto json = parse_json(result.out, {});
  ASSERT_TRUE(json) << result.out;
  EXPECT_TRUE(json->at("ok").as_bool());
  const auto& runsc = json->at("runsc").as_object();
  EXPECT_EQ(runsc.at("path").as_string()[0], '/');
  EXPECT_FALSE(runsc.at("version").as_string().empty());
  EXPECT_FALSE(runsc.at("capabilities").as_array().empty());
  const auto& platform = json->at("platform").as_object();
  std::string working;
  for (const auto& trial : platform.at("tried").as_array()) {
    if (trial.at("ok").as_bool()) working += " " + std::string(trial.at("name").as_string());
    EXPECT_GE(trial.at("ms").as_int64(), 0);
    EXPECT_EQ(trial.at("ok").as_bool(), trial.at("why").as_string().empty());
  }
  // Both are promised.
  EXPECT_THAT(working, HasSubstr("systrap"));
  EXPECT_THAT(working, HasSubstr("ptrace"));
  EXPECT_THAT(working, HasSubstr(std::string(platform.at("chosen").as_string())));
  const auto& userns = json->at("userns").as_object();
  EXPECT_TRUE(userns.at("ok").as_bool());
  EXPECT_TRUE(userns.at("id_map").as_string() == "range" || !userns.at("why").as_string().empty());
  const auto& network = json->at("network");
  const bool enforced = network.at("mode").as_string() == "enforced";
  EXPECT_EQ(network.at("netns").as_bool() && network.at("nft").as_bool() &&
                network.at("tproxy").as_bool(),
            enforced);
  EXPECT_EQ(network.at("why").as_string().empty(), enforced);
  EXPECT_EQ(network.at("fix").as_string().empty(), enforced);
  const char* must = getenv("TEMENOS_MUST_WORK");
  if (must != nullptr && std::string(must) == "1") EXPECT_TRUE(enforced) << result.out;
  const auto& limits = json->at("limits");
  for (const char* kind : {"memory", "cpu", "pids"}) EXPECT_TRUE(limits.at(kind).is_bool()) << kind;
  const auto& disk = limits.at("disk").as_object();
  EXPECT_THAT(std::string(disk.at("held_by").as_string()), AnyOf("project_quota", "watch"));
  EXPECT_EQ(disk.at("held_by").as_string() == "watch", !disk.at("why").as_string().empty());
  if (geteuid() != 0) EXPECT_EQ(disk.at("why").as_string(), "only root may set a project quota");
  // Either all holds, or it says why not and what to do.
  EXPECT_EQ(limits.at("memory").as_bool() && limits.at("cpu").as_bool(),
            limits.at("why").as_string().empty());
  EXPECT_EQ(limits.at("why").as_string().empty(), limits.at("fix").as_string().empty());
  EXPECT_TRUE(json->at("overlay").at("ok").as_bool());
  EXPECT_TRUE(json->at("tools").as_object().contains("newuidmap"));
}

// The kernel of this host has TPROXY; a program that says it has not stands for one without.
TEST_F(ProgramsTest, DoctorSaysHowFarAFilteredNetworkCame) {
  const std::string bin = temenos_program().substr(0, temenos_program().rfind('/'));
  const std::string prefix = host_.dir("prefix");
  host_shell("cp -r " + bin + "/../bin " + bin + "/../libexec " + prefix + "/ && cp " +
             guest("fake_netsetup") + " " + prefix +
             "/libexec/temenos/temenos-netsetup && chmod -R a+rX " + prefix);
  const Variables env{{"TEMENOS_RUNSC", "/none"}};  // no box is tried
  Program text(host_, {prefix + "/bin/temenos", "doctor"}, env);
  EXPECT_THAT(
      text.finish().out,
      HasSubstr(
          "--   network      a filtered network is cooperative, not a boundary, and only when "
          "asked for: no TPROXY here: sudo modprobe x; or, without a boundary: --enforcement "
          "cooperative\n"));
  Program program(host_, {prefix + "/bin/temenos", "doctor", "--json"}, env);
  const auto json = parse_json(program.finish().out, {});
  ASSERT_TRUE(json);
  EXPECT_EQ(serialize_json(json->at("network")),
            R"({"netns":true,"nft":true,"tproxy":false,"mode":"cooperative",)"
            R"("why":"cooperative, not a boundary: no TPROXY here",)"
            R"("fix":"sudo modprobe x; or, without a boundary: --enforcement cooperative"})");
}

TEST_F(ProgramsTest, DoctorNamesWhatIsMissingAndTheFix) {
  const Variables env{{"TEMENOS_RUNSC", "/none"}, {"PATH", "/none"}};
  const auto text = host_.temenos({"doctor"}, "", "", env);
  EXPECT_EQ(text.status, 125);
  EXPECT_THAT(text.out, HasSubstr("--   runsc"));
  EXPECT_THAT(text.out, HasSubstr("run ./scripts/setup"));
  EXPECT_THAT(text.out, HasSubstr("sudo apt-get install uidmap"));
  EXPECT_THAT(text.out, HasSubstr("disk         --disk is "));
  EXPECT_THAT(text.out, HasSubstr("No box runs on this host"));
  const auto result = host_.temenos({"doctor", "--json"}, "", "", env);
  EXPECT_EQ(result.status, 125);
  const auto json = parse_json(result.out, {});
  ASSERT_TRUE(json) << result.out;
  EXPECT_FALSE(json->at("ok").as_bool());
  EXPECT_TRUE(json->at("runsc").at("path").is_null());
  EXPECT_THAT(std::string(json->at("runsc").at("why").as_string()), HasSubstr("./scripts/setup"));
  EXPECT_TRUE(json->at("platform").at("chosen").is_null());
}

class SelftestTest : public IntegrationTest, public ::testing::WithParamInterface<std::string> {};
INSTANTIATE_TEST_SUITE_P(Each, SelftestTest, ::testing::ValuesIn(platforms()),
                         [](const auto& info) { return info.param; });

TEST_P(SelftestTest, EverythingHolds) {
  const auto result = host_.temenos({"selftest", "--json", "--platform", GetParam()});
  EXPECT_EQ(result.status, 0) << result.out << result.err;
  EXPECT_EQ(result.err, "");
  const auto json = parse_json(result.out, {});
  ASSERT_TRUE(json) << result.out;
  EXPECT_TRUE(json->at("ok").as_bool());
  EXPECT_GE(json->at("rows").as_array().size(), 17u);
  std::string names;
  for (const auto& row : json->at("rows").as_array()) {
    EXPECT_TRUE(row.at("ok").as_bool()) << row.at("name") << " " << row.at("detail");
    names += std::string(row.at("name").as_string()) + "\n";
  }
  for (const char* jail : {"the session's jail", "the front's jail", "the dialer's jail"}) {
    EXPECT_THAT(names, HasSubstr(jail));
  }
}

TEST_F(ProgramsTest, SelftestWithoutABoxIs125) {
  expect_error(host_.temenos({"selftest"}, "", "", {{"TEMENOS_RUNSC", "/none"}}), 125,
               {"TEMENOS_RUNSC names /none", "./scripts/setup"});
}

}  // namespace
}  // namespace temenos::testing
