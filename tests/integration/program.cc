#include "tests/integration/program.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <sstream>

namespace temenos::testing {
namespace {

using Clock = std::chrono::steady_clock;

// Long past what is waited for, also where a box and its network take a minute.
std::chrono::seconds patience() { return std::chrono::seconds(is_slow_machine() ? 300 : 60); }

std::string proc_file(pid_t pid, const char* name) {
  std::ifstream in("/proc/" + std::to_string(pid) + "/" + name);
  std::stringstream out;
  out << in.rdbuf();
  return out.str();
}

std::vector<std::string> names_in(const std::string& directory) {
  std::vector<std::string> out;
  DIR* dir = opendir(directory.c_str());
  while (const dirent* entry = dir == nullptr ? nullptr : readdir(dir)) {
    if (entry->d_name[0] != '.') out.emplace_back(entry->d_name);
  }
  if (dir != nullptr) closedir(dir);
  return out;
}

// Of all its threads: runsc forks from any of them.
std::vector<pid_t> children_of(pid_t parent) {
  std::vector<pid_t> out;
  for (const auto& task : names_in("/proc/" + std::to_string(parent) + "/task")) {
    std::stringstream pids(proc_file(parent, ("task/" + task + "/children").c_str()));
    for (pid_t pid = 0; pids >> pid;) out.push_back(pid);
  }
  return out;
}

std::string comm(pid_t pid) {
  std::string name = proc_file(pid, "comm");
  if (!name.empty()) name.pop_back();
  return name;
}

bool holds_below(pid_t pid, const std::string& directory) {
  const std::string fds = "/proc/" + std::to_string(pid) + "/fd/";
  for (const auto& name : names_in(fds)) {
    char target[4096];
    const ssize_t n = readlink((fds + name).c_str(), target, sizeof target);
    if (n > 0 && std::string_view(target, static_cast<std::size_t>(n)).starts_with(directory + "/"))
      return true;
  }
  return false;
}

// PID 1 of a PID namespace of its own: "NSpid:", here and there.
bool is_namespace_init(pid_t pid) {
  const std::string status = proc_file(pid, "status");
  const auto at = status.find("\nNSpid:");
  std::istringstream numbers(at == std::string::npos ? "" : status.substr(at + 7));
  pid_t here = 0;
  pid_t there = 0;
  return numbers >> here && numbers.peek() == '\t' && numbers >> there && there == 1;
}

// `starter` and below: it is a child of its starter for a moment, and then of its reaper.
pid_t keeper_of(pid_t starter, const std::string& data_dir) {
  for (const pid_t pid : children_of(starter)) {
    if (comm(pid) == "temenos-keeper") {
      if (holds_below(pid, data_dir)) return pid;
    } else if (const pid_t keeper = keeper_of(pid, data_dir)) {
      return keeper;
    }
  }
  return 0;
}

BoxProcesses processes_of(pid_t keeper) {
  BoxProcesses box;
  box.keeper = keeper;
  if (box.keeper == 0) return box;
  for (const pid_t pid : children_of(box.keeper)) {
    // Both are forks of the keeper and have its name, the session until it is a program of its own.
    if (comm(pid) == "temenos-session") box.session = pid;
    if (is_namespace_init(pid)) box.helper = pid;
  }
  if (box.helper == 0) return box;
  for (const pid_t pid : children_of(box.helper)) {
    if (proc_file(pid, "cmdline").rfind("/runsc", 0) == 0) box.runsc = pid;
  }
  if (box.runsc == 0) return box;
  for (const pid_t pid : children_of(box.runsc)) {
    const std::string name = proc_file(pid, "cmdline");
    if (name.rfind("runsc-sandbox", 0) == 0) box.sandbox = pid;
    if (name.rfind("runsc-gofer", 0) == 0) box.gofer = pid;
  }
  return box;
}

}  // namespace

Program::Program(const TestHost& host, std::vector<std::string> argv, const Variables& env,
                 const std::string& cwd) {
  signal(SIGPIPE, SIG_IGN);
  int in[2];
  int out[2];
  int err[2];
  if (pipe2(in, O_CLOEXEC) != 0 || pipe2(out, O_CLOEXEC) != 0 || pipe2(err, O_CLOEXEC) != 0)
    abort();
  const std::string directory = cwd.empty() ? host.path() + "/empty" : cwd;
  const auto variables = host.environment(env);
  std::vector<char*> words;
  for (const auto& word : argv) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  std::vector<char*> envp;
  for (const auto& variable : variables) envp.push_back(const_cast<char*>(variable.c_str()));
  envp.push_back(nullptr);
  pid_ = fork();
  if (pid_ < 0) abort();
  if (pid_ == 0) {
    dup2(in[0], 0);
    dup2(out[1], 1);
    dup2(err[1], 2);
    signal(SIGPIPE, SIG_DFL);
    if (chdir(directory.c_str()) != 0) _exit(99);
    execve(words[0], words.data(), envp.data());
    _exit(98);
  }
  pidfd_ = UniqueFd(static_cast<int>(syscall(SYS_pidfd_open, pid_, 0)));
  close(in[0]);
  close(out[1]);
  close(err[1]);
  in_ = UniqueFd(in[1]);
  out_ = UniqueFd(out[0]);
  err_ = UniqueFd(err[0]);
}

Program::~Program() {
  if (pid_ < 0) return;
  send(SIGKILL);
  waitpid(pid_, nullptr, 0);
  wait_for_descendants(30);
}

void Program::send(int signal) const { syscall(SYS_pidfd_send_signal, pidfd_.get(), signal, 0, 0); }

bool Program::read_some(Clock::time_point deadline) {
  if (!out_ && !err_) return false;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
  if (left <= 0) return false;
  pollfd fds[] = {{out_.get(), POLLIN, 0}, {err_.get(), POLLIN, 0}};
  if (poll(fds, 2, static_cast<int>(left)) <= 0) return errno == EINTR;
  char buffer[65536];
  for (int i : {0, 1}) {
    if (fds[i].fd < 0 || fds[i].revents == 0) continue;
    const ssize_t n = read(fds[i].fd, buffer, sizeof buffer);
    if (n <= 0) {
      (i == 0 ? out_ : err_).reset();
    } else {
      (i == 0 ? result_.out : result_.err).append(buffer, static_cast<std::size_t>(n));
    }
  }
  return true;
}

bool Program::wait_for(const std::string& text) {
  const auto deadline = Clock::now() + patience();
  while (result_.out.find(text) == std::string::npos) {
    if (!read_some(deadline) || !out_) break;
  }
  return result_.out.find(text) != std::string::npos;
}

bool Program::read_for(std::chrono::microseconds time) {
  const auto deadline = Clock::now() + time;
  while (Clock::now() < deadline) {
    if (!read_some(deadline) && !out_ && !err_) return false;
  }
  return out_ || err_;
}

bool Program::wait_until(const std::function<bool()>& done) const {
  const auto deadline = Clock::now() + patience();
  while (!done()) {
    // What is waited for in /proc cannot be polled; the program's end can.
    pollfd fd{pidfd_.get(), POLLIN, 0};
    if (poll(&fd, 1, 1) != 0 || Clock::now() > deadline) return false;
  }
  return true;
}

CliResult Program::finish(int seconds) {
  const auto deadline = Clock::now() + std::chrono::seconds(seconds);
  while (read_some(deadline)) {
  }
  const auto left =
      std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
  pollfd fd{pidfd_.get(), POLLIN, 0};
  const bool ended = poll(&fd, 1, left > 0 ? static_cast<int>(left) : 0) == 1;
  if (!ended) send(SIGKILL);
  int status = 0;
  waitpid(pid_, &status, 0);
  pid_ = -1;
  take_limits_warning(result_);
  if (ended) result_.status = WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
  return result_;
}

long status_kb(pid_t pid, const std::string& field) {
  const std::string status = "\n" + proc_file(pid, "status");
  const auto at = status.find("\n" + field + ":");
  return at == std::string::npos ? 0 : atol(status.c_str() + at + field.size() + 2);
}

BoxProcesses box_processes(pid_t cli) {
  for (const pid_t pid : children_of(cli)) {
    if (comm(pid) == "temenos-keeper") return processes_of(pid);
  }
  return {};
}

BoxProcesses durable_box_processes(const std::string& data_dir) {
  return processes_of(keeper_of(getpid(), data_dir));
}

std::vector<std::string> IntegrationTest::argv(std::vector<std::string> args,
                                               const std::string& script) {
  args.insert(args.begin(), {temenos_program(), "run", "--no-net"});
  args.insert(args.end(), {"--", "/bin/sh", "-c", script});
  return args;
}

CliResult IntegrationTest::run(std::vector<std::string> args, const std::string& script,
                               const std::string& cwd, const Variables& env) const {
  args.insert(args.begin(), {"run", "--no-net"});
  args.insert(args.end(), {"--", "/bin/sh", "-c", script});
  return host_.temenos(args, "", cwd, env);
}

std::vector<std::string> with_tasks_of_its_own(const std::string& script,
                                               const std::vector<std::string>& words) {
  std::vector<std::string> argv{
      "/usr/bin/unshare",
      "-Urm",
      "/bin/sh",
      "-ec",
      "mount --bind /dev/null /usr/bin/newuidmap; exec unshare --map-user=" +
          std::to_string(geteuid()) + " --map-group=" + std::to_string(getegid()) +
          " /bin/bash -c \"$@\"",
      "sh",
      script,
      "bash"};
  argv.insert(argv.end(), words.begin(), words.end());
  return argv;
}

void expect_error(const CliResult& result, int status,
                  std::initializer_list<std::string_view> parts) {
  EXPECT_EQ(result.status, status) << result.err;
  EXPECT_EQ(result.out, "");
  EXPECT_EQ(result.err.rfind("temenos: ", 0), 0u) << result.err;
  EXPECT_EQ(result.err.find('\n'), result.err.size() - 1) << "not one line: " << result.err;
  for (const auto part : parts) {
    EXPECT_NE(result.err.find(part), std::string::npos) << "no '" << part << "' in " << result.err;
  }
}

}  // namespace temenos::testing
