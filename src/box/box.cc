#include "box/box.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>

#include "base/scope_exit.h"
#include "base/text.h"
#include "base/try.h"
#include "keeper/launch_spec.h"
#include "keeper/messages.h"
#include "sys/file_sys.h"
#include "temenos/policy_builder.h"

namespace temenos::box {
namespace {

using keeper::Message;

// Fifty processes, and data through the socket both ways: what a platform that only seems to work
// fails at.
constexpr char kTrialScript[] =
    "i=0; while [ $i -lt 50 ]; do /bin/true || exit 1; i=$((i+1)); done; head -c 262144 /dev/zero";
constexpr std::size_t kTrialBytes = 262144;
constexpr unsigned kTrialStartSeconds = 6;
constexpr int kTrialSeconds = 15;
// After its start-up time-out a keeper ends by itself; this is for a keeper that hangs.
constexpr int kKeeperGraceMs = 70'000;

}  // namespace

Result<void> refuse_what_is_not_built(const Policy& policy) {
  struct {
    bool asked;
    const char* what;
    const char* hint;
  } const rows[] = {
      {policy->network == NetworkMode::kFiltered,
       "the network mode 'filtered' (the default) is not built yet",
       "say --no-net for a box without a network"},
      {policy->network == NetworkMode::kNat, "the network mode 'nat' is not built yet",
       "say --no-net for a box without a network"},
      {policy->enforcement == Enforcement::kCooperative, "cooperative enforcement is not built yet",
       "leave --enforcement out"},
      {policy->scratch == Scratch::kMemory, "--scratch memory is not built yet",
       "leave it out: what a one-shot box wrote is removed with it"},
      {policy->project == ProjectAccess::kReview, "--review is not built yet",
       "use --ephemeral: the project is read-only then"},
      {policy->base != "host", "images are not built yet", "leave --image out"},
      {policy->limits.memory_mb || policy->limits.cpus || policy->limits.cpu_seconds ||
           policy->limits.pids || policy->limits.disk_mb || policy->limits.ttl_seconds,
       "limits of memory, CPU, processes, disk and age are not built yet",
       "leave them out; --timeout and --output hold"},
      {policy->limits_mode == LimitsMode::kRequired,
       "limits are not built yet, so they cannot be required", "leave --limits out"},
  };
  for (const auto& row : rows) {
    if (row.asked) return fail(Code::kNotBuilt, row.what, row.hint);
  }
  return {};
}

namespace {

Result<std::string> program(const HostDirs& dirs, const char* name) {
  auto path = sys::resolve(dirs.libexec + "/" + name);
  if (path && access(path->c_str(), X_OK) != 0) path = fail_errno(errno, escape(*path));
  if (!path) {
    return tl::make_unexpected(std::move(path)
                                   .error()
                                   .with_context("temenos is not installed whole")
                                   .with_hint("run ./scripts/setup again"));
  }
  return path;
}

// The keeper gets its control socket as descriptor 3, and nothing else but 0 to 2.
Result<sys::Process> spawn_keeper(const std::string& path, int control) {
  UniqueFd pidfd;
  const pid_t pid = TRY(sys::raw_fork(0, &pidfd));
  if (pid == 0) {
    setpgid(0, 0);  // a Ctrl-C is for the command in the box, not for the keeper
    const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    const int copy = fcntl(control, F_DUPFD_CLOEXEC, 10);
    if (dup2(copy, 3) < 0) _exit(125);
    for (const int fd : {0, 1, 2}) dup2(null, fd);
    (void)sys::close_on_exec_from(4);
    char name[] = "temenos-keeper";
    char* const argv[] = {name, nullptr};
    char search[] = "PATH=/usr/sbin:/usr/bin:/sbin:/bin";
    char* const environment[] = {search, nullptr};
    execve(path.c_str(), argv, environment);
    _exit(125);
  }
  return sys::Process(pid, std::move(pidfd));
}

}  // namespace

Result<Box> Box::start(const Policy& policy, const HostDirs& dirs, const StartOptions& options) {
  TRY(refuse_what_is_not_built(policy));
  Box box;
  box.dirs_ = dirs;
  box.mounts_ = TRY(resolve_mounts(policy, options.project_dir, dirs));
  box.warnings_ = box.mounts_.warnings;
  if (policy->network == NetworkMode::kHost) {
    box.warnings_.emplace_back("the box has the host's network, unfiltered");
  }
  box.env_ = policy->env;
  box.default_directory_ = options.project_dir.empty() ? kBoxHome
                           : options.directory.empty() ? options.project_dir
                                                       : options.directory;
  box.data_ = TRY(make_temporary_data_dir(dirs));
  auto launched = box.claim(policy);
  if (launched) launched = box.launch(policy, dirs, options);
  if (!launched) {
    (void)box.stop();
    return tl::make_unexpected(std::move(launched).error().with_context("cannot start the box"));
  }
  return box;
}

Result<void> Box::claim(const Policy& policy) {
  std::vector<std::string> writes;
  for (const auto& bind : mounts_.binds) {
    if (bind.writable) writes.push_back(bind.source);
  }
  return claim_writable(dirs_, data_, writes, policy->allowed.shared_write);
}

Result<void> Box::launch(const Policy& policy, const HostDirs& dirs, const StartOptions& options) {
  keeper::Launch launch;
  keeper::LaunchSpec& spec = launch.spec;
  spec.hostname = "temenos";
  spec.platform = options.platform;
  spec.host_network = policy->network == NetworkMode::kHost;
  spec.runsc = options.runsc;
  spec.init = TRY(program(dirs, "temenos-init"));
  spec.session = TRY(program(dirs, "temenos-session"));
  spec.data_dir = data_.path;
  spec.binds = mounts_.binds;
  spec.memory = mounts_.memory;
  spec.start_timeout_s = options.start_timeout_s;
  auto duplicate = [](int fd) { return UniqueFd(fcntl(fd, F_DUPFD_CLOEXEC, 3)); };
  launch.data_dir = duplicate(data_.directory.get());
  for (const auto& source : mounts_.sources) launch.sources.push_back(duplicate(source.get()));
  auto [client_here, client_there] = TRY(sys::socket_pair(SOCK_STREAM));
  launch.client = std::move(client_there);
  auto [control_here, control_there] = TRY(sys::socket_pair(SOCK_SEQPACKET));
  keeper_ = TRY(spawn_keeper(TRY(program(dirs, "temenos-keeper")), control_there.get()));
  control_there.reset();
  control_ = std::move(control_here);
  TRY(keeper::send_launch(control_.get(), launch));
  launch = {};
  pollfd fds[] = {{control_.get(), POLLIN, 0}, {options.cancel_fd, POLLIN, 0}};
  while (poll(fds, 2, -1) < 0 && errno == EINTR) {
  }
  if (fds[0].revents == 0) return fail(Code::kBoxDied, "the start was given up", "start it again");
  const auto message = keeper::receive_message(control_.get());
  if (!message) return fail(Code::kBoxDied, "its keeper was killed", "try again");
  if (message->kind != Message::kReady) return tl::make_unexpected(keeper::to_error(*message));
  session_ = std::make_unique<SessionClient>(TRY(SessionClient::connect(std::move(client_here))));
  return {};
}

std::vector<std::string> Box::environment(const std::map<std::string, std::string>& extra) const {
  std::map<std::string, std::string> all{
      {"HOME", kBoxHome},
      {"LANG", "C.UTF-8"},
      {"LOGNAME", "root"},
      {"PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
      {"SHELL", "/bin/bash"},
      {"TEMENOS", "1"},
      {"TMPDIR", "/tmp"},
      {"TMPPREFIX", "/tmp/zsh"},
      {"USER", "root"},
  };
  for (const auto& [name, value] : env_) all[name] = value;
  for (const auto& [name, value] : extra) all[name] = value;
  std::vector<std::string> out;
  for (const auto& [name, value] : all) out.push_back(name + "=" + value);
  return out;
}

BoxEnd Box::look_again() const {
  BoxEnd end;
  for (const auto& watched : mounts_.watched) {
    report_autoexec(watched.directory, watched.source, watched.before, dirs_.libexec, end);
  }
  return end;
}

Error Box::explain(const Error& error) {
  if (error.code != Code::kBoxDied && error.code != Code::kProtocol) return error;
  // The session only sees that the box is gone; the keeper knows why, and says so as its last word.
  pollfd fd{control_.get(), POLLIN, 0};
  if (!control_ || poll(&fd, 1, kKeeperGraceMs) <= 0) return error;
  const auto message = keeper::receive_message(control_.get());
  Error reason;
  reason.code = Code::kBoxDied;
  reason.what = "the keeper of the box was killed";
  reason.hint = "start it again";
  return message ? keeper::to_error(*message) : reason;
}

void Box::end_processes() {
  session_.reset();
  if (!keeper_) return;
  Message stop;
  stop.kind = Message::kStop;
  (void)keeper::send_message(control_.get(), stop);
  pollfd fd{keeper_.pidfd(), POLLIN, 0};
  if (poll(&fd, 1, kKeeperGraceMs) <= 0) keeper_.send(SIGKILL);
  keeper_.wait();
}

Result<BoxEnd> Box::stop() {
  if (!data_.directory) return BoxEnd{};
  end_processes();
  BoxEnd end = look_again();
  mounts_ = {};
  TRY(remove_data_dir(dirs_, std::move(data_)));
  return end;
}

Box::~Box() { (void)stop(); }

PlatformTrial try_platform(const HostDirs& dirs, const gvisor::Runsc& runsc,
                           const std::string& name, int cancel_fd) {
  PlatformTrial trial;
  trial.name = name;
  const auto begin = std::chrono::steady_clock::now();
  auto attempt = [&]() -> Result<void> {
    const auto policy = TRY(Policy::Builder().network(NetworkMode::kNone).build());
    StartOptions options;
    options.runsc = runsc.path;
    options.platform = name;
    options.start_timeout_s = kTrialStartSeconds;
    options.cancel_fd = cancel_fd;
    auto box = TRY(Box::start(policy, dirs, options));
    ExecRequest request;
    request.argv = {"/bin/sh", "-c", kTrialScript};
    request.env = box.environment();
    request.timeout = std::chrono::seconds(kTrialSeconds);
    ExecIo io;
    io.cancel_fd = cancel_fd;
    const auto result = box.session().exec(request, io);
    if (!result) return tl::make_unexpected(box.explain(result.error()));
    if (result->timed_out) return fail(Code::kTimedOut, "the workload did not end in time");
    if (result->exit_code != 0 || result->stdout_data.size() != kTrialBytes) {
      return fail(Code::kBoxDied, "the workload failed: " + result->stderr_data);
    }
    TRY(box.stop());
    return {};
  };
  const auto done = attempt();
  const auto spent = std::chrono::steady_clock::now() - begin;
  trial.ms = static_cast<int>(std::chrono::duration_cast<std::chrono::milliseconds>(spent).count());
  trial.ok = done.has_value();
  if (!done) trial.why = done.error().to_string();
  pollfd cancel{cancel_fd, POLLIN, 0};
  trial.given_up = poll(&cancel, 1, 0) > 0;
  return trial;
}

}  // namespace temenos::box
