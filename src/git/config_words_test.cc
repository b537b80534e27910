#include "git/config_words.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace temenos::git {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Not;

std::vector<std::string> words(const std::string& text) {
  std::vector<std::string> out;
  for (const auto& word : config_words(text).words) out.push_back(word.key + " " + word.word);
  return out;
}

TEST(ConfigWords, EachKindOfValueThatNamesAFile) {
  const struct {
    const char* text;
    const char* word;
  } rows[] = {
      {"[include]\n path = extra.cfg\n", "include.path extra.cfg"},
      {"[includeIf \"gitdir:~/w/\"]\n\tpath = ../tools/extra.cfg\n",
       "includeif.gitdir:~/w/.path ../tools/extra.cfg"},
      {"[core]\nhooksPath = hooks\n", "core.hookspath hooks"},
      {"[core]\n\tattributesFile = attrs\n", "core.attributesfile attrs"},
      {"[core]fsmonitor = ./x", "core.fsmonitor ./x"},
      {"[CORE]\n FsMonitor = sh fsm\n", "core.fsmonitor fsm"},
      {"[core]\n pager = LESS=-R tools/pager -x | cat\n", "core.pager tools/pager"},
      {"[core]\n editor = \"./tools/my editor\"\n", "core.editor ./tools/my editor"},
      {"[core]\n sshCommand = ssh -F ./conf/ssh\n", "core.sshcommand ./conf/ssh"},
      {"[gpg]\n program = ./tools/gpg\n", "gpg.program ./tools/gpg"},
      {"[credential \"https://x\"]\n helper = !./tools/c get\n",
       "credential.https://x.helper ./tools/c"},
      {"[alias]\n x = !./y && true\n", "alias.x ./y"},
      {"[alias]\n x = !sh y\n", "alias.x y"},
      {"[alias]\n x = -c core.pager=./p log\n", "alias.x ./p"},
      {"[merge \"m\"]\n driver = ./tools/merge %O %A\n", "merge.m.driver ./tools/merge"},
      {"[filter \"F\"]\n clean = ./tools/clean\n", "filter.F.clean ./tools/clean"},
      {"[diff \"y\"]\n textconv = sh -c './tools/textconv'\n", "diff.y.textconv ./tools/textconv"},
      {"[diff \"y\"]\n command = \"$(git rev-parse --show-toplevel)/tools/d\"\n",
       "diff.y.command /tools/d"},
      {"[diff \"y\"]\n command = $HOME/p/tools/d\n", "diff.y.command /p/tools/d"},
      {"[diff \"y\"]\n command = ${HOME}/p/tools/d\n", "diff.y.command /p/tools/d"},
      {"[submodule \"s\"]\n update = !./u\n", "submodule.s.update ./u"},
      {"[remote \"r\"]\n uploadpack = ./up\n", "remote.r.uploadpack ./up"},
      {"[remote \"r\"]\n url = ext::./x %S\n", "remote.r.url ./x"},
      {"[brand.NEW]\n key-1 = x=./y\n", "brand.new.key-1 ./y"},
      {"[a]\n b = ./one\\\n/two\n", "a.b ./one/two"},
      {"[a]\r\n b = ./one\r\n", "a.b ./one"},
      {"[a]\n b = ./one # ./two\n", "a.b ./one"},
      {"\xef\xbb\xbf[a] b = ./one", "a.b ./one"},
      {"[extensions]\n objectFormat = sha256\n", "extensions.objectformat sha256"},
      {"[core]\n worktree = ../../../s\n", "core.worktree ../../../s"},
  };
  for (const auto& row : rows) EXPECT_THAT(words(row.text), Contains(row.word)) << row.text;
}

TEST(ConfigWords, WhatOnlyNamesDataIsLeftOut) {
  for (const char* text : {
           "[branch \"main\"]\n remote = origin\n merge = refs/heads/main\n",
           "[remote \"o\"]\n url = ../upstream.git\n fetch = +refs/heads/*:refs/remotes/o/*\n",
           "[submodule \"lib/a\"]\n active = true\n url = ../a.git\n",
           "[user]\n name = a/b\n",
           "[init]\n defaultBranch = main\n",
           "[core]\n pager = less\n editor = code --wait\n bare = false\n",
           "[alias]\n st = status -sb\n lg = log --graph main\n",
           "# [a] b = ./c\n; ./d\n",
           "",
       }) {
    EXPECT_THAT(words(text), IsEmpty()) << text;
  }
}

TEST(ConfigWords, QuotesAndEscapes) {
  EXPECT_THAT(words("[a]\n b = \"./x # y\" \n"),
              ElementsAre("a.b ./x # y", "a.b ./x", "a.b #", "a.b y"));
  EXPECT_THAT(words("[a]\n b = ./x\\\\y\n"), ElementsAre("a.b ./x\\y"));
}

TEST(ConfigWords, NoNulInAKeyOrWord) {
  using std::string_view_literals::operator""sv;
  const std::string text("[a \"b\0c\"]\n d = ./e\0./f\n"sv);
  for (const auto& word : config_words(text).words) {
    EXPECT_EQ(word.key.find('\0'), std::string::npos);
    EXPECT_EQ(word.word.find('\0'), std::string::npos);
  }
  EXPECT_THAT(words(text), Contains("a.b?c.d ./f"));
}

TEST(ConfigWords, BeyondABoundItSaysSo) {
  std::string many = "[a]\n";
  for (std::size_t i = 0; i <= kMaxWords; ++i) many += "b = ./" + std::to_string(i) + "\n";
  const auto words = config_words(many);
  EXPECT_FALSE(words.complete);
  EXPECT_LE(words.words.size(), kMaxWords);
  std::size_t bytes = 0;
  for (const auto& word : words.words) bytes += word.key.size() + word.word.size() + 2;
  EXPECT_LE(bytes, kMaxWordBytes);
  EXPECT_FALSE(config_words("[a]\nb = ./c\n" + std::string(kMaxConfigBytes, '#')).complete);
  EXPECT_TRUE(config_words("[a]\nb = " + std::string(10'000, 'x')).complete);
}

}  // namespace
}  // namespace temenos::git
