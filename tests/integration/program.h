// A temenos program that a test talks to while it runs, the processes that it is made of, and the
// fixture of all integration tests.
#pragma once

#include <gtest/gtest.h>
#include <sys/types.h>

#include <chrono>
#include <functional>
#include <initializer_list>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/unique_fd.h"
#include "testing/cli.h"

namespace temenos::testing {

using Variables = std::map<std::string, std::string>;

class Program {
 public:
  // Runs `argv` (a path first) with TestHost::environment(env) in `cwd`, with pipes as 0, 1 and 2.
  Program(const TestHost& host, std::vector<std::string> argv, const Variables& env = {},
          const std::string& cwd = "");
  ~Program();  // ends it when it still runs
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  pid_t pid() const { return pid_; }
  int in() const { return in_.get(); }
  int out() const { return out_.get(); }
  void close_in() { in_.reset(); }
  void send(int signal) const;
  // Reads stdout until it holds `text`; false when it ended, or 60 s passed (300 on a slow
  // machine), before.
  bool wait_for(const std::string& text);
  // Reads for this long; false when both outputs have ended before.
  bool read_for(std::chrono::microseconds time);
  const std::string& output() const { return result_.out; }  // as far as it was read
  // Until `done` says so; false when the program ended, or as long passed, before.
  bool wait_until(const std::function<bool()>& done) const;
  // Reads both outputs to their ends and waits; stdin stays as it is. After `seconds` the program
  // is killed and the status is -1.
  CliResult finish(int seconds = 60);

 private:
  bool read_some(std::chrono::steady_clock::time_point deadline);

  pid_t pid_ = -1;
  UniqueFd pidfd_;
  UniqueFd in_;
  UniqueFd out_;
  UniqueFd err_;
  CliResult result_;
};

// The processes of a box; 0 for one that is not there.
struct BoxProcesses {
  pid_t keeper = 0;
  pid_t session = 0;
  pid_t helper = 0;  // PID 1 of the sandbox's PID namespace
  pid_t runsc = 0;
  pid_t gofer = 0;
  pid_t sandbox = 0;  // the sentry
};
// Of the one box of a running `temenos run`.
BoxProcesses box_processes(pid_t cli);
// Of the live box with this data dir. Its keeper is a descendant of this process (Leftovers).
BoxProcesses durable_box_processes(const std::string& data_dir);

// "VmHWM" and the like from /proc/PID/status, in kB; 0 when there is none.
long status_kb(pid_t pid, const std::string& field);

// Each test has a host of its own, and leaves nothing on the real one.
class IntegrationTest : public ::testing::Test {
 protected:
  void TearDown() override { EXPECT_EQ(before_.check(), ""); }

  // temenos run --no-net ARGS -- sh -c SCRIPT
  CliResult run(std::vector<std::string> args, const std::string& script,
                const std::string& cwd = "", const Variables& env = {}) const;
  // The same as a Program's argv.
  static std::vector<std::string> argv(std::vector<std::string> args, const std::string& script);

  TestHost host_;
  Leftovers before_{host_};
};

// argv of a script for bash, with `words` as "$@", in a user namespace of an ordinary user's: only
// what runs there counts against `ulimit -u`. Boxes there have one id, newuidmap cannot work.
std::vector<std::string> with_tasks_of_its_own(const std::string& script,
                                               const std::vector<std::string>& words);

// One line on stderr, "temenos: what: why: what to do", that holds each of `parts`; and nothing on
// stdout.
void expect_error(const CliResult& result, int status,
                  std::initializer_list<std::string_view> parts);

}  // namespace temenos::testing
