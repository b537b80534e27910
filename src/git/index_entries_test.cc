#include "git/index_entries.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "git/index_text.h"

namespace temenos::git {
namespace {

std::string judge(const std::string& index, HashSize hash = HashSize::kSha1) {
  const auto bad = bad_index_entry(index, hash);
  if (!bad) return "error: " + bad.error().what;
  return bad->value_or("clean");
}

TEST(IndexEntries, NamesThatGitRefuses) {
  const std::string ignored = "\xe2\x80\x8c";
  for (const std::string& name : {std::string(".git/hooks/post-checkout"),
                                  std::string(".git"),
                                  std::string("sub/.git/config"),
                                  std::string(".GIT/config"),
                                  std::string("a/.Git"),
                                  std::string("git~1/config"),
                                  std::string("GIT~1"),
                                  std::string(".git /config"),
                                  std::string(".git./config"),
                                  std::string(".git::$INDEX_ALLOCATION/config"),
                                  std::string("a\\.git\\config"),
                                  ".g" + ignored + "it/config",
                                  ".git" + ignored + "/config",
                                  std::string("../x"),
                                  std::string("a/../x"),
                                  std::string("./x"),
                                  std::string("a/./x"),
                                  std::string("/etc/x"),
                                  std::string("a//x"),
                                  std::string("a/"),
                                  std::string("..")}) {
    for (const unsigned version : {2u, 3u, 4u}) {
      for (const HashSize hash : {HashSize::kSha1, HashSize::kSha256}) {
        const auto index = index_text(version, {{"a"}, {name}, {"zz"}}, hash);
        EXPECT_EQ(judge(index, hash), name) << version;
      }
    }
  }
  EXPECT_EQ(judge(index_text(2, {{".gitmodules", 0120000}})), ".gitmodules");
}

TEST(IndexEntries, NamesThatAnHonestOneHas) {
  const std::vector<IndexEntry> entries = {{"..."},
                                           {".gitattributes"},
                                           {".github/x"},
                                           {".gitignore"},
                                           {".gitmodules"},
                                           {"a b"},
                                           {"a.git/x"},
                                           {"a.gitb"},
                                           {"git/x"},
                                           {"git~10"},
                                           {"git~2"},
                                           {"link", 0120000},
                                           {"module", 0160000},
                                           {"x\xc3\xa9"},
                                           {"sparse/", 0040000},
                                           {"", 0100644},
                                           {std::string(4000, 'n')},
                                           {std::string(4000, 'n') + "/two"}};
  for (const unsigned version : {2u, 3u, 4u}) {
    for (const HashSize hash : {HashSize::kSha1, HashSize::kSha256}) {
      EXPECT_EQ(judge(index_text(version, entries, hash), hash), "clean") << version;
    }
  }
  EXPECT_EQ(judge(index_text(2, {})), "clean");
}

TEST(IndexEntries, WhatGitCouldReadInAnotherWayIsAnError) {
  const auto good = index_text(2, {{"aaaa"}, {"bbbb"}});
  for (std::size_t length = 0; length < good.size() - 20; ++length) {
    EXPECT_THAT(judge(good.substr(0, length)), ::testing::StartsWith("error: ")) << length;
  }
  auto changed = [&](std::size_t at, char c, std::string index) {
    index[at] = c;
    return judge(index);
  };
  EXPECT_THAT(changed(0, 'X', good), ::testing::HasSubstr("no header"));
  EXPECT_THAT(changed(7, 5, good), ::testing::HasSubstr("version"));
  EXPECT_THAT(changed(11, 9, good), ::testing::StartsWith("error: "));
  EXPECT_THAT(changed(12 + 61, 3, good), ::testing::HasSubstr("two lengths"));
  EXPECT_THAT(changed(12 + 60, 0x40, good), ::testing::HasSubstr("later version"));
  EXPECT_THAT(judge(index_text(2, {{std::string(4097, 'n')}})), ::testing::HasSubstr("longer"));
  // More entries announced than there are, up to what a number can say: no memory for them.
  EXPECT_THAT(changed(8, '\xff', good), ::testing::StartsWith("error: "));
  const auto v4 = index_text(4, {{"aaaa"}, {"aabb"}});
  EXPECT_THAT(changed(12 + 62, 5, v4), ::testing::HasSubstr("shorter than nothing"));
}

TEST(IndexEntries, TablesOfOffsets) {
  const std::vector<IndexEntry> entries{{"aaaa"}, {"bbbb"}};
  auto with = [&](unsigned version, const std::vector<std::uint32_t>& table, std::uint32_t end) {
    std::string offsets = "IEOT";
    put(offsets, static_cast<std::uint32_t>(4 + 4 * table.size()));
    put(offsets, 1);
    for (const auto number : table) put(offsets, number);
    std::string eoie = "EOIE";
    put(eoie, 24);
    put(eoie, end);
    return judge(
        index_text(version, entries, HashSize::kSha1, offsets + eoie + std::string(20, 'h')));
  };
  // Two entries of 72 bytes after the header.
  EXPECT_EQ(with(2, {12, 1, 84, 1}, 156), "clean");
  EXPECT_EQ(with(2, {12, 2}, 156), "clean");
  EXPECT_THAT(with(2, {12, 1, 85, 1}, 156), ::testing::HasSubstr("contradict"));
  EXPECT_THAT(with(2, {12, 1}, 156), ::testing::HasSubstr("leaves entries out"));
  EXPECT_THAT(with(2, {12, 0xffffffff, 84, 1}, 156), ::testing::StartsWith("error: "));
  EXPECT_THAT(with(2, {12, 2}, 157), ::testing::HasSubstr("two places"));
}

TEST(IndexEntries, ABlockOfVersionFourMustStartANewName) {
  // Read from its block, the second entry would be ".git/x" and not "a.git/x".
  auto text = index_text(4, {{"a"}, {"a.git/x"}}, HashSize::kSha1);
  const std::uint32_t second = 12 + 62 + 1 + 2;
  std::string offsets = "IEOT";
  put(offsets, 20);
  for (const std::uint32_t number : {1u, 12u, 1u, second, 1u}) put(offsets, number);
  text.insert(text.size() - 20, offsets);
  EXPECT_THAT(judge(text), ::testing::HasSubstr("contradict"));
}

}  // namespace
}  // namespace temenos::git
