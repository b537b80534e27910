// git on the host, in a project that a box could write in.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <sstream>

#include "leak/leak.h"

namespace temenos::leak {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class Git : public ::testing::Test {
 protected:
  Git() : project_(host_.dir("project")), canary_(host_.path() + "/canary") {}

  void SetUp() override {
    if (testing::host_shell("command -v git").empty()) {
      if (getenv("TEMENOS_MUST_WORK") != nullptr) FAIL() << "git is not installed";
      GTEST_SKIP() << "git is not installed";
    }
  }

  // Runs a script in the project on the host, as a person with a fresh account would; what it
  // prints.
  std::string on_host(const std::string& script) const {
    return testing::host_shell(
        "cd " + project_ + " && env -i HOME=" + host_.path() +
        "/home PATH=/usr/bin:/bin GIT_CONFIG_NOSYSTEM=1 GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b.c "
        "GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b.c sh -c '" +
        script + "' 2>&1");
  }

  CliResult in_box(const std::string& script) const {
    return host_.temenos(run("systrap", {}, {"sh", "-c", script}), "", project_);
  }

  // A configuration that leaves the canary whatever git does.
  std::string evil_config() const {
    const std::string leave = "touch " + canary_ + " #";
    return "[core]\n\tfsmonitor = \"" + leave + "\"\n\tpager = \"" + leave +
           "\"\n\thooksPath = " + project_ + "/evil-hooks\n[diff]\n\texternal = \"" + leave +
           "\"\n[diff \"evil\"]\n\ttextconv = \"" + leave + "\"\n\tcommand = \"" + leave +
           "\"\n[filter \"evil\"]\n\tclean = \"" + leave + "\"\n\tsmudge = \"" + leave + "\"\n";
  }

  bool canary_sang() const { return access(canary_.c_str(), F_OK) == 0; }

  // What people and their prompts do.
  void use_git_in(const Words& directories) const {
    for (const auto& directory : directories) {
      (void)on_host("cd " + directory +
                    " && touch -c file && git status; git diff; git log -p; git diff --cached; "
                    "git stash list; git branch; git show HEAD");
    }
  }

  const TestHost host_;
  const std::string project_;
  const std::string canary_;
};

TEST_F(Git, TheCanarySingsWhereNothingIsProtected) {
  ASSERT_THAT(on_host("git init -q . && echo x >file && git add file && git commit -qm one"), "");
  host_.file("evil", evil_config());
  ASSERT_EQ(on_host("cat ../evil >>.git/config"), "");
  use_git_in({"."});
  EXPECT_TRUE(canary_sang()) << "so the other tests would see nothing";
}

TEST_F(Git, NothingThatExistedBeforeRuns) {
  const std::string made = on_host(
      "set -e; git init -q . ; echo x >file; git add file; git commit -qm one; "
      "mkdir -p lib/nested; git init -q lib/nested; cp file lib/nested/; "
      "(cd lib/nested; git add file; git commit -qm one); "
      "git clone -q --bare . bare.git 2>&1; "
      "git config extensions.worktreeConfig true; git worktree add -q wt 2>&1; "
      "(cd wt; git config --worktree core.ignoreCase false); "
      "git -c protocol.file.allow=always submodule --quiet add ./bare.git sub; "
      "git -c protocol.file.allow=always submodule --quiet add ./bare.git target; "
      "git -c protocol.file.allow=always submodule --quiet add ./bare.git objects; "
      "git commit -qm two; printf \"* text\\n\" >.git/info/attributes; git status --short");
  ASSERT_EQ(made, "?? bare.git/\n?? lib/\n?? wt/\n");
  const std::string evil = host_.file("project/evil-config", evil_config());
  host_.file("evil-hook", "#!/bin/sh\ntouch " + canary_ + "\n", 0755);
  const std::string script =
      "exec 2>/dev/null; umask 0; "
      // Not mv, which copies and then removes what it cannot move.
      "away() { perl -e 'rename $ARGV[0], $ARGV[1]' $1 $2; }; "
      "for c in $(find . -name config -o -name config.worktree); do "
      "  cat evil-config >>$c; cp evil-config $c.new; mv -f $c.new $c; rm -f $c; "
      "  ln -sf $PWD/evil-config $c; cat $c.new >$c; rm -f $c.new; done; "
      "for h in $(find . -path '*/hooks/*.sample'); do "
      "  mv $h ${h%.sample}; printf '#!/bin/sh\\ntouch " +
      canary_ +
      "\\n' >${h%.sample}; done; "
      "for i in $(find . -path '*/info/*'); do echo '* filter=evil diff=evil' >>$i; done; "
      "cp -r bare.git evil.git; cp evil-config evil.git/config; "
      "for g in sub wt target objects; do "
      "  echo gitdir: $PWD/evil.git >$g/.git; rm -f $g/.git; away $g $g.away; mkdir -p $g/.git; "
      "done; "
      "for c in $(find . -name commondir); do echo $PWD/evil.git >$c; done; "
      "for g in .git lib/nested/.git bare.git .git/modules/sub .git/modules/target "
      "  .git/modules/objects .git/worktrees/wt; do away $g/config x; "
      "  rm -rf $g/config $g/hooks; away $g away; rmdir $g; done; "
      // What people may write in a project: these name filters that no configuration defines.
      "for d in . lib/nested sub target objects wt; do "
      "  echo '* filter=evil diff=evil' >$d/.gitattributes; done; true";
  const auto result = in_box(script);
  EXPECT_EQ(result.status, 0) << result.err;
  use_git_in({".", "lib/nested", "bare.git", "wt", "sub", "target", "objects"});
  EXPECT_FALSE(canary_sang()) << result.err;
  // And the look was at living repositories.
  for (const char* directory : {".", "lib/nested", "wt", "sub", "target", "objects"}) {
    EXPECT_THAT(on_host(std::string("cd ") + directory + " && git log --oneline"), HasSubstr("one"))
        << directory;
  }
}

TEST_F(Git, WhatIsMadeAnewIsReported) {
  ASSERT_EQ(on_host("git init -q --template= . && git init -q lib && rm -rf lib/.git/hooks"), "");
  host_.file("project/evil-config", evil_config());
  const auto result = in_box(
      "set -e; mkdir .git/hooks lib/.git/hooks; echo x >.git/hooks/post-checkout; "
      "echo ../evil >.git/commondir; echo x >.git/config.worktree; "
      "mkdir -p new/.git/objects new/.git/refs; echo 'ref: refs/heads/x' >new/.git/HEAD; "
      "cp evil-config new/.git/config; "
      "mkdir -p bare/objects bare/refs bare/hooks; echo 'ref: refs/heads/x' >bare/HEAD; "
      "cp evil-config bare/config; mkdir file; echo gitdir: ../bare >file/.git; "
      "mkdir link; ln -s ../bare link/.git; echo x >.envrc; mkdir .vscode; echo x >.mcp.json");
  EXPECT_EQ(result.status, 0) << result.err;
  for (const char* path :
       {".git/hooks", "lib/.git/hooks", ".git/commondir", ".git/config.worktree", "new/.git/config",
        "bare/config", "bare/hooks", "file/.git", "link/.git", ".envrc", ".vscode", ".mcp.json"}) {
    EXPECT_THAT(result.err, HasSubstr(project_ + "/" + path));
  }
  EXPECT_FALSE(canary_sang());
}

// The index can name a directory as a submodule, and `git status` then runs git in it.
TEST_F(Git, ANewRepositoryIsReportedWhereverItLies) {
  ASSERT_EQ(on_host("git init -q . && echo x >file && git add file && git commit -qm one"), "");
  host_.file("project/evil-config", evil_config());
  const auto result = in_box(
      "set -e; for d in node_modules/evil target .venv/evil __pycache__/evil a/objects; do "
      "mkdir -p $d; git init -q $d; cat evil-config >>$d/.git/config; "
      "git update-index --add --cacheinfo 160000,$(git rev-parse HEAD),$d; done");
  EXPECT_EQ(result.status, 0) << result.err;
  for (const char* path :
       {"node_modules/evil", "target", ".venv/evil", "__pycache__/evil", "a/objects"}) {
    EXPECT_THAT(result.err, HasSubstr(project_ + "/" + path + "/.git/"));
  }
}

TEST_F(Git, WhatCannotBeLookedAtIsReported) {
  if (geteuid() == 0) GTEST_SKIP() << "root can read every directory";
  ASSERT_EQ(on_host("git init -q ."), "");
  const auto result =
      in_box("mkdir -p closed/evil && echo x >closed/evil/.envrc && chmod 0111 closed");
  ASSERT_EQ(chmod((project_ + "/closed").c_str(), 0755), 0);
  ASSERT_EQ(access((project_ + "/closed/evil/.envrc").c_str(), F_OK), 0);
  EXPECT_THAT(result.err, HasSubstr(project_)) << "nothing was said";
}

TEST_F(Git, TooMuchToLookAtIsReported) {
  ASSERT_EQ(on_host("git init -q ."), "");
  const auto result =
      in_box("d=.; for i in $(seq 40); do d=$d/deeper; done; mkdir -p $d && echo x >$d/.envrc");
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr(project_)) << "nothing was said";
}

