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

// Removes all boxes at its end. The seed of its chances is printed with each failure and may be
// given: TEMENOS_CRASH_SEED.
class DurableBoxTest : public IntegrationTest {
 protected:
  DurableBoxTest();
  void TearDown() override;

  // box_tool WORDS..., as a Program's argv.
  static std::vector<std::string> tool(std::vector<std::string> words);
  CliResult run_tool(const std::vector<std::string>& words, const Variables& env = {}) const;
  std::string data_dir(const std::string& name) const;
  std::string boxes_dir() const { return host_.path() + "/home/data/temenos/boxes"; }
  BoxProcesses processes(const std::string& name) const;
  // What the box sees as /root/PATH, read on the host.
  std::string host_file(const std::string& name, const std::string& path) const;
  // A moment in [0, end).
  std::chrono::microseconds chance(std::chrono::microseconds end);
  const std::string& seed() const { return seed_; }
  // Starts `words` at once after the end of `old`, and looks until its end whether two sentries are
  // ever there for the box `name`.
  CliResult run_after(const Generation& old, const std::string& name,
                      const std::vector<std::string>& words);

 private:
  std::string seed_;
  std::mt19937_64 random_;
};

// One line on stderr with a hint, and status 125.
void expect_told(const CliResult& result, const char* who);

// TEMENOS_CRASH_ROUNDS, else `usual`.
int crash_rounds(int usual);

}  // namespace temenos::testing
