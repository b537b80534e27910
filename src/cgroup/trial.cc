#include "cgroup/trial.h"

#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/text.h"
#include "cgroup/bite.h"
#include "cgroup/make.h"
#include "sys/process_sys.h"

namespace temenos::cgroup {
namespace {

constexpr char kPrefix[] = "temenos-trial-";
constexpr std::size_t kMaxAnswer = 64 * 1024;
constexpr std::size_t kFlags = 4;  // of a child's answer, before its texts
constexpr int kTimeoutMs = 20'000;
constexpr int kDyingMs = 1'000;

bool for_this_user(Driver driver) {
  const bool root = geteuid() == 0;
  if (driver == Driver::kSystemdUser) return !root;
  if (driver == Driver::kSystemdSystem) return root;
  return true;
}

std::string fix_of(Driver driver) {
  if (driver == Driver::kSystemdUser) {
    return "sudo sh -c 'mkdir -p /etc/systemd/system/user@.service.d && printf \"[Service]\\n"
           "Delegate=cpu memory pids\\n\" > /etc/systemd/system/user@.service.d/temenos.conf && "
           "systemctl daemon-reload', and log in anew";
  }
  if (driver == Driver::kCgroup1) {
    return "mount the hierarchies of memory, pids and cpu below /sys/fs/cgroup, writable";
  }
  return "boot with a kernel that has the controllers memory, pids and cpu, all turned on";
}

Trial failed(Driver driver, const Error& error) {
  const std::string text = error.to_string();
  const bool no_answer = error.code == Code::kTimedOut;
  // A system call that failed says no way out.
  if (error.hint.empty()) return {driver, {}, text, fix_of(driver), no_answer};
  return {driver, {}, text.substr(0, text.find(": " + error.hint)), error.hint, no_answer};
}

// In a process of its own: with systemd it moves.
Trial try_driver(Driver driver, const std::string& name, const std::string& scope_program) {
  Request request;
  request.driver = driver;
  request.name = name;
  request.description = "temenos tries its limits";
  request.scope_program = scope_program;
  auto made = make_group(request);  // without a limit yet
  if (!made) return failed(driver, made.error());
  const auto held = bite(made->group);
  (void)made->group.remove();
  if (!held) return failed(driver, held.error());
  Trial trial{driver, *held, "", "", false};
  if (held->all()) return trial;
  trial.why = "no limit of " + held->missing() + " holds";
  trial.fix = fix_of(driver);
  return trial;
}

}  // namespace

std::vector<Trial> try_drivers(const std::string& scope_program, int stop_fd) {
  std::vector<Trial> trials;
  sweep_groups();
  for (const Driver driver : kDrivers) {
    if (!for_this_user(driver)) continue;
    Trial trial = failed(
        driver, fail(Code::kTimedOut, "trying it took too long", "'temenos doctor' tries it again")
                    .value());
    const std::string name = kPrefix + random_hex(6);
    auto pair = sys::socket_pair(SOCK_SEQPACKET);
    if (!pair) continue;
    const int there = pair->second.get();
    auto child = sys::start_in_namespaces(0, [&] {
      (void)sys::die_with_parent();
      const Trial done = try_driver(driver, name, scope_program);
      const std::string flags{done.controls.memory ? '1' : '0', done.controls.cpu ? '1' : '0',
                              done.controls.tasks ? '1' : '0', done.no_answer ? '1' : '0'};
      (void)sys::send_with_fds(there, flags + done.why + '\0' + done.fix, {});
      return 0;
    });
    pair->second.reset();
    if (!child) continue;
    pollfd fds[] = {{pair->first.get(), POLLIN, 0}, {stop_fd, POLLIN, 0}};
    (void)poll(fds, 2, kTimeoutMs);
    const bool stopped = fds[1].revents != 0;
    if (fds[0].revents != 0) {
      const auto said = sys::receive_with_fds(pair->first.get(), kMaxAnswer, 0);
      if (said && said->bytes.size() >= kFlags) {
        const std::string& text = said->bytes;
        trial.controls = {text[0] == '1', text[1] == '1', text[2] == '1'};
        trial.no_answer = text[3] == '1';
        const auto end = text.find('\0');
        trial.why = text.substr(kFlags, end - kFlags);
        trial.fix = end == text.npos ? "" : text.substr(end + 1);
      }
    }
    child->send(SIGKILL);
    child->wait();
    // Of one that was ended in the middle; what it had in there ends with it.
    std::vector<std::string> groups = group_parents();
    for (auto& group : groups) group += "/" + name;
    (void)remove_groups(groups, kDyingMs);
    trials.push_back(trial);
    if (stopped || trial.controls.all()) break;
  }
  return trials;
}

Trial best_of(const std::vector<Trial>& trials) {
  Trial best;
  const auto worth = [](const Trial& trial) {
    return 4 * trial.controls.memory + 2 * trial.controls.tasks + trial.controls.cpu;
  };
  for (const auto& trial : trials) {
    if (trial.driver != Driver::kNone && worth(trial) > worth(best)) best = trial;
  }
  if (best.driver == Driver::kNone && !trials.empty()) {
    best.why = trials.front().why;
    best.fix = trials.front().fix;
    best.no_answer = trials.front().no_answer;
  }
  return best;
}

}  // namespace temenos::cgroup
