#include "tests/limits/limits_test.h"

#include <dirent.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>

#include "base/text.h"

namespace temenos::testing {
namespace {

std::vector<pid_t> children_of(pid_t pid, const std::multimap<pid_t, pid_t>& by_parent) {
  std::vector<pid_t> all{pid};
  for (std::size_t n = 0; n < all.size(); ++n) {
    const auto [begin, end] = by_parent.equal_range(all[n]);
    for (auto at = begin; at != end; ++at) all.push_back(at->second);
  }
  return all;
}

// From /proc/PID/status: the parent and the number of threads.
struct Status {
  pid_t parent = 0;
  long threads = 0;
};

Status status_of(const std::string& pid) {
  Status status;
  std::ifstream in("/proc/" + pid + "/status");
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("PPid:")) status.parent = atoi(line.c_str() + 5);
    if (line.starts_with("Threads:")) status.threads = atol(line.c_str() + 8);
  }
  return status;
}

}  // namespace

int limit_rounds(int usual) { return std::max(1, part_of(usual) / slowness()); }

std::chrono::seconds patience(int seconds) { return std::chrono::seconds(seconds * slowness()); }

void LimitsTest::SetUp() {
  enter_host();
  auto manager = BoxManager::open();
  ASSERT_TRUE(manager) << manager.error().to_string();
  manager_.emplace(std::move(*manager));
}

void LimitsTest::TearDown() {
  if (manager_) {
    const auto boxes = manager_->list();
    EXPECT_TRUE(boxes);
    for (const auto& box : boxes.value_or(std::vector<BoxInfo>{})) remove(box.name.name);
  }
  wait_for_descendants(static_cast<int>(patience(30).count()));
  IntegrationTest::TearDown();
}

Box LimitsTest::start(const std::string& name, const Wanted& wanted) {
  const auto policy =
      Policy::Builder()
          .network(NetworkMode::kNone)
          .platform(wanted.platform == "ptrace" ? Platform::kPtrace : Platform::kSystrap)
          .limits(wanted.limits)
          .limits_mode(wanted.mode)
          .mount({.source = guest("use_up"), .target = "/use/up"})
          .build();
  EXPECT_TRUE(policy) << policy.error().to_string();
  auto box = manager_->create({"", name}, *policy);
  EXPECT_TRUE(box) << box.error().to_string();
  const auto started = box->start();
  EXPECT_TRUE(started) << started.error().to_string();
  return std::move(*box);
}

Box LimitsTest::again(const std::string& name) {
  auto box = manager_->find({"", name});
  EXPECT_TRUE(box) << box.error().to_string();
  return std::move(*box);
}

void LimitsTest::remove(const std::string& name) {
  const auto removed = manager_->remove({"", name});
  EXPECT_TRUE(removed) << removed.error().to_string();
}

ExecRequest LimitsTest::command(std::vector<std::string> argv) {
  ExecRequest request;
  request.argv = std::move(argv);
  request.timeout = patience(60);
  return request;
}

ExecRequest LimitsTest::use_up(std::vector<std::string> words) {
  words.insert(words.begin(), "/use/up");
  return command(std::move(words));
}

std::string LimitsTest::output(Box& box, const std::string& script) {
  return text_of(box.exec(command({"sh", "-c", script})));
}

std::vector<std::string> LimitsTest::groups(const std::string& name) const {
  std::ifstream in(data_dir(name) + "/groups");
  std::vector<std::string> all;
  for (std::string line; std::getline(in, line);) all.push_back(line);
  return all;
}

long LimitsTest::host_tasks(const std::string& name) const {
  const pid_t helper = processes(name).helper;
  return helper > 0 ? tasks_below(helper) : 0;
}

std::string LimitsTest::audit(const std::string& name) const {
  std::ifstream in(data_dir(name) + "/audit.jsonl");
  return (std::stringstream() << in.rdbuf()).str();
}

long tasks_below(pid_t pid) {
  std::multimap<pid_t, pid_t> by_parent;
  std::map<pid_t, long> threads;
  DIR* proc = opendir("/proc");
  while (const dirent* entry = readdir(proc)) {
    const pid_t process = atoi(entry->d_name);
    if (process <= 0) continue;
    const auto status = status_of(entry->d_name);
    by_parent.emplace(status.parent, process);
    threads[process] = status.threads;
  }
  closedir(proc);
  long sum = 0;
  for (const pid_t process : children_of(pid, by_parent)) sum += threads[process];
  return sum;
}

double exec_ms(Box& box, int times) {
  std::vector<double> all;
  ExecRequest request;
  request.argv = {"/bin/true"};
  for (int n = 0; n < times; ++n) {
    const auto begin = std::chrono::steady_clock::now();
    const auto result = box.exec(request);
    EXPECT_TRUE(result && result->exit_code == 0) << text_of(result);
    all.push_back(
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin)
            .count());
  }
  std::nth_element(all.begin(), all.begin() + times / 2, all.end());
  return all[static_cast<std::size_t>(times) / 2];
}

std::string text_of(const Result<ExecResult>& result) {
  return result ? result->stdout_data + result->stderr_data : result.error().to_string();
}

}  // namespace temenos::testing
