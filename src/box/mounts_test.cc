#include "box/mounts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "box/scratch_tree.h"
#include "temenos/allow/autoexec.h"
#include "temenos/allow/home_bind.h"
#include "temenos/policy_builder.h"

namespace temenos::box {
namespace {

namespace fs = std::filesystem;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class MountsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    dirs_.data = tree_.home() + "/.local/share/temenos";
    dirs_.config = tree_.home() + "/.config/temenos";
    dirs_.cache = tree_.home() + "/.cache/temenos";
    dirs_.libexec = TEMENOS_LIBEXEC;
    dirs_.program = tree_.above() + "/bin/temenos";
    for (const auto& path : {dirs_.data, dirs_.config, dirs_.cache}) fs::create_directories(path);
  }
  Result<Mounts> resolve(const Policy::Builder& builder, const std::string& project = "") const {
    const auto policy = builder.build();
    EXPECT_TRUE(policy) << policy.error().to_string();
    return resolve_mounts(*policy, project, dirs_);
  }
  static Policy::Builder policy() {
    Policy::Builder builder;
    builder.network(NetworkMode::kNone);
    return builder;
  }
  static const keeper::BindSpec& bind_at(const Mounts& mounts, const std::string& target) {
    for (const auto& bind : mounts.binds) {
      if (bind.target == target) return bind;
    }
    static const keeper::BindSpec none;
    ADD_FAILURE() << "no bind at " << target;
    return none;
  }
  ScratchTree tree_;
  HostDirs dirs_;
};

TEST_F(MountsTest, EverySourceIsHeldOpen) {
  tree_.file("in/file");
  tree_.file("out/file");
  tree_.file("secret");
  const auto mounts =
      resolve(policy()
                  .read(tree_.path() + "/in")
                  .write(tree_.path() + "/out")
                  .volume({"/srv/v", Access::kWrite, DiskVolume{tree_.path() + "/in", false, ""}})
                  .volume({"/mem", Access::kWrite, MemoryVolume{8}})
                  .secret_file(tree_.path() + "/secret", "/srv/.secret"));
  ASSERT_TRUE(mounts) << mounts.error().to_string();
  ASSERT_EQ(mounts->binds.size(), 4u);
  ASSERT_EQ(mounts->sources.size(), 4u);
  for (std::size_t i = 0; i < 4; ++i) {
    struct stat by_fd{}, by_path{};
    ASSERT_EQ(fstat(mounts->sources[i].get(), &by_fd), 0);
    ASSERT_EQ(stat(mounts->binds[i].source.c_str(), &by_path), 0);
    EXPECT_EQ(by_fd.st_ino, by_path.st_ino);
  }
  EXPECT_FALSE(bind_at(*mounts, tree_.path() + "/in").writable);
  EXPECT_TRUE(bind_at(*mounts, tree_.path() + "/out").writable);
  EXPECT_TRUE(bind_at(*mounts, "/srv/v").writable);
  EXPECT_FALSE(bind_at(*mounts, "/srv/.secret").writable);
  ASSERT_EQ(mounts->memory.size(), 1u);
  EXPECT_EQ(mounts->memory[0].target, "/mem");
  EXPECT_EQ(mounts->memory[0].size_mb, 8u);
  EXPECT_EQ(mounts->watched.size(), 2u);
}

TEST_F(MountsTest, TheProjectsOwnFilesOfHostProgramsAreProtected) {
  tree_.shell(
      "git init -q . && mkdir -p .vscode sub && touch .vscode/tasks.json .envrc sub/.envrc");
  const auto mounts = resolve(policy(), tree_.path());
  ASSERT_TRUE(mounts) << mounts.error().to_string();
  const auto& bind = bind_at(*mounts, tree_.path());
  EXPECT_TRUE(bind.writable);
  for (const char* path : {".git/config", ".git/hooks", ".vscode", ".envrc", "sub/.envrc"}) {
    EXPECT_THAT(bind.protected_paths, Contains(path));
  }
  const auto read_only = resolve(policy().project(ProjectAccess::kRead), tree_.path());
  ASSERT_TRUE(read_only);
  EXPECT_FALSE(bind_at(*read_only, tree_.path()).writable);
  const auto open = resolve(policy().allow_autoexec(allow::Autoexec{}), tree_.path());
  ASSERT_TRUE(open);
  EXPECT_THAT(bind_at(*open, tree_.path()).protected_paths, Not(Contains(".envrc")));
  EXPECT_THAT(open->warnings, Contains(HasSubstr("--allow-danger autoexec")));
}

TEST_F(MountsTest, WhatABoxPlantsPushesNothingOfTheTreesOwnOut) {
  tree_.shell(
      "git init -q . && for i in $(seq 2300); do mkdir \"!$i\" && echo gitdir: x >\"!$i/.git\"; "
      "done");
  tree_.file(".envrc");
  const auto mounts = resolve(policy(), tree_.path());
  ASSERT_TRUE(mounts) << mounts.error().to_string();
  const auto& paths = bind_at(*mounts, tree_.path()).protected_paths;
  for (const char* path : {".envrc", ".git/config", ".git/hooks", ".git/info"}) {
    EXPECT_THAT(paths, Contains(path));
  }
  EXPECT_FALSE(mounts->warnings.empty());
}

