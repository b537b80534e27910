#include "leak/leak.h"

#include <dirent.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <climits>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace temenos::leak {
namespace {

constexpr int kReadyMs = 60'000;

std::string extended_attributes(const std::string& path) {
  char names[4096];
  const ssize_t size = llistxattr(path.c_str(), names, sizeof names);
  std::map<std::string, std::string> all;
  for (ssize_t at = 0; at < size; at += static_cast<ssize_t>(strlen(names + at)) + 1) {
    char value[4096];
    const ssize_t n = lgetxattr(path.c_str(), names + at, value, sizeof value);
    all[names + at] = std::string(value, n > 0 ? static_cast<std::size_t>(n) : 0);
  }
  std::string out;
  for (const auto& [name, value] : all) out += " " + name + "=" + value;
  return out;
}

}  // namespace

std::string state_of(const std::string& path) {
  struct stat st{};
  if (lstat(path.c_str(), &st) != 0) return "gone";
  std::ostringstream out;
  out << std::oct << st.st_mode << std::dec << " " << st.st_uid << ":" << st.st_gid << " "
      << st.st_mtim.tv_sec << "." << st.st_mtim.tv_nsec << " links " << st.st_nlink;
  if (S_ISLNK(st.st_mode)) {
    char target[PATH_MAX];
    const ssize_t n = readlink(path.c_str(), target, sizeof target);
    out << " -> " << std::string(target, n > 0 ? static_cast<std::size_t>(n) : 0);
  } else if (S_ISREG(st.st_mode)) {
    out << " size " << st.st_size << " hash " << std::hash<std::string>()(read_text(path));
  }
  return out.str() + extended_attributes(path);
}

std::string read_text(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream out;
  out << in.rdbuf();
  return out.str();
}

std::vector<Attempt> attempts(const CliResult& result) {
  EXPECT_EQ(result.status, 0) << result.err;
  std::vector<Attempt> out;
  std::string attacker = "root";
  std::istringstream lines(result.out);
  for (std::string line; std::getline(lines, line);) {
    const auto first = line.find('\t');
    const auto last = line.rfind('\t');
    if (first == std::string::npos || last == first) {
      ADD_FAILURE() << "a guest printed: " << line;
      continue;
    }
    Attempt attempt{attacker, line.substr(0, first), line.substr(first + 1, last - first - 1),
                    line.substr(last + 1)};
    if (attempt.what == "attacker") {
      attacker = attempt.outcome;
    } else {
      out.push_back(std::move(attempt));
    }
  }
  EXPECT_FALSE(out.empty()) << result.err;
  return out;
}

std::vector<std::string> boxes() {
  auto out = testing::platforms();
  for (const char* scratch : {"memory", "runsc"}) out.push_back(out[0] + "_" + scratch);
  return out;
}

Words run(const std::string& platform, const Words& flags, const Words& command) {
  const auto scratch = platform.find('_');
  Words out{"run", "--no-net", "--platform", platform.substr(0, scratch)};
  if (scratch != std::string::npos) {
    out.insert(out.end(), {"--scratch", platform.substr(scratch + 1)});
  }
  out.insert(out.end(), flags.begin(), flags.end());
  out.emplace_back("--");
  out.insert(out.end(), command.begin(), command.end());
  return out;
}

Words attack(const std::string& platform, const Words& flags, const Words& words) {
  Words all{"--volume", testing::guest("leak_attack") + ":/leak/attack:ro"};
  all.insert(all.end(), flags.begin(), flags.end());
  Words command{"/leak/attack"};
  command.insert(command.end(), words.begin(), words.end());
  return run(platform, all, command);
}

Tree tree_of(const std::string& root) {
  namespace fs = std::filesystem;
  Tree out;
  out["."] = state_of(root);
  std::error_code error;
  if (!fs::is_directory(fs::symlink_status(root, error))) return out;
  const auto options = fs::directory_options::skip_permission_denied;
  for (fs::recursive_directory_iterator it(root, options, error), end; it != end && !error;
       it.increment(error)) {
    out[it->path().string().substr(root.size() + 1)] = state_of(it->path().string());
  }
  return out;
}

