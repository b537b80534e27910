// What a box writes in a writable bind belongs to whose directory it is, and carries no privilege.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>

#include "leak/leak.h"

namespace temenos::leak {
namespace {

using ::testing::HasSubstr;

class Ownership : public ::testing::TestWithParam<std::string> {};

std::string attributes(const std::string& path) {
  char names[4096];
  const ssize_t size = llistxattr(path.c_str(), names, sizeof names);
  std::string out;
  for (ssize_t at = 0; at < size; at += static_cast<ssize_t>(strlen(names + at)) + 1) {
    out += std::string(names + at) + " ";
  }
  return out;
}

// Each entry below `root` is a plain one of `uid` and `gid`; gives how many there are.
int expect_plain(const std::string& root, uid_t uid, gid_t gid) {
  int count = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(root)) {
    const std::string path = entry.path().string();
    struct stat st{};
    EXPECT_EQ(lstat(path.c_str(), &st), 0);
    EXPECT_TRUE(S_ISREG(st.st_mode) || S_ISDIR(st.st_mode) || S_ISLNK(st.st_mode))
        << path << ": type " << std::oct << (st.st_mode & S_IFMT);
    EXPECT_EQ(st.st_uid, uid) << path;
    EXPECT_EQ(st.st_gid, gid) << path;
    EXPECT_EQ(st.st_mode & (S_ISUID | S_ISGID), 0u) << path << ": " << std::oct << st.st_mode;
    EXPECT_THAT(attributes(path),
                ::testing::Not(::testing::AnyOf(HasSubstr("security."), HasSubstr("trusted."))))
        << path;
    ++count;
  }
  return count;
}

// `names` of them are below `root` at all, so that the look at them means something.
void expect_made(const std::string& root, const Words& names) {
  std::string all;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(root)) {
    all += entry.path().filename().string() + "\n";
  }
  for (const auto& name : names) EXPECT_THAT(all, HasSubstr(name));
}

TEST_P(Ownership, NoPrivilegeComesOut) {
  const TestHost host;
  const std::string write = host.dir("write");
  ASSERT_EQ(chmod(write.c_str(), 0777), 0);
  const auto all =
      attempts(host.temenos(attack(GetParam(), {"--write", write}, {"three", "owner", write})));
  EXPECT_GT(expect_plain(write, geteuid(), getegid()), 150);
  expect_made(write,
              {"04755-chmod", "06777-by-fd", "02755-dir", "owner-33", "owner-0-made", "attribute"});
  for (const auto& attempt : all) {
    const bool never = attempt.what == "device" && attempt.on.find("fifo") == std::string::npos &&
                       attempt.on.find("socket") == std::string::npos;
    if (never || attempt.what == "link") EXPECT_NE(attempt.outcome, "ok") << attempt.text();
  }
}

// The tools that people use, which create, write, and then set owners and modes.
TEST_P(Ownership, NoPrivilegeComesOutWithTools) {
  const TestHost host;
  const std::string write = host.dir("write");
  ASSERT_EQ(chmod(write.c_str(), 0777), 0);
  const std::string script =
      "umask 0; cd /var/tmp && mkdir src && cp /usr/bin/env src/suid && cp /usr/bin/env src/sgid "
      "&& "
      "mkdir src/dir; chown 33:33 src/suid; chmod 4755 src/suid && chmod 2755 src/sgid && chmod "
      "2777 src/dir && "
      "(stat -c %a src/suid; ln src/suid src/hard; "
      "setcap cap_net_raw+ep src/sgid; tar cf src.tar src; "
      "cp -a src " +
      write +
      "/cp; "
      "mkdir " +
      write + "/tar && tar -xpf src.tar -C " + write +
      "/tar --same-owner; "
      "install -m 6755 -o 33 -g 33 src/suid " +
      write +
      "/install; "
      "install -m 6755 src/suid " +
      write +
      "/install2; "
      "install -d -m 2777 " +
      write +
      "/install-dir; "
      "mv src " +
      write +
      "/mv; "
      "cd " +
      write +
      " && touch mode && chmod u+s,g+s mode && chmod 6777 . ; "
      "mknod device c 1 3; mknod whiteout c 0 0; mkfifo fifo; "
      "setpriv --reuid=1000 --regid=1000 --clear-groups touch by-user; "
      "setcap cap_sys_admin+ep mode) 2>&1; true";
  const auto result = host.temenos(run(GetParam(), {"--write", write}, {"sh", "-c", script}));
  EXPECT_EQ(result.status, 0) << result.err;
  // The bit was there in the box's own root, so what is looked at below was no empty wish.
  EXPECT_THAT(result.out, HasSubstr("4755\n"));
  EXPECT_GT(expect_plain(write, geteuid(), getegid()), 12) << result.out;
  expect_made(write, {"suid", "sgid", "hard", "install", "install-dir", "mode", "by-user"});
  struct stat st{};
  ASSERT_EQ(stat(write.c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & (S_ISUID | S_ISGID), 0u) << "the bind's own directory";
}

// A directory of another owner inside a bind: nothing can be made there in that owner's name.
TEST_P(Ownership, OfAnotherOwnersDirectory) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can make one";
  const TestHost host;
  const std::string write = host.dir("write");
  ASSERT_EQ(testing::host_shell("cd " + write +
                                " && mkdir theirs group && echo x >theirs/file && "
                                "chown -R 1000:1000 theirs && chmod 0777 theirs && "
                                "chgrp 1000 group && chmod 2777 group && chown 1000:1000 . && "
                                "chmod 0777 . && chown 1000:1000 group && chown 0:0 theirs/file && "
                                "chown 0:0 theirs 2>&1"),
            "");
  const Tree before = tree_of(write + "/theirs");
  const auto result = host.temenos(
      run(GetParam(), {"--write", write},
          {"sh", "-c",
           "cd " + write +
               "; touch mine group/file; mkdir group/dir; echo y >theirs/file; "
               "touch theirs/new; chown 0:0 theirs theirs/file; chmod 4777 theirs/file; "
               "mv theirs/file .; rm -f theirs/file; true"}));
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(difference(before, tree_of(write + "/theirs")), "") << result.err;
  EXPECT_EQ(testing::host_shell("stat -c %u:%g:%a " + write + "/mine " + write + "/group/file"),
            "1000:1000:644\n1000:1000:644\n");
}

INSTANTIATE_TEST_SUITE_P(On, Ownership, ::testing::ValuesIn(boxes()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace temenos::leak
