#include "policy/presets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "temenos/network.h"

namespace temenos {
namespace {

using ::testing::HasSubstr;

TEST(Presets, EachHasRulesAndReasonsAndIsWritable) {
  for (const char* name : {"npm", "pypi", "debian", "ubuntu", "apt", "github", "gitlab", "crates",
                           "go", "maven", "docker", "rubygems", "huggingface"}) {
    EXPECT_TRUE(is_preset(name)) << name;
  }
  for (const std::string& name : preset_names()) {
    const auto rule = HostRule::parse("@" + name);
    ASSERT_TRUE(rule) << name;
    EXPECT_EQ(rule->to_string(), "@" + name);
    EXPECT_FALSE(preset_entries(name).empty()) << name;
    std::set<std::string> seen;
    for (const auto& entry : preset_entries(name)) {
      EXPECT_EQ(entry.rule.ports(), HostRule::Ports::kWeb) << entry.rule.to_string();
      EXPECT_NE(entry.rule.kind(), HostRule::Kind::kAddress);
      EXPECT_FALSE(entry.reason.empty());
      EXPECT_TRUE(seen.insert(entry.rule.to_string()).second) << entry.rule.to_string();
    }
  }
}

TEST(Presets, AnUnknownOneIsAnErrorWhenItIsWritten) {
  EXPECT_TRUE(preset_entries("nmp").empty());
  const auto rule = HostRule::parse("@nmp");
  ASSERT_FALSE(rule);
  EXPECT_THAT(rule.error().what, HasSubstr("there is no such preset"));
  EXPECT_THAT(rule.error().hint, HasSubstr("@npm"));
}

}  // namespace
}  // namespace temenos