TEST_F(MountsTest, LongNamesDoNotFillTheLaunchMessage) {
  tree_.shell(
      "a=$(printf 'a%.0s' $(seq 250)); d=$a/$a/$a/$a/$a; mkdir -p $d && cd $d && "
      "for i in $(seq 1000); do mkdir $i && : >$i/.envrc; done");
  tree_.file(".git/config");
  const auto mounts = resolve(policy(), tree_.path());
  ASSERT_TRUE(mounts) << mounts.error().to_string();
  const auto& paths = bind_at(*mounts, tree_.path()).protected_paths;
  EXPECT_THAT(paths, Contains(".git/config"));
  std::size_t bytes = 0;
  for (const auto& path : paths) bytes += path.size();
  EXPECT_LE(bytes, 512u << 10);
}

TEST_F(MountsTest, HomesNeedTheirNameAndWithItTemenosOwnIsHidden) {
  for (const auto& path : {tree_.home(), tree_.above()}) {
    const auto refused = resolve(policy().read(path));
    ASSERT_FALSE(refused) << path;
    EXPECT_EQ(refused.error().code, Code::kPolicyViolation);
    EXPECT_THAT(refused.error().hint, HasSubstr("home-bind"));
  }
  const auto allowed = resolve(policy().read(tree_.home()).allow_home_bind(allow::HomeBind{}));
  ASSERT_TRUE(allowed) << allowed.error().to_string();
  const auto& hidden = bind_at(*allowed, tree_.home()).hidden;
  for (const char* path : {".local/share/temenos", ".config/temenos", ".cache/temenos"}) {
    EXPECT_THAT(hidden, Contains(path));
  }
}

TEST_F(MountsTest, TemenosOwnDirectoriesAreNoSource) {
  for (const auto& path : {dirs_.data, dirs_.config, dirs_.cache}) {
    fs::create_directories(path + "/inside");
    for (const auto& source : {path, path + "/inside"}) {
      const auto refused = resolve(policy().read(source));
      ASSERT_FALSE(refused) << source;
      EXPECT_EQ(refused.error().code, Code::kPolicyViolation);
      EXPECT_THAT(refused.error().what, HasSubstr("belongs to temenos itself"));
    }
  }
  // Nor through a link of the user's own.
  tree_.outside_link("link", dirs_.data);
  EXPECT_FALSE(resolve(policy().read(tree_.above() + "/link")));
}

TEST_F(MountsTest, AMissingSourceIsNamed) {
  const auto mounts = resolve(policy().read(tree_.path() + "/none"));
  ASSERT_FALSE(mounts);
  EXPECT_EQ(mounts.error().code, Code::kNotFound);
  EXPECT_THAT(mounts.error().to_string(), HasSubstr(tree_.path() + "/none"));
  EXPECT_FALSE(mounts.error().hint.empty());
}

TEST_F(MountsTest, AnAllowedRootHoldsAgainstSymlinks) {
  fs::create_directories(tree_.path() + "/top/good");
  fs::create_directories(tree_.above() + "/outside");
  tree_.link("top/bad", tree_.above() + "/outside");
  auto volume = [&](const std::string& path, bool create) {
    return policy().volume({"/v", Access::kRead, DiskVolume{path, create, tree_.path() + "/top"}});
  };
  EXPECT_TRUE(resolve(volume(tree_.path() + "/top/good", false)));
  EXPECT_TRUE(resolve(volume(tree_.path() + "/top/made/deep", true)));
  EXPECT_TRUE(fs::is_directory(tree_.path() + "/top/made/deep"));
  for (const char* name : {"top/bad", "top/bad/x", "top/none"}) {
    const auto refused = resolve(volume(tree_.path() + "/" + name, false));
    ASSERT_FALSE(refused) << name;
    EXPECT_FALSE(refused.error().hint.empty());
  }
  EXPECT_FALSE(resolve(volume(tree_.path() + "/top/bad/new", true)));
  EXPECT_TRUE(fs::is_empty(tree_.above() + "/outside"));
}

TEST_F(MountsTest, TheKernelsFilesAreNoSource) {
  tree_.outside_link("self", "/proc/self");
  const auto refused = resolve(policy().read(tree_.above() + "/self"));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kPolicyViolation);
}

TEST_F(MountsTest, NothingAskedForIsNothing) {
  const auto mounts = resolve(policy());
  ASSERT_TRUE(mounts);
  EXPECT_THAT(mounts->binds, IsEmpty());
  EXPECT_THAT(mounts->watched, IsEmpty());
}

}  // namespace
}  // namespace temenos::box
