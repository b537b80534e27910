#include "tests/egress/egress_test.h"

#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <sstream>

namespace temenos::testing {
namespace {

// A line for each `try`: NAME STATUS MS TEXT, with tabs between; before it, how many `seconds` it
// may take.
constexpr char kShell[] = R"sh(
try() {
  local name=$1 begin end text status; shift
  begin=$(date +%s%N)
  text=$(timeout $seconds "$@" 2>&1 </dev/null); status=$?
  end=$(date +%s%N)
  printf '%s\t%s\t%s\t%s\n' "$name" $status $(((end - begin) / 1000000)) \
    "$(printf %s "$text" | tr '\n\t\r\0' '    ')"
}
direct="env -u http_proxy -u https_proxy -u HTTP_PROXY -u HTTPS_PROXY -u all_proxy -u ALL_PROXY"
)sh";

// The ordinary user of this machine.
const char* user_name() {
  const char* name = std::getenv("TEMENOS_TEST_USER");
  return name != nullptr ? name : "temenos-test";
}
const passwd* test_user() { return getpwnam(user_name()); }

}  // namespace

void PrintTo(Who who, std::ostream* out) { *out << (who == Who::kRoot ? "root" : "user"); }

void PrintTo(const Tried& tried, std::ostream* out) {
  *out << "status " << tried.status << " after " << tried.ms << " ms: " << tried.text;
}

std::string name_of(const ::testing::TestParamInfo<Who>& info) {
  return info.param == Who::kRoot ? "root" : "user";
}

int patience(int seconds) { return seconds * slowness(); }

::testing::AssertionResult quick(const Tried& refused, const Tried& allowed) {
  const long limit = allowed.ms + std::max(patience(1) * 1000L, allowed.ms / 2);
  if (refused.ms <= limit) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure()
         << "refused after " << refused.ms << " ms, allowed after " << allowed.ms;
}

void EgressTest::SetUp() {
  if (const auto why = TestInternet::lacking(); !why.empty()) GTEST_SKIP() << why;
  if (GetParam() == Who::kUser) {
    const char* stage = std::getenv("TEMENOS_STAGE");
    if (stage == nullptr || test_user() == nullptr) {
      const std::string why = "no account " + std::string(user_name()) + " with TEMENOS_STAGE";
      if (std::getenv("TEMENOS_MUST_WORK") != nullptr) FAIL() << why;
      GTEST_SKIP() << why;
    }
    stage_ = stage;
  }
  host_.emplace();
  internet_.emplace(*host_);
  before_.emplace(*host_);
  if (GetParam() == Who::kUser) {
    const auto* user = test_user();
    for (const char* name : {"home", "empty"}) {
      ASSERT_EQ(chown(host_->dir(name).c_str(), user->pw_uid, user->pw_gid), 0);
    }
    // The cache of its other tests.
    const std::string cache = "/var/tmp/temenos-test-cache-" + std::to_string(user->pw_uid);
    if (mkdir(cache.c_str(), 0700) == 0) {
      ASSERT_EQ(chown(cache.c_str(), user->pw_uid, user->pw_gid), 0);
    }
  }
}

void EgressTest::TearDown() {
  if (!before_) return;
  if (HasFailure()) std::cerr << internet_->words_of_servers();
  internet_->stop();
  wait_for_descendants(patience(30));
  EXPECT_EQ(before_->check(), "");
}

std::vector<std::string> EgressTest::argv(const Words& words) const {
  return argv_of(GetParam() == Who::kUser ? stage_ + "/bin/temenos" : temenos_program(), words);
}

std::vector<std::string> EgressTest::argv_of(const std::string& program, const Words& words) const {
  Words all{program};
  if (GetParam() == Who::kUser) {
    const auto* user = test_user();
    all = {"/usr/bin/setpriv",
           "--reuid=" + std::to_string(user->pw_uid),
           "--regid=" + std::to_string(user->pw_gid),
           "--init-groups",
           "--inh-caps=-all",
           "/usr/bin/env",
           "-u",
           "XDG_RUNTIME_DIR",
           "XDG_CACHE_HOME=/var/tmp/temenos-test-cache-" + std::to_string(user->pw_uid),
           program};
  }
  all.insert(all.end(), words.begin(), words.end());
  return all;
}

Program EgressTest::start(const Words& words) const { return Program(*host_, argv(words)); }

CliResult EgressTest::temenos(const Words& words) const {
  auto program = start(words);
  program.close_in();
  return program.finish(patience(120));
}

Words EgressTest::run_words(const Words& allowed, const std::string& script, const Words& more) {
  Words words{"run", "--net", "filtered"};
  for (const auto& entry : allowed) words.insert(words.end(), {"--allow-host", entry});
  words.insert(words.end(), more.begin(), more.end());
  words.insert(words.end(), {"--", "/bin/bash", "-c", script});
  return words;
}

std::map<std::string, Tried> EgressTest::tried(const Words& allowed, const std::string& script,
                                               const Words& more) const {
  // What is emulated carries a megabyte a second.
  const std::string seconds = is_slow_machine() ? "seconds=120" : "seconds=30";
  const auto result = run(allowed, seconds + kShell + script, more);
  EXPECT_EQ(result.status, 0) << result.err << result.out;
  std::map<std::string, Tried> all;
  std::istringstream in(result.out);
  for (std::string line; std::getline(in, line);) {
    std::istringstream fields(line);
    std::string name;
    Tried one;
    if (std::getline(fields, name, '\t') && fields >> one.status >> one.ms && fields.ignore()) {
      std::getline(fields, one.text);
      all[name] = one;
    } else {
      ADD_FAILURE() << "no line of try: " << line;
    }
  }
  return all;
}

std::string EgressTest::readable_guest(const std::string& name) const {
  return GetParam() == Who::kUser ? stage_ + "/tests/" + name : guest(name);
}

void EgressTest::expect_only(const std::set<std::string>& allowed) const {
  std::string reached;
  // With the first look-up of a box temenos asks for the prefixes of a NAT64.
  const bool asks = std::any_of(allowed.begin(), allowed.end(),
                                [](const auto& entry) { return entry.starts_with("dns "); });
  for (const auto& entry : internet_->record()) {
    if (asks && entry == "dns ipv4only.arpa") continue;
    const std::string any_port = entry.substr(0, entry.rfind(':')) + ":*";
    if (!allowed.contains(entry) && !allowed.contains(any_port)) reached += entry + "\n";
  }
  EXPECT_EQ(reached, "") << "what has left the box and is not allowed";
}

}  // namespace temenos::testing
