// What the tests of limits share: boxes of the library, whose commands use things up, and what is
// seen of them from outside.
//
// TEMENOS_PERCENT says how many of the rounds run, TEMENOS_SLOW=1 that everything takes
// twenty times as long (a machine in emulation): then there are fewer rounds, and more patience.
#pragma once

#include <chrono>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "temenos/box_manager.h"
#include "temenos/policy_builder.h"
#include "tests/integration/durable_box.h"

namespace temenos::testing {

int limit_rounds(int usual);
std::chrono::seconds patience(int seconds);

class LimitsTest : public DurableBoxTest {
 protected:
  void SetUp() override;
  void TearDown() override;

  struct Wanted {
    Limits limits{};
    std::string platform = "systrap";
    LimitsMode mode = LimitsMode::kBestEffort;
  };
  // A started box of that name, with the guest use_up as /use/up. A failed start fails the test.
  Box start(const std::string& name, const Wanted& wanted);
  // Another handle of it.
  Box again(const std::string& name);
  void remove(const std::string& name);
  static ExecRequest command(std::vector<std::string> argv);
  static ExecRequest use_up(std::vector<std::string> words);
  // sh -c; what it printed, or how it failed.
  static std::string output(Box& box, const std::string& script);
  BoxManager& manager() { return *manager_; }

  // The directories of its control groups, as keeper has noted them.
  std::vector<std::string> groups(const std::string& name) const;
  // Processes and threads of the host that are its sandbox: helper and all below it.
  long host_tasks(const std::string& name) const;
  std::string audit(const std::string& name) const;

 private:
  std::optional<BoxManager> manager_;
};

// Tasks of this process and of all that descend from `pid`.
long tasks_below(pid_t pid);
// The middle one of so many times that `true` takes in the box, in milliseconds.
double exec_ms(Box& box, int times);
std::string text_of(const Result<ExecResult>& result);

}  // namespace temenos::testing
