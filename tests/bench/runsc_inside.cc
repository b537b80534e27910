#include "tests/bench/runsc_inside.h"

#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <string_view>

#include "base/try.h"
#include "sys/file_sys.h"

namespace temenos::bench {
namespace {

constexpr std::size_t kMaxCommand = 8192;
constexpr char kStateOfBox[] = "--root=/run/runsc";
constexpr char kStateOfOurs[] = "--root=/run/bench";

struct Reply {
  int status = 0;  // of wait(2), or -1
  double ms = 0;
};

// One command; `input` becomes its stdin. Its own messages go to our stderr.
Reply run_command(std::string_view words, int input) {
  std::vector<char*> argv;
  std::string copy(words);
  for (std::size_t at = 0; at < copy.size(); at += strlen(copy.data() + at) + 1) {
    argv.push_back(copy.data() + at);
  }
  argv.push_back(nullptr);
  char path[] = "PATH=/";
  char* const environment[] = {path, nullptr};
  Reply reply;
  const auto begin = std::chrono::steady_clock::now();
  const pid_t pid = vfork();
  if (pid == 0) {
    dup2(input, 0);
    dup2(2, 1);
    execve(argv[0], argv.data(), environment);
    _exit(127);
  }
  if (pid < 0 || waitpid(pid, &reply.status, 0) != pid) reply.status = -1;
  const std::chrono::duration<double, std::milli> spent = std::chrono::steady_clock::now() - begin;
  reply.ms = spent.count();
  return reply;
}

// In the box's namespaces. A leading 's' asks for a socket as stdin: the box's init is started with
// one, waits on it, and ends when the other end closes.
int serve(int socket) {
  const UniqueFd null(open("/dev/null", O_RDWR | O_CLOEXEC));
  UniqueFd kept;
  for (;;) {
    char buffer[kMaxCommand];
    const ssize_t size = recv(socket, buffer, sizeof buffer, 0);
    if (size <= 1) return 0;
    const std::string_view words(buffer + 1, static_cast<std::size_t>(size - 1));
    Reply reply;
    if (buffer[0] == 's') {
      int ends[2];
      if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return 1;
      kept.reset(ends[0]);
      const UniqueFd there(ends[1]);
      reply = run_command(words, there.get());
    } else {
      reply = run_command(words, null.get());
    }
    if (send(socket, &reply, sizeof reply, MSG_NOSIGNAL) != sizeof reply) return 1;
  }
}

// Joins all namespaces of `pid`; the PID namespace holds for children only, so a child serves.
int enter_and_serve(const std::vector<UniqueFd>& namespaces, int socket) {
  // A copy of a box's socket here would keep that box from seeing its owner's end.
  std::vector<int> kept{socket};
  for (const auto& space : namespaces) kept.push_back(space.get());
  if (!sys::close_all_except(kept)) return 1;
  for (const auto& space : namespaces) {
    if (setns(space.get(), 0) != 0) return 1;
  }
  // Where setgroups is denied there is nothing to give up.
  (void)setgroups(0, nullptr);
  if (setresgid(0, 0, 0) != 0 || setresuid(0, 0, 0) != 0 || chdir("/") != 0) return 1;
  const pid_t pid = fork();
  if (pid == 0) _exit(serve(socket));
  close(socket);
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

}  // namespace

Result<RunscInside> RunscInside::enter(pid_t runsc_run) {
  const std::string proc = "/proc/" + std::to_string(runsc_run);
  const std::string line = TRY(sys::read_path(proc + "/cmdline", kMaxCommand));
  RunscInside inside;
  for (std::size_t at = 0; at < line.size(); at = line.find('\0', at) + 1) {
    const std::string word = line.c_str() + at;
    if (word.starts_with("--") && !word.starts_with("--root=") && !word.starts_with("--bundle=")) {
      inside.flags_.push_back(word);
    }
  }
  std::vector<UniqueFd> namespaces;
  for (const char* name : {"user", "ipc", "uts", "net", "pid", "mnt"}) {
    const std::string path = proc + "/ns/" + name;
    UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!fd) return fail_errno(errno, "opening " + path);
    namespaces.push_back(std::move(fd));
  }
  auto [here, there] = TRY(sys::socket_pair(SOCK_SEQPACKET));
  const int socket = there.get();
  inside.process_ = TRY(sys::start_in_namespaces(
      0, [&namespaces, socket] { return enter_and_serve(namespaces, socket); }));
  inside.socket_ = std::move(here);
  return inside;
}

RunscInside::~RunscInside() {
  socket_.reset();
  if (process_) process_.wait();
}

std::string RunscInside::platform() const {
  constexpr std::string_view kFlag = "--platform=";
  for (const auto& flag : flags_) {
    if (flag.starts_with(kFlag)) return flag.substr(kFlag.size());
  }
  return "";
}

Result<double> RunscInside::command(const std::vector<std::string>& words, bool give_socket) {
  std::string message(1, give_socket ? 's' : '-');
  for (const auto& word : words) {
    message += word;
    message += '\0';
  }
  Reply reply;
  if (send(socket_.get(), message.data(), message.size(), MSG_NOSIGNAL) < 0 ||
      recv(socket_.get(), &reply, sizeof reply, 0) != sizeof reply) {
    return fail(Code::kInternal, "the process in the box's namespaces has gone",
                "the box may have ended; run it again");
  }
  if (reply.status != 0) {
    return fail(Code::kInternal,
                "'" + words[0] + " … " + words.back() + "' gave wait status " +
                    std::to_string(reply.status),
                "see what runsc said above");
  }
  return reply.ms;
}

Result<double> RunscInside::exec_in_box(const std::vector<std::string>& argv) {
  std::vector<std::string> words{"/runsc", kStateOfBox};
  words.insert(words.end(), flags_.begin(), flags_.end());
  words.insert(words.end(), {"exec", "box"});
  words.insert(words.end(), argv.begin(), argv.end());
  return command(words, false);
}

Result<double> RunscInside::run_and_exec(const std::vector<std::string>& argv) {
  std::vector<std::string> words{"/runsc", kStateOfOurs};
  words.insert(words.end(), flags_.begin(), flags_.end());
  auto exec = words;
  words.insert(words.end(), {"run", "--detach", "--bundle=/bundle", "second"});
  const double run_ms = TRY(command(words, true));
  exec.insert(exec.end(), {"exec", "second"});
  exec.insert(exec.end(), argv.begin(), argv.end());
  return run_ms + TRY(command(exec, false));
}

Result<double> RunscInside::remove() {
  return command({"/runsc", kStateOfOurs, "delete", "--force", "second"}, false);
}

}  // namespace temenos::bench
