#include "box/autoexec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <set>

#include "box/scratch_tree.h"

namespace temenos::box {
namespace {

namespace fs = std::filesystem;
using ::testing::Contains;
using ::testing::Key;
using ::testing::Not;

class AutoexecTest : public ::testing::Test {
 protected:
  AutoexecScan scan() const {
    auto scan = scan_autoexec(tree_.fd());
    EXPECT_TRUE(scan);
    return std::move(*scan);
  }
  ScratchTree tree_;
};

TEST(AutoexecRules, EachHasANameAndAReasonAndStandsOnce) {
  std::set<std::pair<bool, std::string>> names;
  for (const auto& rule : autoexec_rules()) {
    EXPECT_FALSE(rule.name.empty() || rule.reason.empty());
    EXPECT_EQ(rule.name.find('/'), std::string::npos);
    EXPECT_TRUE(names.emplace(rule.in_git_directory, rule.name).second) << rule.name;
  }
  for (const char* name : {"config", "hooks", "info"}) {
    EXPECT_THAT(names, Contains(std::pair(true, std::string(name))));
  }
  for (const char* name : {".vscode", ".idea", ".envrc", ".claude", ".mcp.json", "temenos.toml"}) {
    EXPECT_THAT(names, Contains(std::pair(false, std::string(name))));
  }
}

TEST_F(AutoexecTest, FindsByNameInEveryDirectory) {
  for (const char* name :
       {".envrc", "a/b/.envrc", "a/.vscode/tasks.json", "a/config", "b/hooks/x"}) {
    tree_.file(name);
  }
  const auto found = scan().found;
  EXPECT_THAT(found, Contains(Key(".envrc")));
  EXPECT_THAT(found, Contains(Key("a/b/.envrc")));
  EXPECT_THAT(found, Contains(Key("a/.vscode")));
  // What counts in a git directory only.
  EXPECT_THAT(found, Not(Contains(Key("a/config"))));
  EXPECT_THAT(found, Not(Contains(Key("b/hooks"))));
}

TEST_F(AutoexecTest, AFloodOfNamesHidesNothingOfTheTreesOwn) {
  tree_.shell(
      "git init -q . && seq -f n%g 200100 | xargs touch && seq -f .git/n%g 200100 | xargs touch");
  tree_.file(".envrc");
  const auto scan = this->scan();
  EXPECT_FALSE(scan.complete);
  for (const char* path : {".envrc", ".git/config", ".git/hooks", ".git/info"}) {
    EXPECT_THAT(scan.found, Contains(Key(path)));
  }
}

TEST_F(AutoexecTest, GitDirectoriesWhateverTheirName) {
  for (const char* dir : {"repo/.git", "bare"}) {
    for (const char* name : {"/HEAD", "/config", "/hooks/pre-commit", "/objects/x", "/refs/x"}) {
      tree_.file(dir + std::string(name));
    }
  }
  const auto found = scan().found;
  for (const char* name : {"repo/.git/config", "repo/.git/hooks", "bare/config", "bare/hooks"}) {
    EXPECT_THAT(found, Contains(Key(name)));
  }
}

TEST_F(AutoexecTest, SymlinksAreSeenAndNotFollowed) {
  fs::create_directories(tree_.above() + "/outside/sub");
  tree_.link("link", tree_.above() + "/outside");
  tree_.link(".envrc", "/etc/passwd");
  tree_.link("loop", ".");
  const auto found = scan().found;
  ASSERT_THAT(found, Contains(Key(".envrc")));
  EXPECT_TRUE(found.at(".envrc").symlink);
  EXPECT_EQ(found.at(".envrc").link_target, "/etc/passwd");
  EXPECT_FALSE(found.at(".envrc").is_protected());
  EXPECT_EQ(found.size(), 1u);
}

TEST_F(AutoexecTest, WhatIsNewIsToldOnceAtItsTop) {
  tree_.file(".envrc");
  tree_.link(".mcp.json", "a");
  const auto before = scan();
  EXPECT_TRUE(new_autoexec(before, before).empty());
  tree_.file("x/.vscode/tasks.json");
  tree_.file("x/.vscode/.envrc");
  fs::remove(tree_.path() + "/.mcp.json");
  tree_.link(".mcp.json", "b");
  const auto made = new_autoexec(before, scan());
  EXPECT_EQ(made.size(), 2u);
  EXPECT_THAT(made, Contains(Key("x/.vscode")));
  EXPECT_THAT(made, Contains(Key(".mcp.json")));
}

TEST_F(AutoexecTest, ATreeBeyondTheBoundIsSaidToBe) {
  std::string deep;
  for (int i = 0; i < 40; ++i) deep += "d/";
  tree_.file(deep + "file");
  tree_.file(".envrc");
  const auto result = scan();
  EXPECT_FALSE(result.complete);
  EXPECT_THAT(result.found, Contains(Key(".envrc")));
}

}  // namespace
}  // namespace temenos::box
