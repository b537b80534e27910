#include "tests/bench/processes.h"

#include <dirent.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <map>

#include "base/try.h"
#include "sys/file_sys.h"

namespace temenos::bench {
namespace {

constexpr std::size_t kMaxFile = 65536;

std::string read_of(pid_t pid, const char* name) {
  return sys::read_path("/proc/" + std::to_string(pid) + "/" + name, kMaxFile).value_or("");
}

// Field 4 of /proc/PID/stat; the name before it is in parentheses and may hold anything.
pid_t parent_of(pid_t pid) {
  const std::string stat = read_of(pid, "stat");
  const auto end = stat.rfind(')');
  pid_t parent = -1;
  if (end != std::string::npos && stat.size() > end + 4) {
    std::from_chars(stat.data() + end + 4, stat.data() + stat.size(), parent);
  }
  return parent;
}

std::map<pid_t, pid_t> all_parents() {
  std::map<pid_t, pid_t> parents;
  DIR* proc = opendir("/proc");
  if (proc == nullptr) return parents;
  while (const dirent* entry = readdir(proc)) {
    const std::string_view name = entry->d_name;
    pid_t pid = 0;
    const auto parsed = std::from_chars(name.data(), name.data() + name.size(), pid);
    if (parsed.ptr == name.data() + name.size()) parents[pid] = parent_of(pid);
  }
  closedir(proc);
  return parents;
}

}  // namespace

void adopt_orphans() { prctl(PR_SET_CHILD_SUBREAPER, 1); }

std::set<pid_t> descendants() {
  const auto parents = all_parents();
  std::set<pid_t> found;
  for (const auto& [pid, unused] : parents) {
    pid_t at = pid;
    // Bounded: the table was read while processes came and went.
    for (int step = 0; step < 64 && at > 1; ++step) {
      const auto parent = parents.find(at);
      if (parent == parents.end()) break;
      at = parent->second;
      if (at == getpid()) {
        found.insert(pid);
        break;
      }
    }
  }
  return found;
}

Result<BoxProcesses> sort_processes(const std::set<pid_t>& pids) {
  BoxProcesses box;
  pid_t sandbox = -1;
  for (const pid_t pid : pids) {
    const std::string command = read_of(pid, "cmdline");
    if (command.starts_with("runsc-sandbox")) sandbox = pid;
  }
  for (const pid_t pid : pids) {
    const std::string command = read_of(pid, "cmdline");
    const bool own_of_sandbox = pid == sandbox || parent_of(pid) == sandbox;
    if (own_of_sandbox || command.starts_with("runsc-gofer")) {
      box.two.push_back(pid);
    } else if (command.starts_with("/runsc")) {
      box.runsc_run = pid;
    } else {
      box.ours.push_back(pid);
    }
  }
  if (sandbox < 0 || box.two.size() < 2 || box.runsc_run < 0 || box.ours.empty()) {
    return fail(Code::kInternal, "the processes of a box are not what the benchmark expects",
                "adapt tests/bench/processes.cc to how boxes are started");
  }
  return box;
}

std::vector<pid_t> of_program(const std::set<pid_t>& pids, const std::string& name) {
  std::vector<pid_t> found;
  for (const pid_t pid : pids) {
    if (std::string(read_of(pid, "cmdline").c_str()) == name) found.push_back(pid);
  }
  return found;
}

Result<std::uint64_t> pss_bytes(const std::vector<pid_t>& pids) {
  std::uint64_t total = 0;
  for (const pid_t pid : pids) {
    const std::string text = read_of(pid, "smaps_rollup");
    const auto at = text.find("\nPss:");
    std::uint64_t kilobytes = 0;
    const auto digit = at == std::string::npos ? at : text.find_first_of("0123456789", at);
    if (digit == std::string::npos) {
      return fail(Code::kUnsupported, "the memory of a process cannot be read by this user",
                  "run it as root");
    }
    std::from_chars(text.data() + digit, text.data() + text.size(), kilobytes);
    total += kilobytes * 1024;
  }
  return total;
}

}  // namespace temenos::bench
