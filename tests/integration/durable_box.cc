#include "tests/integration/durable_box.h"

#include <dirent.h>
#include <gmock/gmock.h>
#include <poll.h>
#include <pwd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "box/box_record.h"

namespace temenos::testing {
namespace {

using std::chrono::milliseconds;

std::string seed_of_this_run() {
  const char* given = std::getenv("TEMENOS_CRASH_SEED");
  return given != nullptr ? given : std::to_string(std::random_device()());
}

// One that is dying has no descriptors any more before it has ended.
bool has_descriptors(pid_t pid) {
  DIR* fds = opendir(("/proc/" + std::to_string(pid) + "/fd").c_str());
  if (fds == nullptr) return false;
  bool some = false;
  while (const dirent* entry = readdir(fds)) some = some || entry->d_name[0] != '.';
  closedir(fds);
  return some;
}

}  // namespace

Generation::Generation(const BoxProcesses& processes) : processes_(processes) {
  const std::pair<const char*, pid_t> rows[] = {
      {"keeper", processes.keeper}, {"session", processes.session}, {"helper", processes.helper},
      {"runsc", processes.runsc},   {"gofer", processes.gofer},     {"sandbox", processes.sandbox}};
  for (const auto& [name, pid] : rows) {
    if (pid <= 0) continue;
    UniqueFd pidfd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
    if (pidfd) held_.push_back({name, pid, std::move(pidfd)});
  }
}

std::string Generation::wait_for_end(int seconds) const {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
  std::string left;
  for (const auto& held : held_) {
    const auto time =
        std::chrono::duration_cast<milliseconds>(end - std::chrono::steady_clock::now());
    pollfd fd{held.pidfd.get(), POLLIN, 0};
    if (poll(&fd, 1, time.count() > 0 ? static_cast<int>(time.count()) : 0) != 1) {
      left += held.name + " ";
    }
    waitpid(held.pid, nullptr, WNOHANG);  // whose reaper is gone has become ours
  }
  return left;
}

bool Generation::can_write() const {
  for (const auto& held : held_) {
    if (held.name != "sandbox" && held.name != "gofer") continue;
    pollfd fd{held.pidfd.get(), POLLIN, 0};
    if (has_descriptors(held.pid) && poll(&fd, 1, 0) == 0) return true;
  }
  return false;
}

DurableBoxTest::DurableBoxTest() : seed_(seed_of_this_run()), random_(std::stoull(seed_)) {}

void DurableBoxTest::remove_all_boxes() const {
  std::stringstream all(run_tool({"list"}).out);
  std::string name;
  for (std::string rest; all >> name; std::getline(all, rest)) {
    const auto removed = run_tool({"remove", name});
    EXPECT_EQ(removed.status, 0) << removed.err;
  }
  wait_for_descendants(30);
}

void DurableBoxTest::TearDown() {
  remove_all_boxes();
  IntegrationTest::TearDown();
}

bool DurableBoxTest::become(const std::string& account) {
  const passwd* user = getpwnam(account.c_str());
  const char* stage = std::getenv("TEMENOS_STAGE");
  if (user == nullptr) return false;
  if (stage != nullptr) tool_ = std::string(stage) + "/tests/box_tool";
  as_ = {"/usr/bin/setpriv", "--reuid=" + account, "--regid=" + std::to_string(user->pw_gid),
         "--init-groups", "--inh-caps=-all"};
  const std::string own = host_.dir("of-user");
  if (chown(own.c_str(), user->pw_uid, user->pw_gid) != 0) return false;
  env_ = {{"XDG_CONFIG_HOME", own}, {"XDG_CACHE_HOME", own}, {"XDG_DATA_HOME", own}};
  const bool works = run_tool({"list"}).status == 0;
  env_.erase("XDG_DATA_HOME");
  return works;
}

Program DurableBoxTest::start_tool(std::vector<std::string> words, const Variables& env) const {
  words.insert(words.begin(), tool_);
  words.insert(words.begin(), as_.begin(), as_.end());
  Variables all = env_;
  all.insert(env.begin(), env.end());
  return Program(host_, std::move(words), all);
}

void DurableBoxTest::enter_host() const {
  for (const auto& variable : host_.environment()) {
    const auto equals = variable.find('=');
    setenv(variable.substr(0, equals).c_str(), variable.substr(equals + 1).c_str(), 1);
  }
}

std::string DurableBoxTest::data_dir(const std::string& name) const {
  return boxes_dir() + "/" + box::id_of({"", name});
}

BoxProcesses DurableBoxTest::processes(const std::string& name) const {
  return durable_box_processes(data_dir(name));
}

std::string DurableBoxTest::host_file(const std::string& name, const std::string& path) const {
  std::ifstream in(data_dir(name) + "/box/upper/root/" + path);
  std::stringstream out;
  out << in.rdbuf();
  return out.str();
}

std::chrono::microseconds DurableBoxTest::chance(std::chrono::microseconds end) {
  return std::chrono::microseconds(
      std::uniform_int_distribution<std::int64_t>(0, end.count() - 1)(random_));
}

void DurableBoxTest::never_two(Program& next, const Generation& old,
                               const std::string& name) const {
  while (next.read_for(milliseconds(4))) {
    const pid_t sandbox = processes(name).sandbox;
    if (sandbox == 0 || sandbox == old.processes().sandbox) continue;
    EXPECT_FALSE(old.can_write()) << "two sandboxes have the files of one box";
    return;
  }
}

void expect_told(const CliResult& result, const char* who) {
  SCOPED_TRACE(who);
  EXPECT_EQ(result.status, 125) << result.err;
  EXPECT_EQ(result.err.rfind("box_tool: ", 0), 0u) << result.err;
  EXPECT_EQ(result.err.find('\n'), result.err.size() - 1) << "not one line: " << result.err;
  EXPECT_EQ(result.err.find("[no hint]"), std::string::npos) << result.err;
}

}  // namespace temenos::testing