std::string difference(const Tree& before, const Tree& after) {
  std::ostringstream out;
  int lines = 0;
  for (const auto& [path, state] : before) {
    const auto now = after.find(path);
    const std::string is = now == after.end() ? "gone" : now->second;
    if (is != state && ++lines <= 10)
      out << path << "\n  was " << state << "\n  is  " << is << "\n";
  }
  for (const auto& [path, state] : after) {
    if (!before.contains(path) && ++lines <= 10) out << path << "\n  new " << state << "\n";
  }
  return out.str();
}

RunningBox::RunningBox(const TestHost& host, const Words& args)
    : errors_(host.path() + "/errors-XXXXXX") {
  const int err = mkostemp(errors_.data(), O_CLOEXEC);
  int in[2];
  int out[2];
  if (err < 0 || pipe2(in, O_CLOEXEC) != 0 || pipe2(out, O_CLOEXEC) != 0) return;
  const auto environment = host.environment();
  std::vector<char*> envp;
  for (const auto& variable : environment) envp.push_back(const_cast<char*>(variable.c_str()));
  envp.push_back(nullptr);
  std::vector<char*> argv{const_cast<char*>("temenos")};
  for (const auto& arg : args) argv.push_back(const_cast<char*>(arg.c_str()));
  argv.push_back(nullptr);
  const std::string program = testing::temenos_program();
  const std::string empty = host.path() + "/empty";
  pid_ = fork();
  if (pid_ == 0) {
    dup2(in[0], 0);
    dup2(out[1], 1);
    dup2(err, 2);
    if (chdir(empty.c_str()) != 0) _exit(99);
    execve(program.c_str(), argv.data(), envp.data());
    _exit(98);
  }
  close(in[0]);
  close(out[1]);
  close(err);
  in_ = in[1];
  out_ = out[0];
  std::string said;
  char byte;
  pollfd fd{out_, POLLIN, 0};
  while (said != "ready\n" && said.size() < 64 && poll(&fd, 1, kReadyMs) > 0 &&
         read(out_, &byte, 1) == 1) {
    said += byte;
  }
  ready_ = said == "ready\n";
}

std::string RunningBox::stderr_text() const { return read_text(errors_); }

int RunningBox::finish() {
  if (in_ >= 0) close(in_);
  in_ = -1;
  if (pid_ < 0) return -1;
  int status = 0;
  waitpid(pid_, &status, 0);
  pid_ = -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

RunningBox::~RunningBox() {
  // A box that never became ready may not look at its stdin.
  if (!ready_ && pid_ > 0) kill(pid_, SIGTERM);
  (void)finish();
  if (out_ >= 0) close(out_);
}

StagedProduct::StagedProduct(const std::string& prefix) : prefix_(prefix) {
  const std::string program = testing::temenos_program();
  const std::string from = program.substr(0, program.rfind('/')) + "/..";
  testing::host_shell("mkdir -p " + bin() + " " + libexec() + " && cp " + from + "/bin/temenos " +
                      bin() + " && cp " + from + "/libexec/temenos/* " + libexec());
  const char* set = getenv("TEMENOS_BIN");
  before_ = set != nullptr ? set : "";
  setenv("TEMENOS_BIN", (bin() + "/temenos").c_str(), 1);
}

StagedProduct::~StagedProduct() {
  if (before_.empty()) {
    unsetenv("TEMENOS_BIN");
  } else {
    setenv("TEMENOS_BIN", before_.c_str(), 1);
  }
}

std::map<pid_t, std::string> descendants(pid_t pid) {
  std::map<pid_t, std::string> out;
  std::vector<pid_t> todo{pid};
  while (!todo.empty()) {
    const std::string proc = "/proc/" + std::to_string(todo.back());
    todo.pop_back();
    std::error_code error;
    for (const auto& task : std::filesystem::directory_iterator(proc + "/task", error)) {
      std::istringstream children(read_text(task.path().string() + "/children"));
      for (pid_t child = 0; children >> child;) {
        std::string name = read_text("/proc/" + std::to_string(child) + "/comm");
        if (!name.empty()) name.pop_back();
        out[child] = name;
        todo.push_back(child);
      }
    }
  }
  return out;
}

}  // namespace temenos::leak
