#include "box/box_record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "temenos/policy_builder.h"

namespace temenos::box {
namespace {

using ::testing::HasSubstr;

BoxRecord sample() {
  const auto policy = Policy::Builder().network(NetworkMode::kNone).env("A", "b\"c").build();
  return {{"/home/me/project", "default"}, "/home/me/project", "2026-11-30T01:02:03Z", *policy};
}

TEST(BoxRecord, ReadsWhatItWrote) {
  const BoxRecord record = sample();
  const auto again = box_record_from_json(to_json(record));
  ASSERT_TRUE(again) << again.error().to_string();
  EXPECT_EQ(again->name, record.name);
  EXPECT_EQ(again->project_dir, record.project_dir);
  EXPECT_EQ(again->created, record.created);
  EXPECT_EQ(again->policy, record.policy);
}

TEST(BoxRecord, RefusesWhatIsNotOne) {
  EXPECT_FALSE(box_record_from_json(""));
  EXPECT_FALSE(box_record_from_json("{}"));
  std::string text = to_json(sample());
  EXPECT_FALSE(box_record_from_json(text.substr(0, text.size() - 1)));
  const std::string version = "\"version\":1";
  const auto at = text.find(version);
  ASSERT_NE(at, std::string::npos);
  const auto other = box_record_from_json(text.replace(at, version.size(), "\"version\":2"));
  ASSERT_FALSE(other);
  EXPECT_THAT(other.error().to_string(), HasSubstr("another version"));
}

TEST(BoxName, HasOneId) {
  const BoxName name{"/home/me/project", "default"};
  EXPECT_EQ(id_of(name), id_of(name));
  EXPECT_EQ(id_of(name).size(), 32u);
  // The data dirs of all users' boxes are found by this: it never changes.
  EXPECT_EQ(id_of({"", "default"}), "a3d973450dda5ca180053d51e340b2b6");
  EXPECT_NE(id_of(name), id_of({"/home/me/projec", "tdefault"}));
  EXPECT_NE(id_of(name), id_of({"", "default"}));
}

TEST(BoxName, IsLettersDigitsAndAFewSigns) {
  for (const char* good : {"a", "A9", "my.box_1-2", "0"}) EXPECT_TRUE(check_name(good)) << good;
  for (const char* bad : {"", ".", "..", "-a", "_a", "a/b", "a b", "a\n", "\xc3\xa4", "a\x1b[2J"}) {
    const auto checked = check_name(bad);
    ASSERT_FALSE(checked) << bad;
    EXPECT_EQ(checked.error().code, Code::kInvalidArgument);
    EXPECT_EQ(checked.error().to_string().find('\x1b'), std::string::npos);
  }
  EXPECT_TRUE(check_name(std::string(63, 'a')));
  EXPECT_FALSE(check_name(std::string(64, 'a')));
}

}  // namespace
}  // namespace temenos::box
