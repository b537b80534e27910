// Boxes with names, used through box_tool by processes that tests can kill.
#pragma once

#include <chrono>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "tests/integration/program.h"

namespace temenos::testing {

// The processes of one life of a box, held so that their ends can be seen.
class Generation {
 public:
  explicit Generation(const BoxProcesses& processes);
  // Until all of them have ended, for at most `seconds`; the names of those that live on.
  std::string wait_for_end(int seconds) const;
  // Its sentry or its gofer can still write in the box's files.
  bool can_write() const;
  const BoxProcesses& processes() const { return processes_; }

 private:
  BoxProcesses processes_;
  struct Held {
    std::string name;
    pid_t pid;
    UniqueFd pidfd;
  };
  std::vector<Held> held_;
};

// Removes all its boxes at its end. The seed of its chances is printed with each failure and may be
// given: TEMENOS_CRASH_SEED.
class DurableBoxTest : public IntegrationTest {
 protected:
  DurableBoxTest();
  void TearDown() override;

  // box_tool WORDS...
  Program start_tool(std::vector<std::string> words, const Variables& env = {}) const;
  CliResult run_tool(const std::vector<std::string>& words, const Variables& env = {}) const {
    return start_tool(words, env).finish();
  }
  // From here on this process is on the test's host, for the library used in it.
  void enter_host() const;
  std::string data_dir(const std::string& name) const;
  std::string boxes_dir() const { return host_.path() + "/home/data/temenos/boxes"; }
  BoxProcesses processes(const std::string& name) const;
  // What the box sees as /root/PATH, read on the host.
  std::string host_file(const std::string& name, const std::string& path) const;
  // A moment in [0, end).
  std::chrono::microseconds chance(std::chrono::microseconds end);
  const std::string& seed() const { return seed_; }
  // Box_tool runs as another user from here on, with a directory of its own for the rest of its
  // state; false when it cannot.
  bool become(const std::string& account);
  void remove_all_boxes() const;
  // `next` starts the box `name` at once after the end of `old`: looks until the new sandbox is
  // there whether two ever are that can write in its files.
  void never_two(Program& next, const Generation& old, const std::string& name) const;

 private:
  std::vector<std::string> as_;  // before box_tool
  Variables env_;
  std::string tool_ = guest("box_tool");
  std::string seed_;
  std::mt19937_64 random_;
};

// One line on stderr with a hint, and status 125.
void expect_told(const CliResult& result, const char* who);

}  // namespace temenos::testing
