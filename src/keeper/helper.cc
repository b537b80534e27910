#include "keeper/helper.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "base/text.h"
#include "base/try.h"
#include "jail/runsc_filter.h"
#include "keeper/box_limits.h"
#include "keeper/disk_watch.h"
#include "keeper/messages.h"
#include "keeper/network_start.h"
#include "keeper/rootfs.h"
#include "sys/file_sys.h"
#include "sys/mount_sys.h"

namespace temenos::keeper {
namespace {

// High enough that runsc's descriptor table is big from the start: growing it later costs an RCU
// wait.
constexpr int kHighFd = 1000;
constexpr char kGo[] = "go";
constexpr std::size_t kLogTail = 600;
// runsc writes in that directory: what is a pipe or a link there by now must hold up nobody.
constexpr int kReadLog = O_RDONLY | O_NOFOLLOW | O_NONBLOCK;
constexpr std::size_t kMaxProcNames = 1u << 20;
constexpr std::size_t kMaxProcFile = 64 * 1024;
// What runsc calls its two children; the words are their own, so they only choose words of ours.
constexpr char kSandboxName[] = "runsc-sandbox";
constexpr char kGoferName[] = "runsc-gofer";
using Names = std::vector<std::string>;

// The child that becomes runsc when it is told to.
struct Unborn {
  pid_t pid = -1;
  UniqueFd socket;
};

struct Running {
  pid_t runsc = -1;
  UniqueFd listener;
};

const char* network_word(NetworkMode network) {
  switch (network) {
    case NetworkMode::kHost:
      return "host";
    case NetworkMode::kFiltered:
      return "sandbox";  // gVisor's own stack
    case NetworkMode::kNone:
    case NetworkMode::kNat:
      break;
  }
  return "none";
}

// What runsc itself makes, for itself or its guest.
std::vector<int> socket_families(NetworkMode network) {
  switch (network) {
    case NetworkMode::kHost:
      return {AF_UNIX, AF_NETLINK, AF_INET, AF_INET6};
    case NetworkMode::kFiltered:
      return {AF_UNIX, AF_NETLINK, AF_PACKET};
    case NetworkMode::kNone:
    case NetworkMode::kNat:
      break;
  }
  return {AF_UNIX};
}

// Nobody else writes in the box's own root, and still its file access is not "exclusive", unless
// gVisor's overlay wants it: there each name of a hard-linked file has a size and a link count of
// its own, and gpg takes no lock for ever.
std::vector<std::string> runsc_command(const LaunchSpec& spec) {
  const std::string log = std::string("--log=") + kLogDir + "/runsc.log";
  // The box's root is a file system of the host's: what was written is there at once.
  const bool own_overlay = spec.scratch == Scratch::kRunsc;
  return {kRunscPath,
          std::string("--root=") + kRunscState,
          log,
          std::string("--panic-log=") + kLogDir + "/panic.log",
          "--log-format=text",
          "--platform=" + spec.platform,
          std::string("--network=") + network_word(spec.network),
          std::string("--overlay2=") + (own_overlay ? "root:memory" : "none"),
          "--ignore-cgroups",  // limits are ours, outside
          "--directfs=true",   // the sentry opens files itself, in what the gofer handed it
          std::string("--file-access=") + (own_overlay ? "exclusive" : "shared"),
          "--file-access-mounts=shared",  // people edit the project at the same time
          "--host-uds=none",
          "--qdisc=none",  // of its own stack: a queue costs latency and saves nothing here
          "run",
          std::string("--bundle=") + kBundle,
          "box"};
}

Result<void> join_groups(const std::vector<int>& groups) {
  for (const int group : groups) {
    auto joined = sys::write_all(group, "0");
    if (!joined) {
      return tl::make_unexpected(std::move(joined)
                                     .error()
                                     .with_context("joining the control group of the box")
                                     .with_hint("start it again"));
    }
  }
  return {};
}

// The first that the child does: nothing of the sandbox is ever outside of its groups. The kernel
// lets it wait there for some milliseconds (cgroup.procs is behind an RCU grace period), so it
// begins while helper still builds the tree.
Result<void> wait_in_the_groups(const HelperStart& start, int socket) {
  std::vector<int> keep{start.init_socket, socket};
  keep.insert(keep.end(), start.join.begin(), start.join.end());
  TRY(sys::close_all_except(std::move(keep)));
  TRY(sys::forbid_inspection());
  const auto joined = join_groups(start.join);
  // Only then its error: who leaves with a word unread takes its own last word along.
  if (TRY(sys::receive_with_fds(socket, sizeof(Message), 0)).bytes != kGo) _exit(125);
  TRY(joined);
  // helper's root is its own by now; where it stood may still be the host's.
  if (chdir("/") != 0) return fail_errno(errno, "chdir /");
  return {};
}

// In the child that becomes runsc. Returns only on failure.
Result<void> become_runsc(const HelperStart& start, int notify_socket) {
  const LaunchSpec& spec = start.launch->spec;
  TRY(wait_in_the_groups(start, notify_socket));
  const UniqueFd out(open((std::string(kLogDir) + "/output").c_str(),
                          O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  if (!out) return fail_errno(errno, "opening the sandbox's output");
  // The socket is fd 0 and nothing else: handed over twice, the sentry's O_NONBLOCK on one of the
  // two makes the other fail with EAGAIN.
  if (dup2(start.init_socket, 0) < 0 || dup2(out.get(), 1) < 0 || dup2(out.get(), 2) < 0) {
    return fail_errno(errno, "dup2");
  }
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
    files.rlim_cur = files.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &files);
  }
  const int notify = fcntl(notify_socket, F_DUPFD_CLOEXEC, 3);
  TRY(sys::close_on_exec_from(3));
  const UniqueFd null(open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (dup2(null.get(), kHighFd) < 0) return fail_errno(errno, "dup2");
  TRY(limit_own_tasks(spec.limits.host_tasks));
  TRY(jail::drop_what_runsc_never_needs());
  const UniqueFd listener = TRY(jail::load_runsc_filter(
      {.preallocates = start.meter < 0, .socket_families = socket_families(spec.network)}));
  const int fd = listener.get();
  TRY(sys::send_with_fds(notify, "listener", {&fd, 1}));
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  const auto command = runsc_command(spec);
  std::vector<char*> argv;
  for (const auto& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  char path[] = "PATH=/";
  char* const environment[] = {path, nullptr};
  execve(kRunscPath, argv.data(), environment);
  return fail_errno(errno, "cannot run runsc",
                    "it must be a static program; ./scripts/setup installs one that is");
}

Result<Unborn> fork_runsc(const HelperStart& start) {
  auto [here, there] = TRY(sys::socket_pair(SOCK_SEQPACKET));
  const int child_socket = there.get();
  UniqueFd pidfd;
  const pid_t pid = TRY(sys::raw_fork(0, &pidfd));
  if (pid == 0) {
    const auto done = become_runsc(start, child_socket);
    const Message message = failure(done.error());
    (void)send_message(child_socket, message);
    _exit(125);
  }
  return Unborn{pid, std::move(here)};
}

Result<Running> start_runsc(const Unborn& child) {
  const int socket = child.socket.get();
  TRY(sys::send_with_fds(socket, kGo, {}));
  auto received = TRY(sys::receive_with_fds(socket, sizeof(Message), 1));
  if (received.bytes == "listener" && received.fds.size() == 1) {
    Running running;
    running.runsc = child.pid;
    running.listener = std::move(received.fds[0]);
    // The socket closes at exec; a Message instead says why there was none.
    received = TRY(sys::receive_with_fds(socket, sizeof(Message), 0));
    if (received.bytes.empty()) return running;
  }
  if (received.bytes.size() != sizeof(Message))
    return fail(Code::kInternal, "the start of runsc failed");
  Message message;
  memcpy(&message, received.bytes.data(), sizeof message);
  return tl::make_unexpected(to_error(message));
}

// runsc's log is a JSON object a line; the text of the last one, or the whole when it looks
// otherwise.
std::string last_message(const std::string& log) {
  constexpr std::string_view kBegin = "{\"msg\":\"";
  constexpr std::string_view kEnd = "\",\"level\"";
  const auto begin = log.rfind(kBegin);
  const auto end = log.find(kEnd, begin == std::string::npos ? 0 : begin);
  if (begin == std::string::npos || end == std::string::npos) return log;
  std::string text = log.substr(begin + kBegin.size(), end - begin - kBegin.size());
  std::erase(text, '\\');  // of its escaping; the words are for people
  return text;
}

// What Go's runtime said first when the sentry failed; the rest is stacks. Empty: nothing.
std::string panic_line() {
  const UniqueFd fd(open((std::string(kLogDir) + "/panic.log").c_str(), kReadLog | O_CLOEXEC));
  char buffer[kLogTail];
  const ssize_t n = fd ? read(fd.get(), buffer, sizeof buffer) : 0;
  const std::string text(buffer, static_cast<std::size_t>(std::max<ssize_t>(n, 0)));
  return text.substr(0, text.find('\n'));
}

// The last lines that runsc left, for the error of a box that did not start.
std::string log_tail() {
  for (const char* name : {"/runsc.log", "/output"}) {
    const UniqueFd fd(open((std::string(kLogDir) + name).c_str(), kReadLog | O_CLOEXEC));
    if (!fd) continue;
    const off_t size = lseek(fd.get(), 0, SEEK_END);
    if (size <= 0) continue;
    char buffer[kLogTail];
    const off_t from =
        size > static_cast<off_t>(kLogTail) ? size - static_cast<off_t>(kLogTail) : 0;
    const ssize_t n = pread(fd.get(), buffer, sizeof buffer, from);
    if (n > 0) return last_message(std::string(buffer, static_cast<std::size_t>(n)));
  }
  return "";
}

// Reaps all that has ended; true when runsc was among them.
bool reap(pid_t runsc, int* status) {
  bool ended = false;
  for (;;) {
    int one = 0;
    const pid_t pid = waitpid(-1, &one, WNOHANG);
    if (pid <= 0) return ended;
    if (pid == runsc) {
      ended = true;
      *status = one;
    }
  }
}

void end_all_processes() {
  // kill(-1) means all of this PID namespace for PID 1, and all of the user's for anybody else.
  if (getpid() != 1) abort();
  kill(-1, SIGKILL);
  while (waitpid(-1, nullptr, 0) > 0 || errno == EINTR) {
  }
}

// 0 when there is none that lives.
pid_t find_gofer(pid_t runsc) {
  const UniqueFd proc(open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  for (const auto& name : sys::list_names(proc.get(), kMaxProcNames).value_or(Names{})) {
    if (name[0] < '1' || name[0] > '9') continue;
    const auto stat = sys::read_path("/proc/" + name + "/stat", kMaxProcFile);
    const auto comm_end = stat ? stat->rfind(')') : std::string::npos;
    char state = 'X';
    int parent = -1;
    if (comm_end == std::string::npos ||
        sscanf(stat->c_str() + comm_end, ") %c %d", &state, &parent) != 2 || parent != runsc ||
        state == 'Z' || state == 'X') {
      continue;
    }
    const auto command = sys::read_path("/proc/" + name + "/cmdline", kMaxProcFile);
    if (command && command->starts_with(kGoferName)) return atoi(name.c_str());
  }
  return 0;
}

constexpr int kGoferDyingMs = 500;  // from its files' end to its own, at most

// The gofer's death, with which the sandbox must end.
class GoferWatch {
 public:
  explicit GoferWatch(pid_t runsc) : runsc_(runsc) {}
  // The box is ready, so there is one, or there was.
  void begin() {
    pid_ = find_gofer(runsc_);
    if (pid_ > 0) gofer_ = sys::open_pidfd(pid_).value_or(UniqueFd());
    if (!gofer_ || find_gofer(runsc_) != pid_) note_end(false);
  }
  // To be polled for POLLIN; -1 when there is nothing to see.
  int pidfd() const { return gofer_.get(); }
  void note_end(bool by_itself) {
    gofer_.reset();
    if (!by_itself) death_ = Clock::now();
  }
  // runsc itself ends it, once the sentry has told it that the box's init has ended. It has to be
  // heard before it can be done, so a gofer that is dead without it was killed by somebody else.
  void note_kill(pid_t target) { ended_by_runsc_ = ended_by_runsc_ || target == pid_; }
  // By somebody else than itself and runsc; waits for the end of one that may be dying.
  bool killed(int wait_ms) {
    pollfd fd{gofer_.get(), POLLIN, 0};
    if (gofer_ && poll(&fd, 1, wait_ms) == 1) note_end(false);
    return death_.has_value() && !ended_by_runsc_;
  }
  bool overdue() const { return milliseconds_left() == 0; }
  // For poll(2): until the sandbox must have ended.
  int milliseconds_left() const {
    if (!death_) return -1;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(*death_ + kGrace - Clock::now());
    return static_cast<int>(std::max<std::int64_t>(left.count(), 0));
  }

 private:
  using Clock = std::chrono::steady_clock;
  // The sentry ends by itself when its gofer was killed, but not always: what it watches for that
  // may be a descriptor that another part of it has closed.
  static constexpr std::chrono::seconds kGrace{5};

  pid_t runsc_;
  pid_t pid_ = 0;
  UniqueFd gofer_;
  bool ended_by_runsc_ = false;
  std::optional<Clock::time_point> death_;
};

// Who of runsc's two children leaves by itself, and what that says.
void note_farewell(const jail::Farewell& farewell, pid_t runsc, GoferWatch& gofer, Ending& ending) {
  if (farewell.kills != 0) {
    if (farewell.process == runsc) gofer.note_kill(farewell.kills);
    return;
  }
  if (farewell.parent != runsc) return;
  if (farewell.name == kGoferName) ending.gofer_left = true;
  if (farewell.name != kSandboxName) return;
  ending.sandbox_farewell = farewell.status;
  // One that leaves by itself cannot be gone before we have answered it. A killed one closes its
  // files, which is what the sentry sees, before it is dead: then the sentry kills the box's init.
  // Until we answer again, runsc cannot end it either.
  const bool init_was_killed = farewell.status == 128 + SIGKILL;
  ending.gofer_killed = !ending.gofer_left && gofer.killed(init_was_killed ? kGoferDyingMs : 0);
}

// Until runsc ends, or stays although it must end (true), or the keeper closes its socket or asks
// (false).
bool supervise(const Running& running, int control, int signals, dev_t overlay, Ending& ending) {
  GoferWatch gofer(running.runsc);
  for (;;) {
    pollfd fds[] = {{control, POLLIN, 0},
                    {signals, POLLIN, 0},
                    {running.listener.get(), POLLIN, 0},
                    {gofer.pidfd(), POLLIN, 0}};
    const int n = poll(fds, 4, gofer.milliseconds_left());
    if (n < 0 && errno != EINTR) return false;
    if (n < 0) continue;
    if ((fds[1].revents & POLLIN) != 0) {
      signalfd_siginfo info;
      (void)!read(signals, &info, sizeof info);
      if (reap(running.runsc, &ending.runsc_status)) return true;
    }
    if ((fds[2].revents & POLLIN) != 0) {
      const auto answered = jail::answer_runsc(running.listener.get(), overlay);
      if (answered && *answered) {
        note_farewell(**answered, running.runsc, gofer, ending);
      }
    }
    if (fds[3].revents != 0) gofer.note_end(ending.gofer_left);
    if (gofer.overdue()) {
      ending.sandbox_stays = true;
      return true;
    }
    if (fds[0].revents != 0) {
      // Once the word that the box is ready; else the keeper's end, or its wish to end.
      const auto message = receive_message(control);
      if (!message || message->kind != Message::kReady) return false;
      gofer.begin();
    }
  }
}

Result<Unborn> set_up(HelperStart& start, int signals) {
  Message message;
  message.kind = Message::kNamespaces;
  TRY(send_message(start.control, message));
  if (TRY(receive_message(start.control)).kind != Message::kMapped) {
    return fail(Code::kProtocol, "no id maps");
  }
  TRY(sys::become_namespace_root());
  TRY(sys::die_with_parent());
  TRY(sys::make_all_private());
  Unborn runsc = TRY(fork_runsc(start));
  for (const int group : start.join) close(group);
  // Beside what follows; it has a mount namespace of its own.
  NetworkStart network;
  if (start.netsetup >= 0) TRY(network.begin(start.netsetup));
  Sources sources =
      start.sources ? std::move(*start.sources) : TRY(clone_sources(*start.launch, *start.plan));
  TRY(build_tree(start.launch->spec, std::move(sources)));
  // A directory of the host's tree, held open, would be a way out of ours ("..").
  start.launch->data_dir.reset();
  start.launch->sources.clear();
  // It is gone, with its sight of the host's tree, before there is a sandbox.
  if (start.netsetup >= 0) TRY(network.finish(start.control));
  std::vector<int> keep{start.control, start.init_socket, start.lock, signals, runsc.socket.get()};
  if (start.meter >= 0) keep.push_back(start.meter);
  TRY(sys::close_all_except(std::move(keep)));
  // runsc has all capabilities in this user namespace: it must not trace us or open our /proc/1.
  TRY(sys::forbid_inspection());
  return runsc;
}

// Only in the tree that build_tree() made: kDataDir means something else on the host.
Result<void> remove_box_files() {
  TRY(sys::detach_mount(kRootfs));
  const UniqueFd data(open(kDataDir, O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!data) return fail_errno(errno, "opening the data directory");
  for (const char* name : {"upper", "work", "base"}) TRY(sys::remove_tree(data.get(), name));
  return {};
}

Result<void> live(HelperStart& start) {
  sigset_t chld;
  sigemptyset(&chld);
  sigaddset(&chld, SIGCHLD);
  sigprocmask(SIG_BLOCK, &chld, nullptr);
  const UniqueFd signals(signalfd(-1, &chld, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!signals) return fail_errno(errno, "signalfd");
  const Unborn unborn = TRY(set_up(start, signals.get()));
  struct stat overlay{};
  if (stat(kRootfs, &overlay) != 0) return fail_errno(errno, "stat of the box's root");
  if (start.meter >= 0) {
    TRY(start_meter(start.meter, start.launch->spec, kDataDir, overlay.st_dev));
    close(start.meter);  // its end is to be seen
  }
  const Running running = TRY(start_runsc(unborn));
  // From here on only runsc has the init socket: its end must be seen by the session.
  close(start.init_socket);
  Message message;
  message.kind = Message::kStarted;
  TRY(send_message(start.control, message));
  Ending ending;
  const bool by_itself = supervise(running, start.control, signals.get(), overlay.st_dev, ending);
  ending.panic = panic_line();
  std::string log;
  if (by_itself) log = ending.panic.empty() ? log_tail() : ending.panic;
  end_all_processes();
  if (!start.launch->spec.durable && start.launch->spec.scratch == Scratch::kDisk) {
    TRY(remove_box_files());
  }
  if (by_itself) {
    Error error;
    error.code = Code::kBoxDied;
    error.what = describe(ending);
    if (!log.empty() && judge(ending) != EndReason::kProcessLimit) error.what += ": " + log;
    error.hint = std::string(end_reason_hint(judge(ending)));
    message = failure(error);
    message.kind = Message::kEnded;
    message.value = static_cast<std::uint32_t>(judge(ending));
  } else {
    message.kind = Message::kEnded;
    message.value = static_cast<std::uint32_t>(EndReason::kStopped);
  }
  return send_message(start.control, message);
}

}  // namespace

int helper_main(HelperStart start) {
  const int control = start.control;
  const auto done = live(start);
  if (done) return 0;
  Error error = done.error();
  if (error.hint.empty() && (error.sys_errno == ENOSPC || error.sys_errno == EDQUOT)) {
    error.hint = "free some disk space, or set XDG_DATA_HOME to a directory with room";
  }
  (void)send_message(control, failure(error));
  return 1;
}

}  // namespace temenos::keeper
