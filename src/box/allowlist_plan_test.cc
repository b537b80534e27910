#include "box/allowlist_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace temenos::box {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using Words = std::vector<std::string>;

Rules rules(const Words& entries) {
  if (entries.empty()) return {};
  auto out = parse_entries(entries);
  EXPECT_TRUE(out);
  return out ? *out : Rules();
}

TEST(AllowlistPlan, EntriesAreParsedAllOrNone) {
  const auto good = parse_entries({"GitHub.com.", "93.184.1.2:5432", "@pypi"});
  ASSERT_TRUE(good) << good.error().to_string();
  EXPECT_EQ(lines_of(*good), "github.com\n93.184.1.2:5432\n@pypi\n");
  for (const Words& bad : {Words{}, Words{"a.com", "http://b.com"}, Words{"127.0.0.1"},
                           Words{"@nothing"}, Words{""}}) {
    const auto refused = parse_entries(bad);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, Code::kInvalidArgument);
    EXPECT_NE(refused.error().hint, "");
  }
}

TEST(AllowlistPlan, WhatIsThereIsNotAddedTwice) {
  EXPECT_EQ(lines_of(with_entries(rules({"b.com"}), rules({"B.com", "a.com", "a.com"}))),
            "b.com\na.com\n");
}

TEST(AllowlistPlan, AllThatIsDeniedMustBeThere) {
  const Rules list = rules({"a.com", "b.com:22", "c.com"});
  EXPECT_EQ(lines_of(*without_entries(list, rules({"C.com", "a.com"}))), "b.com:22\n");
  EXPECT_EQ(lines_of(*without_entries(list, list)), "");
  const auto missing = without_entries(list, rules({"a.com", "d.com"}));
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, Code::kNotFound);
  EXPECT_EQ(missing.error().to_string(),
            "d.com is not in the allowlist, which has a.com, b.com:22, c.com: "
            "no entry allows any of it");
  EXPECT_EQ(without_entries({}, list).error().to_string(),
            "a.com is not in the allowlist, which is empty: nothing is to be denied");
}

TEST(AllowlistPlan, WhoDeniesWhatIsNoEntryHearsWhichOneAllowsIt) {
  const struct {
    Words list;
    const char* denied;
    const char* hint;
  } rows[] = {
      {{"@github"}, "github.com", "is @github: deny that"},
      {{"*.a.com", "b.com"}, "x.a.com", "is *.a.com: deny that"},
      {{"a.com:22", "a.com:*"}, "a.com", "is a.com:22, a.com:*: deny that"},
      {{"x.a.com", "b.com"}, "*.a.com", "is x.a.com: deny that"},
      {{"93.184.0.0/16:5432"}, "93.184.1.1:5432", "is 93.184.0.0/16:5432: deny that"},
      {{"private:a.com"}, "a.com", "is private:a.com: deny that"},
      {{"127.0.0.1:80"}, "127.0.0.1:81", "no entry allows any of it"},
      {{"93.184.0.0/16:5432"}, "93.185.1.1:5432", "no entry allows any of it"},
  };
  for (const auto& row : rows) {
    const auto missing = without_entries(rules(row.list), rules({row.denied}));
    ASSERT_FALSE(missing) << row.denied;
    EXPECT_THAT(missing.error().hint, HasSubstr(row.hint)) << row.denied;
  }
  // A list of any length is one line.
  Words many;
  for (int i = 0; i < 4000; ++i) many.push_back("h" + std::to_string(i) + ".com");
  EXPECT_THAT(without_entries(rules(many), rules({"d.com"})).error().to_string(),
              HasSubstr("h9.com and 3990 others: no entry"));
}

TEST(AllowlistPlan, WhatIsStillAllowedIsSaid) {
  EXPECT_THAT(still_allowed(rules({"*.a.com", "b.com"}), rules({"x.a.com", "c.com"})),
              ElementsAre("x.a.com is still allowed, by *.a.com"));
  EXPECT_THAT(still_allowed(rules({"@github"}), rules({"github.com"})),
              ElementsAre("github.com is still allowed, by @github"));
  EXPECT_THAT(still_allowed(rules({"a.com"}), rules({"a.com:*"})),
              ElementsAre("some of a.com:* is still allowed, by a.com"));
  EXPECT_THAT(still_allowed(rules({"b.com"}), rules({"a.com"})), IsEmpty());
}

}  // namespace
}  // namespace temenos::box
