#include "testing/cli.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <climits>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <set>
#include <sstream>

#include "sys/mount_sys.h"

namespace temenos::testing {
namespace {

std::string own_directory() {
  char path[PATH_MAX];
  const ssize_t n = readlink("/proc/self/exe", path, sizeof path);
  const std::string exe(path, n > 0 ? static_cast<std::size_t>(n) : 0);
  return exe.substr(0, exe.rfind('/'));
}

std::string read_file(const std::string& path) {
  std::ifstream in(path);
  std::stringstream out;
  out << in.rdbuf();
  return out.str();
}

[[noreturn]] void fatal(const char* what) {
  perror(what);
  abort();
}

// Feeds `input` and collects both outputs until the child has closed them.
void pump(int in, int out, int err, std::string input, CliResult& result) {
  pollfd fds[3] = {{in, POLLOUT, 0}, {out, POLLIN, 0}, {err, POLLIN, 0}};
  std::size_t sent = 0;
  if (input.empty()) {
    close(in);
    fds[0].fd = -1;
  }
  char buffer[65536];
  while (fds[1].fd >= 0 || fds[2].fd >= 0) {
    if (poll(fds, 3, -1) < 0) continue;
    if (fds[0].fd >= 0 && fds[0].revents != 0) {
      const ssize_t n = write(in, input.data() + sent, input.size() - sent);
      if (n > 0) sent += static_cast<std::size_t>(n);
      if (n < 0 || sent == input.size()) {
        close(in);
        fds[0].fd = -1;
      }
    }
    for (int i : {1, 2}) {
      if (fds[i].fd < 0 || fds[i].revents == 0) continue;
      const ssize_t n = read(fds[i].fd, buffer, sizeof buffer);
      if (n > 0) {
        (i == 1 ? result.out : result.err).append(buffer, static_cast<std::size_t>(n));
      } else {
        close(fds[i].fd);
        fds[i].fd = -1;
      }
    }
  }
  if (fds[0].fd >= 0) close(in);
}

std::vector<std::string> names_in(const std::string& directory) {
  std::vector<std::string> names;
  DIR* dir = opendir(directory.c_str());
  if (dir == nullptr) return names;
  while (const dirent* entry = readdir(dir)) names.emplace_back(entry->d_name);
  closedir(dir);
  return names;
}

std::string link_target(const std::string& path) {
  char target[PATH_MAX];
  const ssize_t n = readlink(path.c_str(), target, sizeof target);
  return std::string(target, n > 0 ? static_cast<std::size_t>(n) : 0);
}

std::vector<pid_t> all_processes() {
  std::vector<pid_t> pids;
  for (const auto& name : names_in("/proc")) {
    const int pid = atoi(name.c_str());
    if (pid > 0) pids.push_back(pid);
  }
  return pids;
}

// 0 when it has ended.
pid_t parent_of(pid_t pid) {
  const std::string status = read_file("/proc/" + std::to_string(pid) + "/status");
  const auto at = status.find("\nPPid:\t");
  return at == std::string::npos ? 0 : atoi(status.c_str() + at + 7);
}

bool holds_below(const std::string& descriptors, const std::string& directory) {
  for (const auto& name : names_in(descriptors)) {
    if (link_target(descriptors + "/" + name).rfind(directory, 0) == 0) return true;
  }
  return false;
}

std::string held_namespaces() {
  std::string out;
  for (const auto& name : names_in("/proc/self/fd")) {
    const std::string target = link_target("/proc/self/fd/" + name);
    for (const char* kind : {"user:[", "mnt:[", "net:[", "pid:[", "ipc:[", "uts:[", "cgroup:["}) {
      if (target.rfind(kind, 0) == 0) out += target + " ";
    }
  }
  return out;
}

// A line a mount, without the options of its file system.
std::set<std::string> mounts_in(const std::string& text) {
  std::set<std::string> lines;
  std::istringstream in(text);
  // What comes after the source is of the file system, and others may change that.
  for (std::string line; std::getline(in, line);) {
    lines.insert(line.substr(0, line.rfind(' ')));
  }
  return lines;
}

// What is not as it was in a table of mounts, or empty.
std::string changed_mounts(const std::string& before, const std::string& after) {
  const auto old_lines = mounts_in(before);
  const auto new_lines = mounts_in(after);
  std::string changed;
  for (const auto& line : new_lines) {
    if (!old_lines.contains(line)) changed += "new mount: " + line + "; ";
  }
  for (const auto& line : old_lines) {
    if (new_lines.contains(line)) continue;
    std::istringstream words(line);
    std::string word;
    for (int n = 0; n < 5; ++n) words >> word;
    // Whoever removes the directory of a mount of another namespace takes it from ours as well.
    if (access(word.c_str(), F_OK) == 0) changed += "lost mount: " + line + "; ";
  }
  return changed;
}

// Groups with a name of ours in which nothing lives. Boxes of other tests have groups at the same
// time, and those are empty for moments only.
std::set<std::string> empty_cgroups() {
  std::istringstream paths(host_shell(
      "find /sys/fs/cgroup -type d '(' -name 'temenos-*' -o -name '*runsc*' -o -name box ')' "
      "2>/dev/null"));
  std::set<std::string> empty;
  for (std::string path; std::getline(paths, path);) {
    const std::string events = read_file(path + "/cgroup.events");
    if (events.empty() ? read_file(path + "/cgroup.procs").empty()
                       : events.find("populated 0") != std::string::npos) {
      empty.insert(path);
    }
  }
  return empty;
}

std::string left_cgroups(const std::set<std::string>& before) {
  constexpr int kLooks = 200;
  std::set<std::string> left = empty_cgroups();
  for (int i = 0; i < kLooks && !left.empty(); ++i) {
    std::set<std::string> still;
    for (const auto& path : empty_cgroups()) {
      if (left.contains(path) && !before.contains(path)) still.insert(path);
    }
    left = std::move(still);
    if (!left.empty()) poll(nullptr, 0, 50);
  }
  std::string out;
  for (const auto& path : left) out += path + "\n";
  return out;
}

}  // namespace

void take_limits_warning(CliResult& result) {
  const auto begin = result.err.find("temenos: warning: no limit of ");
  if (begin == std::string::npos) return;
  const auto end = std::min(result.err.find('\n', begin), result.err.size() - 1) + 1;
  result.limits_warning = result.err.substr(begin, end - begin);
  result.err.erase(begin, end - begin);
}

std::string temenos_program() {
  const char* set = getenv("TEMENOS_BIN");
  return set != nullptr ? set : own_directory() + "/../bin/temenos";
}

std::string guest(const std::string& name) { return own_directory() + "/" + name; }

bool is_slow_machine() {
  const char* slow = std::getenv("TEMENOS_SLOW");
  return slow != nullptr && *slow != '\0' && *slow != '0';
}

int slowness() { return is_slow_machine() ? 20 : 1; }

int part_of(int usual) {
  const char* percent = std::getenv("TEMENOS_PERCENT");
  return percent == nullptr ? usual : std::max(1, usual * std::atoi(percent) / 100);
}

std::string host_shell(const std::string& script) {
  FILE* pipe = popen(script.c_str(), "re");
  if (pipe == nullptr) fatal("popen");
  std::string out;
  char buffer[4096];
  while (const std::size_t n = fread(buffer, 1, sizeof buffer, pipe)) out.append(buffer, n);
  pclose(pipe);
  return out;
}

const std::vector<std::string>& platforms() {
  static const std::vector<std::string> names{"systrap", "ptrace"};
  return names;
}

TestHost::TestHost() {
  path_ = "/var/tmp/temenos-test-XXXXXX";
  if (mkdtemp(path_.data()) == nullptr) fatal("mkdtemp");
  chmod(path_.c_str(), 0755);
  char real[PATH_MAX];
  if (realpath(path_.c_str(), real) == nullptr) fatal("realpath");
  path_ = real;
  dir("home");
  dir("empty");
}

TestHost::~TestHost() {
  // What a box of an ordinary user left belongs to ids that only a box could remove; there should
  // be none.
  (void)!system(("chmod -R u+rwX " + path_ + " 2>/dev/null; rm -rf " + path_).c_str());
}

std::string TestHost::dir(const std::string& name) const {
  const std::string whole = path_ + "/" + name;
  if (!host_shell("mkdir -p '" + whole + "' 2>&1").empty()) fatal("mkdir");
  return whole;
}

std::string TestHost::file(const std::string& name, const std::string& content, int mode) const {
  const std::string whole = path_ + "/" + name;
  const auto slash = name.rfind('/');
  if (slash != std::string::npos) dir(name.substr(0, slash));
  std::ofstream(whole) << content;
  if (chmod(whole.c_str(), static_cast<mode_t>(mode)) != 0) fatal("chmod");
  return whole;
}

std::vector<std::string> TestHost::environment(
    const std::map<std::string, std::string>& env) const {
  std::map<std::string, std::string> all{{"HOME", path_ + "/home"},
                                         {"PATH", "/usr/sbin:/usr/bin:/sbin:/bin"},
                                         {"LANG", "C.UTF-8"},
                                         {"XDG_DATA_HOME", path_ + "/home/data"},
                                         {"XDG_CONFIG_HOME", path_ + "/home/config"}};
  // One cache for all tests of a run: the platform trial costs seconds.
  const std::string cache = "/var/tmp/temenos-test-cache-" + std::to_string(geteuid());
  mkdir(cache.c_str(), 0700);
  all["XDG_CACHE_HOME"] = cache;
  for (const char* name : {"TEMENOS_RUNSC", "XDG_RUNTIME_DIR"}) {
    if (const char* value = getenv(name)) all[name] = value;
  }
  for (const auto& [name, value] : env) all[name] = value;
  std::vector<std::string> out;
  for (const auto& [name, value] : all) out.push_back(name + "=" + value);
  return out;
}

CliResult TestHost::temenos(const std::vector<std::string>& args, const std::string& input,
                            const std::string& cwd,
                            const std::map<std::string, std::string>& env) const {
  signal(SIGPIPE, SIG_IGN);
  int in[2];
  int out[2];
  int err[2];
  if (pipe2(in, O_CLOEXEC) != 0 || pipe2(out, O_CLOEXEC) != 0 || pipe2(err, O_CLOEXEC) != 0)
    fatal("pipe");
  const std::string program = temenos_program();
  const std::string directory = cwd.empty() ? path_ + "/empty" : cwd;
  const auto variables = environment(env);
  std::vector<char*> argv{const_cast<char*>("temenos")};
  for (const auto& arg : args) argv.push_back(const_cast<char*>(arg.c_str()));
  argv.push_back(nullptr);
  std::vector<char*> envp;
  for (const auto& variable : variables) envp.push_back(const_cast<char*>(variable.c_str()));
  envp.push_back(nullptr);
  const pid_t pid = fork();
  if (pid == 0) {
    dup2(in[0], 0);
    dup2(out[1], 1);
    dup2(err[1], 2);
    signal(SIGPIPE, SIG_DFL);
    if (chdir(directory.c_str()) != 0) _exit(99);
    execve(program.c_str(), argv.data(), envp.data());
    _exit(98);
  }
  close(in[0]);
  close(out[1]);
  close(err[1]);
  CliResult result;
  pump(in[1], out[0], err[0], input, result);
  take_limits_warning(result);
  int status = 0;
  waitpid(pid, &status, 0);
  result.status = WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
  return result;
}

Leftovers::Leftovers(const TestHost& host)
    : host_(host), namespaces_(held_namespaces()), cgroups_(empty_cgroups()) {
  if (prctl(PR_SET_CHILD_SUBREAPER, 1) != 0) fatal("PR_SET_CHILD_SUBREAPER");
  // In a mount namespace of our own only what we started changes the table. Without root it cannot
  // be had, and neither can what runs here change the table that others share.
  if (geteuid() == 0) {
    if (unshare(CLONE_NEWNS) != 0 || !sys::make_all_private()) fatal("a mount namespace");
    mounts_ = read_file("/proc/self/mountinfo");
  }
}

std::string Leftovers::check() const {
  std::string left;
  wait_for_descendants(0);
  if (geteuid() == 0) left += changed_mounts(mounts_, read_file("/proc/self/mountinfo"));
  if (held_namespaces() != namespaces_) left += "namespaces: " + held_namespaces() + "; ";
  const std::string cgroups = left_cgroups(cgroups_);
  if (!cgroups.empty()) left += "cgroups: " + cgroups + "; ";
  const std::string data = host_.path() + "/home/data";
  const std::string files =
      host_shell("test ! -e " + data + " || find " + data + "/temenos -mindepth 1 ! -path " + data +
                 "/temenos/run ! -path " + data + "/temenos/boxes 2>&1 | head -20");
  if (!files.empty()) left += "files: " + files + "; ";
  for (const pid_t pid : all_processes()) {
    if (pid == getpid()) continue;
    const std::string directory = "/proc/" + std::to_string(pid);
    const bool ours = is_descendant(pid) || holds_below(directory + "/fd", data) ||
                      read_file(directory + "/mountinfo").find(data) != std::string::npos;
    if (!ours) continue;
    std::string command = read_file(directory + "/cmdline");
    for (char& byte : command) byte = byte == '\0' ? ' ' : byte;
    left += "process " + std::to_string(pid) + ": " + command + "; ";
  }
  return left;
}

bool is_descendant(pid_t pid) {
  for (pid = parent_of(pid); pid > 1; pid = parent_of(pid)) {
    if (pid == getpid()) return true;
  }
  return false;
}

bool wait_for_descendants(int seconds) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
  for (;;) {
    pid_t pid;
    while ((pid = waitpid(-1, nullptr, WNOHANG)) > 0) {
    }
    if (pid < 0) return errno == ECHILD;
    // The others become children of ours when their parents end, so waiting for one is progress.
    pid_t child = -1;
    for (const pid_t candidate : all_processes()) {
      if (parent_of(candidate) == getpid()) child = candidate;
    }
    const int pidfd = child > 0 ? static_cast<int>(syscall(SYS_pidfd_open, child, 0)) : -1;
    if (pidfd < 0) continue;
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        deadline - std::chrono::steady_clock::now());
    pollfd fd{pidfd, POLLIN, 0};
    const int n = left.count() > 0 ? poll(&fd, 1, static_cast<int>(left.count())) : 0;
    close(pidfd);
    if (n == 0) return false;
  }
}

}  // namespace temenos::testing