// What goes on after the command has ended may write until the box ends.
TEST_F(Git, WhatIsMadeAfterTheCommandIsReported) {
  ASSERT_EQ(on_host("git init -q ."), "");
  const auto result = in_box(
      "(exec >/dev/null 2>&1 </dev/null; leader=$$; setsid sh -c "
      "'while kill -0 '$leader'; do :; done; i=0; while [ $i -lt 40 ]; do "
      "mkdir late$i && echo x >late$i/.envrc; i=$((i+1)); done' &) ; true");
  EXPECT_EQ(result.status, 0) << result.err;
  for (const auto& entry : std::filesystem::directory_iterator(project_)) {
    const std::string path = entry.path().string() + "/.envrc";
    if (access(path.c_str(), F_OK) == 0) EXPECT_THAT(result.err, HasSubstr(path + ","));
  }
}

TEST_F(Git, NamesCannotForgeWhatTheTerminalShows) {
  ASSERT_EQ(on_host("git init -q ."), "");
  const auto result = in_box(
      "for n in \"$(printf 'a\\033]0;evil\\007b')\" \"$(printf 'a\\ntemenos: all is well\\nb')\" "
      "\"$(printf 'a\\r\\033[2Kb')\" \"$(printf 'bad\\377\\376utf')\" "
      "\"$(printf 'bidi\\342\\200\\256gnp')\" \"$(printf 'c1\\302\\2331A')\"; do "
      "mkdir \"$n\" && echo x >\"$n/.envrc\" || exit 1; done");
  EXPECT_EQ(result.status, 0) << result.err;
  int reports = 0;
  std::istringstream lines(result.err);
  for (std::string line; std::getline(lines, line);) {
    EXPECT_THAT(line, ::testing::StartsWith("temenos: "));
    EXPECT_THAT(line, Not(::testing::StartsWith("temenos: all is well")));
    reports += line.find(".envrc") != std::string::npos ? 1 : 0;
    for (const char byte : line) {
      EXPECT_TRUE(byte >= ' ' && byte < 0x7f)
          << "byte " << static_cast<int>(byte) << " in " << line;
    }
  }
  EXPECT_EQ(reports, 6) << result.err;
}

}  // namespace
}  // namespace temenos::leak
