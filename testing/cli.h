// Running the temenos program in tests, in directories of the test's own.
#pragma once

#include <sys/types.h>

#include <map>
#include <set>
#include <string>
#include <vector>

namespace temenos::testing {

struct CliResult {
  int status = -1;  // exit status, or 1000 + signal
  std::string out;
  std::string err;
  // Taken out of `err`: what this host keeps no limit of, which many hosts say about every box.
  std::string limits_warning;
};

// Moves it there. For tests that collect what temenos prints themselves.
void take_limits_warning(CliResult& result);

// A directory below /var/tmp (a real file system, which idmapped mounts and an overlay's upper
// need), with HOME and the XDG directories inside, removed with all in it at the end. `path` has no
// symlink in it.
class TestHost {
 public:
  TestHost();
  ~TestHost();
  TestHost(const TestHost&) = delete;
  TestHost& operator=(const TestHost&) = delete;

  const std::string& path() const { return path_; }
  std::string dir(const std::string& name) const;  // made, mode 0755
  std::string file(const std::string& name, const std::string& content,
                   int mode = 0644) const;  // made
  // Runs temenos with HOME and XDG_* in here; `env` is added. The working directory is `cwd`, else
  // an empty directory that is no project.
  CliResult temenos(const std::vector<std::string>& args, const std::string& input = "",
                    const std::string& cwd = "",
                    const std::map<std::string, std::string>& env = {}) const;
  // The environment that temenos() uses, for tests that start it themselves.
  std::vector<std::string> environment(const std::map<std::string, std::string>& env = {}) const;

 private:
  std::string path_;
};

// The program under test: $TEMENOS_BIN, else ../bin/temenos beside the test program.
std::string temenos_program();
// A guest program that lies beside the test programs.
std::string guest(const std::string& name);
// What command of the host prints (sh -c); for checks on the host side.
std::string host_shell(const std::string& script);

// TEMENOS_SLOW=1: a machine in emulation, where everything takes slowness() times as long; else 1.
bool is_slow_machine();
int slowness();

// TEMENOS_PERCENT of `usual`, at least 1; all of it when that is not set. Of the many tries of a
// test, the rest of which only ./scripts/test --all makes.
int part_of(int usual);

// "systrap" and "ptrace".
const std::vector<std::string>& platforms();

// All that a box could leave behind, before and after. From the first one on, this process is the
// reaper of all that it starts, so that no descendant can get out of its sight, and a namespace
// without a process, a mount or a descriptor of ours is gone. As root it also moves this process
// into a mount namespace of its own.
class Leftovers {
 public:
  explicit Leftovers(const TestHost& host);
  // Empty when nothing is left; else what: mounts, descendants, processes that hold files of this
  // host's data directory or have it mounted, namespaces held by descriptors, cgroups, files.
  std::string check() const;

 private:
  const TestHost& host_;
  std::string mounts_;
  std::string namespaces_;
  std::set<std::string> cgroups_;
};

// Of this process; false when it has ended.
bool is_descendant(pid_t pid);
// Until every descendant of this process has ended and is reaped, for at most `seconds`; false when
// some live on. Not while another thread or object still waits for a child of its own.
bool wait_for_descendants(int seconds);

}  // namespace temenos::testing
