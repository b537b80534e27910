#include "testing/cli.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <climits>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>

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

}  // namespace

std::string temenos_program() {
  const char* set = getenv("TEMENOS_BIN");
  return set != nullptr ? set : own_directory() + "/../bin/temenos";
}

std::string guest(const std::string& name) { return own_directory() + "/" + name; }

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
  int status = 0;
  waitpid(pid, &status, 0);
  result.status = WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
  return result;
}

Leftovers::Leftovers(const TestHost& host)
    : host_(host), mounts_(read_file("/proc/self/mountinfo")) {}

std::string Leftovers::check() const {
  std::string left;
  if (read_file("/proc/self/mountinfo") != mounts_) left += "the mount table changed; ";
  const std::string files =
      host_shell("find " + host_.path() + "/home/data/temenos/run -mindepth 1 2>&1 | head -20");
  if (!files.empty() && files.find("No such file") == std::string::npos)
    left += "files: " + files + "; ";
  // Processes of this host's boxes are known by their data directory (lock or working files held
  // open).
  const std::string holders =
      host_shell("for p in /proc/[0-9]*; do ls -l $p/fd 2>/dev/null | grep -q " + host_.path() +
                 "/home/data && tr '\\0' ' ' <$p/cmdline && echo; done");
  if (!holders.empty()) left += "processes: " + holders;
  return left;
}

}  // namespace temenos::testing
