// Boxes with a filtered network, run by root or by an ordinary user on the host of a test's
// internet (testing/internet.h), and what is seen of them from both sides.
//
// TEMENOS_PERCENT says how many of a test's many tries are made, TEMENOS_SLOW=1 that
// everything takes twenty times as long.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <ostream>
#include <set>
#include <string>
#include <vector>

#include "testing/internet.h"
#include "tests/integration/program.h"

namespace temenos::testing {

using Words = std::vector<std::string>;

enum class Who { kRoot, kUser };
void PrintTo(Who who, std::ostream* out);

// What a client in a box did: a line of the shell function `try` (tried()).
struct Tried {
  int status = -1;
  long ms = 0;
  std::string text;  // both outputs in one line
};
void PrintTo(const Tried& tried, std::ostream* out);

class EgressTest : public ::testing::TestWithParam<Who> {
 protected:
  void SetUp() override;
  void TearDown() override;

  // temenos WORDS… as this test's user, on the host of the internet.
  std::vector<std::string> argv(const Words& words) const;
  // PROGRAM WORDS… as this test's user.
  std::vector<std::string> argv_of(const std::string& program, const Words& words) const;
  Program start(const Words& words) const;
  CliResult temenos(const Words& words) const;
  // run --net filtered, --allow-host for each of `allowed`, MORE -- sh -c SCRIPT
  static Words run_words(const Words& allowed, const std::string& script, const Words& more = {});
  CliResult run(const Words& allowed, const std::string& script, const Words& more = {}) const {
    return temenos(run_words(allowed, script, more));
  }
  // The same with a script that calls `try NAME COMMAND…`, and what each did. `try` ends what takes
  // 30 s (120 on a slow machine); `$direct COMMAND…` is it without the variables that name a proxy.
  std::map<std::string, Tried> tried(const Words& allowed, const std::string& script,
                                     const Words& more = {}) const;
  // A program that lies beside the tests, where this test's user can read it.
  std::string readable_guest(const std::string& name) const;
  // All that the internet and the host have seen is of `allowed`: "dns NAME", "tcp ADDRESS:PORT"
  // and so on; "tcp ADDRESS:*" is any port.
  void expect_only(const std::set<std::string>& allowed) const;
  const TestHost& host() const { return *host_; }
  TestInternet& internet() { return *internet_; }
  const TestInternet& internet() const { return *internet_; }

 private:
  std::optional<TestHost> host_;
  std::optional<TestInternet> internet_;
  std::optional<Leftovers> before_;
  std::string stage_;  // of the user's programs
};

// INSTANTIATE for both.
inline auto everybody() { return ::testing::Values(Who::kRoot, Who::kUser); }
std::string name_of(const ::testing::TestParamInfo<Who>& info);

// Seconds that a test waits for what should come.
int patience(int seconds);
// Whether `ms` is no more than a second, or half, more than a like client took who was let through:
// most of it is the client's own start, which on a busy machine takes now more, now less. The
// refusal itself is measured by RefusalsComeWithinASecond.
::testing::AssertionResult quick(const Tried& refused, const Tried& allowed);

}  // namespace temenos::testing
