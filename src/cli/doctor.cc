// temenos doctor: what works on this host, what does not, and the one command that would fix it.
#include <fcntl.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>

#include "base/text.h"
#include "base/try.h"
#include "base/unique_fd.h"
#include "box/box_handle.h"
#include "box/limit_plan.h"
#include "box/limits_probe.h"
#include "box/network_probe.h"
#include "box/platform_trial.h"
#include "cli/command.h"
#include "codec/json.h"
#include "disk/quota.h"
#include "keeper/id_plan.h"
#include "keeper/keeper.h"
#include "sys/process_sys.h"

namespace temenos::cli {
namespace {

namespace json = boost::json;

struct Tool {
  const char* name;
  const char* why;  // what it is for
  const char* fix;
};
constexpr Tool kTools[] = {
    {"newuidmap", "boxes of an ordinary user have more than one user id",
     "sudo apt-get install uidmap"},
    {"git", "none of temenos itself; people use it beside a box", "sudo apt-get install git"},
};

struct UserNamespace {
  bool ok = false;
  bool range = false;
  std::string why;
};

UserNamespace check_user_namespace() {
  UserNamespace out;
  const keeper::IdPlan plan = keeper::plan_ids();
  out.range = plan.range;
  out.why = plan.why;
  auto pair = sys::socket_pair(SOCK_SEQPACKET);
  if (!pair) return out;
  const int child_end = pair->second.get();
  const int parent_end = pair->first.get();
  auto child = sys::start_in_namespaces(CLONE_NEWUSER | CLONE_NEWNET | CLONE_NEWNS, [=] {
    close(parent_end);
    char byte = 0;
    if (read(child_end, &byte, 1) != 1) return 1;
    return sys::become_namespace_root() ? 0 : 2;
  });
  pair->second.reset();
  if (!child) {
    out.why = keeper::no_user_namespaces(child.error().sys_errno).to_string();
    return out;
  }
  const auto mapped = keeper::apply_ids(plan, child->pid());
  if (mapped) (void)!write(parent_end, "x", 1);
  pair->first.reset();
  const auto status = child->wait();
  out.ok = mapped && status && status->code == 0;
  if (!mapped) {
    out.why = mapped.error().to_string();
  } else if (!out.ok) {
    out.why = keeper::no_user_namespaces(EPERM).to_string();
  }
  return out;
}

std::string find_tool(const std::string& name) {
  const char* path = getenv("PATH");
  for (const auto& directory : split(path != nullptr ? path : "", ':')) {
    const std::string file = directory + "/" + name;
    if (!directory.empty() && access(file.c_str(), X_OK) == 0) return file;
  }
  return "";
}

struct Diagnosis {
  std::string runsc_error;
  box::LimitTrials limits;
  std::string why_watched;  // the limit of disk; empty: the kernel keeps it
  box::HostProbe probe;
  UserNamespace userns;
  box::NetworkTrial network;
  std::string chosen;  // platform, empty when none works
  bool ok() const { return !chosen.empty(); }
};

std::string why_disk_is_watched(const box::HostDirs& dirs) {
  const UniqueFd data(open(dirs.data.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  const auto held = disk::can_hold_by_quota(data.get());
  return held ? "" : held.error().to_string();
}

Result<Diagnosis> diagnose() {
  Diagnosis out;
  const auto dirs = TRY(box::host_dirs());
  box::sweep(dirs);
  out.userns = check_user_namespace();
  out.limits = TRY(box::try_limits(dirs, -1));
  out.why_watched = why_disk_is_watched(dirs);
  out.network = box::try_network(dirs);
  auto probe = box::probe_runsc(dirs);
  if (!probe) {
    out.runsc_error = probe.error().to_string();
    return out;
  }
  out.probe = std::move(*probe);
  box::try_all_platforms(out.probe, dirs, [&](const gvisor::Runsc& runsc, const std::string& name) {
    if (isatty(2)) warn("trying a box on " + name + " ...");
    return box::try_platform(dirs, runsc, name);
  });
  if (out.probe.platforms[0].ok) out.chosen = out.probe.platforms[0].name;
  return out;
}

json::object network_to_json(const box::NetworkTrial& trial) {
  return {{"netns", trial.netns},
          {"nft", trial.nft},
          {"tproxy", trial.tproxy},
          {"mode", trial.enforced      ? "enforced"
                   : trial.cooperative ? "cooperative"
                                       : "none"},
          {"why", (trial.cooperative ? "cooperative, not a boundary: " : "") + trial.why},
          {"fix", trial.fix}};
}

json::object limits_to_json(const box::LimitTrials& trials, const std::string& why_watched) {
  const auto best = cgroup::best_of(trials);
  json::array tried;
  for (const auto& trial : trials) {
    tried.push_back(json::object{{"name", cgroup::driver_name(trial.driver)},
                                 {"memory", trial.controls.memory},
                                 {"cpu", trial.controls.cpu},
                                 {"pids", trial.controls.tasks},
                                 {"why", trial.why},
                                 {"fix", trial.fix}});
  }
  return {{"driver", cgroup::driver_name(best.driver)},
          {"memory", best.controls.memory},
          {"cpu", best.controls.cpu},
          {"pids", box::held_here(best).tasks},
          {"disk", json::object{{"held_by", why_watched.empty() ? "project_quota" : "watch"},
                                {"why", why_watched}}},
          {"why", best.why},
          {"fix", best.fix},
          {"tried", std::move(tried)}};
}

void print_row(bool ok, const std::string& what, const std::string& text) {
  printf("  %-4s %-12s %s\n", ok ? "ok" : "--", what.c_str(), text.c_str());
}

void print_limits(const box::LimitTrials& trials) {
  const auto best = cgroup::best_of(trials);
  if (best.controls.all()) {
    print_row(true, "limits",
              "memory, CPU and processes, by " + std::string(cgroup::driver_name(best.driver)));
    return;
  }
  print_row(false, "limits", "boxes have no limit of " + box::held_here(best).missing());
  for (const auto& trial : trials) {
    const std::string name(cgroup::driver_name(trial.driver));
    print_row(false, "", name + ": " + trial.why + ": " + trial.fix);
  }
}

json::value to_json_value(const Diagnosis& d) {
  json::array tried;
  for (const auto& trial : d.probe.platforms) {
    tried.push_back(
        json::object{{"name", trial.name}, {"ok", trial.ok}, {"ms", trial.ms}, {"why", trial.why}});
  }
  json::object tools;
  for (const auto& tool : kTools) {
    const std::string path = find_tool(tool.name);
    if (path.empty()) {
      tools[tool.name] = nullptr;
    } else {
      tools[tool.name] = path;
    }
  }
  json::object runsc{{"path", nullptr}, {"version", nullptr}, {"why", d.runsc_error}};
  if (d.runsc_error.empty()) {
    runsc["path"] = d.probe.runsc.path;
    runsc["version"] = d.probe.runsc.version;
    json::array capabilities;
    for (const auto& flag : gvisor::needed_flags()) capabilities.emplace_back(flag);
    runsc["capabilities"] = std::move(capabilities);
  }
  std::string box_why;
  for (const auto& trial : d.probe.platforms) {
    if (!d.ok() && !trial.why.empty()) box_why += (box_why.empty() ? "" : "; ") + trial.why;
  }
  return json::object{
      {"runsc", runsc},
      {"platform", json::object{{"chosen", d.ok() ? json::value(d.chosen) : json::value(nullptr)},
                                {"tried", tried}}},
      {"userns", json::object{{"ok", d.userns.ok},
                              {"id_map", d.userns.range ? "range" : "single"},
                              {"why", d.userns.why}}},
      {"network", network_to_json(d.network)},
      {"limits", limits_to_json(d.limits, d.why_watched)},
      // A box that started had its overlay; one that did not says why.
      {"overlay", json::object{{"ok", d.ok()}, {"why", box_why}}},
      {"tools", tools},
      {"ok", d.ok()}};
}

void print(const Diagnosis& d) {
  const auto row = print_row;
  puts("temenos " TEMENOS_VERSION);
  row(d.runsc_error.empty(), "runsc",
      d.runsc_error.empty() ? d.probe.runsc.version + "  " + d.probe.runsc.path : d.runsc_error);
  row(d.userns.ok, "user ids",
      !d.userns.ok     ? d.userns.why
      : d.userns.range ? "a box has a range of user ids"
                       : "a box has one user id only (" + d.userns.why + ")");
  for (const auto& trial : d.probe.platforms) {
    row(trial.ok, trial.name,
        trial.ok
            ? std::string("a box ran 50 processes") + (trial.name == d.chosen ? "  (chosen)" : "")
            : trial.why);
  }
  row(d.network.enforced, "network",
      d.network.enforced ? "a filtered network is enforced: namespaces, nft, TPROXY"
                         : std::string(d.network.cooperative
                                           ? "a filtered network is cooperative, not a boundary, "
                                             "and only when asked for: "
                                           : "no filtered network: ") +
                               d.network.why + ": " + d.network.fix);
  print_limits(d.limits);
  row(true, "disk",
      d.why_watched.empty() ? "--disk is a project quota: the kernel keeps it"
                            : "--disk is watched, not kept by the kernel (" + d.why_watched + ")");
  for (const auto& tool : kTools) {
    const std::string path = find_tool(tool.name);
    row(!path.empty(), tool.name,
        path.empty() ? std::string("missing (") + tool.why + "): " + tool.fix : path);
  }
  puts(d.ok() ? "Boxes run on this host."
              : "No box runs on this host: mend what is marked -- above.");
}

}  // namespace

void add_doctor(CLI::App& app, Action& chosen) {
  auto* command =
      app.add_subcommand("doctor", "Say what works on this host and how to mend the rest");
  auto as_json = std::make_shared<bool>(false);
  command->add_flag("--json", *as_json, "Print one JSON value");
  command->footer("Exit status: 0 when a box runs, 125 when none does.");
  command->callback([as_json, &chosen] {
    chosen = [as_json]() -> Result<int> {
      const Diagnosis diagnosis = TRY(diagnose());
      if (*as_json) {
        puts(serialize_json(to_json_value(diagnosis)).c_str());
      } else {
        print(diagnosis);
      }
      return diagnosis.ok() ? 0 : exit_code(Code::kUnsupported);
    };
  });
}

}  // namespace temenos::cli
