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
constexpr int kTimeoutMs = 20'000;

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
  // A system call that failed says no way out.
  if (error.hint.empty()) return {driver, {}, text, fix_of(driver)};
  return {driver, {}, text.substr(0, text.find(": " + error.hint)), error.hint};
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
  Trial trial{driver, *held, "", ""};
  if (held->all()) return trial;
  trial.why = "no limit of " + held->missing() + " holds";
  trial.fix = fix_of(driver);
  return trial;
}

}  // namespace

std::vector<Trial> try_drivers(const std::string& scope_program) {
  std::vector<Trial> trials;
  sweep_groups();
  for (const Driver driver : kDrivers) {
    if (!for_this_user(driver)) continue;
    Trial trial = failed(driver, fail(Code::kTimedOut, "trying it took too long").value());
    const std::string name = kPrefix + random_hex(6);
    auto pair = sys::socket_pair(SOCK_SEQPACKET);
    if (!pair) continue;
    const int there = pair->second.get();
    auto child = sys::start_in_namespaces(0, [&] {
      (void)sys::die_with_parent();
      const Trial done = try_driver(driver, name, scope_program);
      const std::string flags{done.controls.memory ? '1' : '0', done.controls.cpu ? '1' : '0',
                              done.controls.tasks ? '1' : '0'};
      (void)sys::send_with_fds(there, flags + done.why + '\0' + done.fix, {});
      return 0;
    });
    pair->second.reset();
    if (!child) continue;
    pollfd fd{pair->first.get(), POLLIN, 0};
    if (poll(&fd, 1, kTimeoutMs) == 1) {
      const auto said = sys::receive_with_fds(pair->first.get(), kMaxAnswer, 0);
      if (said && said->bytes.size() >= 3) {
        const std::string& text = said->bytes;
        trial.controls = {text[0] == '1', text[1] == '1', text[2] == '1'};
        const auto end = text.find('\0');
        trial.why = text.substr(3, end - 3);
        trial.fix = end == text.npos ? "" : text.substr(end + 1);
      }
    }
    child->send(SIGKILL);
    child->wait();
    // Of one that was ended in the middle.
    for (const auto& parent : group_parents()) (void)rmdir((parent + "/" + name).c_str());
    trials.push_back(trial);
    if (trial.controls.all()) break;
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
  }
  return best;
}

}  // namespace temenos::cgroup
