#include "init/spawn.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

namespace temenos::init {
namespace {

using box_wire::Stage;

constexpr std::string_view kDefaultPath =
    "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
constexpr char kShell[] = "/bin/sh";

// Shared with the child, which runs in our memory: it writes only `failure` and shell_argv[1].
struct ChildPlan {
  const SpawnRequest* request;
  const char* cwd;
  char* const* argv;
  char** shell_argv;
  char* const* env;
  const std::vector<std::string>* candidates;
  SpawnFailure failure;
};

[[noreturn]] void give_up(ChildPlan& plan, Stage stage, int error) {
  plan.failure = {stage, error};
  _exit(127);
}

void enter_group(ChildPlan& plan) {
  if (plan.request->group_file == nullptr) return;
  char digits[16];
  char* at = digits + sizeof digits;
  for (auto pid = static_cast<unsigned>(getpid()); pid != 0; pid /= 10) {
    *--at = static_cast<char>('0' + pid % 10);
  }
  const auto size = static_cast<std::size_t>(digits + sizeof digits - at);
  const int fd = openat(plan.request->group_dir, plan.request->group_file, O_WRONLY | O_CLOEXEC);
  if (fd < 0 || write(fd, at, size) != static_cast<ssize_t>(size)) {
    give_up(plan, Stage::kSpawn, errno);
  }
}

// The search of execvp(3): what is not there is passed over, what may not be run is remembered.
[[noreturn]] void exec_first(ChildPlan& plan) {
  int error = ENOENT;
  for (const std::string& path : *plan.candidates) {
    execve(path.c_str(), plan.argv, plan.env);
    if (errno == ENOEXEC) {
      plan.shell_argv[1] = const_cast<char*>(path.c_str());
      execve(kShell, plan.shell_argv, plan.env);
      give_up(plan, Stage::kNotExecutable, ENOEXEC);
    }
    if (errno == EACCES) error = EACCES;
    if (errno != ENOENT && errno != ENOTDIR && errno != EACCES) {
      give_up(plan, errno == ENOMEM || errno == EAGAIN ? Stage::kSpawn : Stage::kNotExecutable,
              errno);
    }
  }
  // A #! line or an ELF interpreter that is missing gives ENOENT too, although the file is there.
  if (error == ENOENT && plan.candidates->size() == 1 &&
      access(plan.candidates->front().c_str(), F_OK) == 0) {
    give_up(plan, Stage::kNotExecutable, ENOENT);
  }
  give_up(plan, error == EACCES ? Stage::kNotExecutable : Stage::kNotFound, error);
}

int child_main(void* argument) {
  ChildPlan& plan = *static_cast<ChildPlan*>(argument);
  enter_group(plan);
  setsid();
  for (int fd = 0; fd < 3; ++fd) {
    if (dup2(plan.request->stdio[fd], fd) < 0) give_up(plan, Stage::kSpawn, errno);
  }
  if (plan.request->terminal && ioctl(0, TIOCSCTTY, 0) != 0) give_up(plan, Stage::kSpawn, errno);
  if (plan.request->descriptors != nullptr) setrlimit(RLIMIT_NOFILE, plan.request->descriptors);
  if (chdir(plan.cwd) != 0) give_up(plan, Stage::kCwd, errno);
  sigset_t none;
  sigemptyset(&none);
  // The one handler that init has goes back to default at exec; until then it touches only a flag.
  sigprocmask(SIG_SETMASK, &none, nullptr);
  exec_first(plan);
}

}  // namespace

std::vector<std::string> program_candidates(std::string_view program,
                                            const std::vector<std::string_view>& env) {
  if (program.find('/') != std::string_view::npos) return {std::string(program)};
  if (program.empty()) return {};
  std::string_view path = kDefaultPath;
  for (const auto entry : env) {
    if (entry.starts_with("PATH=")) path = entry.substr(5);
  }
  std::vector<std::string> candidates;
  for (;;) {
    const auto end = path.find(':');
    std::string candidate(path.substr(0, end));
    if (!candidate.empty()) candidate += '/';  // an empty element is the current directory
    candidate += program;
    candidates.push_back(std::move(candidate));
    if (end == std::string_view::npos) return candidates;
    path.remove_prefix(end + 1);
  }
}

pid_t spawn(const SpawnRequest& request, SpawnFailure& failure) {
  const box_wire::Exec& exec = *request.exec;
  const std::vector<std::string> argv_text(exec.argv.begin(), exec.argv.end());
  const std::vector<std::string> env_text(exec.env.begin(), exec.env.end());
  const std::string cwd(exec.cwd);
  const auto candidates = program_candidates(exec.argv[0], exec.env);
  std::vector<char*> argv;
  std::vector<char*> env;
  for (const auto& text : argv_text) argv.push_back(const_cast<char*>(text.c_str()));
  for (const auto& text : env_text) env.push_back(const_cast<char*>(text.c_str()));
  argv.push_back(nullptr);
  env.push_back(nullptr);
  std::vector<char*> shell_argv{const_cast<char*>(kShell), nullptr};
  shell_argv.insert(shell_argv.end(), argv.begin() + 1, argv.end());
  ChildPlan plan{&request,   cwd.c_str(), argv.data(), shell_argv.data(),
                 env.data(), &candidates, {}};

  // One child at a time runs on it, and is gone from it when clone returns.
  alignas(16) static char stack[64 * 1024];
  const pid_t pid =
      clone(child_main, stack + sizeof stack, CLONE_VM | CLONE_VFORK | SIGCHLD, &plan);
  if (pid < 0) {
    failure = {Stage::kSpawn, errno};
    return -1;
  }
  if (plan.failure.error == 0) return pid;
  while (waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
  }
  failure = plan.failure;
  return -1;
}

}  // namespace temenos::init
