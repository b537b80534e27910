// What the leak tests share: what a guest reported, the state of a host tree before and after, and
// boxes that go on while the test looks at them.
#pragma once

#include <sys/types.h>

#include <map>
#include <string>
#include <vector>

#include "testing/cli.h"

namespace temenos::leak {

using testing::CliResult;
using testing::TestHost;

using Words = std::vector<std::string>;

// A line of a guest (guests/report.h).
struct Attempt {
  std::string attacker;  // root, user, userns
  std::string what, on, outcome;
  std::string text() const { return attacker + ": " + what + " " + on + ": " + outcome; }
};
// Also fails the test when a line is none, or the guest said nothing.
std::vector<Attempt> attempts(const CliResult& result);

inline const Words kAttackers{"root", "user", "userns"};

// Kinds of boxes, as `platform` below: each platform with a box on disk, and one of them with each
// other scratch ("systrap_memory", "systrap_runsc").
std::vector<std::string> boxes();

// `run --no-net --platform P --volume ATTACK:/leak/attack:ro FLAGS… -- /leak/attack WORDS…`
Words attack(const std::string& platform, const Words& flags, const Words& words);
Words run(const std::string& platform, const Words& flags, const Words& command);

// Path below the root ("." for itself) -> type, mode, owner, mtime, link target or size and content
// hash, extended attributes.
using Tree = std::map<std::string, std::string>;
std::string state_of(const std::string& path);  // of it alone
Tree tree_of(const std::string& root);
// Empty when equal; else the first differences, a line each.
std::string difference(const Tree& before, const Tree& after);

// temenos with a command that says "ready" and then waits for the end of its stdin. Ends with this
// object.
class RunningBox {
 public:
  RunningBox(const TestHost& host, const Words& args);
  ~RunningBox();
  RunningBox(const RunningBox&) = delete;
  RunningBox& operator=(const RunningBox&) = delete;

  // The command has said "ready".
  bool ready() const { return ready_; }
  std::string stderr_text() const;
  pid_t pid() const { return pid_; }
  int finish();  // closes its stdin; its exit status

 private:
  std::string errors_;
  pid_t pid_ = -1;
  int in_ = -1;
  int out_ = -1;
  bool ready_ = false;
};

// A copy of bin/ and libexec/ of the build in a directory of the test, and TEMENOS_BIN leads to it.
class StagedProduct {
 public:
  explicit StagedProduct(const std::string& prefix);
  ~StagedProduct();
  StagedProduct(const StagedProduct&) = delete;
  StagedProduct& operator=(const StagedProduct&) = delete;
  std::string bin() const { return prefix_ + "/bin"; }
  std::string libexec() const { return prefix_ + "/libexec/temenos"; }

 private:
  std::string prefix_;
  std::string before_;
};

// The processes below `pid`, it not among them: pid -> name.
std::map<pid_t, std::string> descendants(pid_t pid);
std::string read_text(const std::string& path);

}  // namespace temenos::leak
