#include "cgroup/make.h"

#include <fcntl.h>
#include <pwd.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <ctime>
#include <set>
#include <thread>

#include "base/text.h"
#include "base/try.h"
#include "cgroup/hierarchy.h"
#include "sys/file_sys.h"
#include "sys/process_sys.h"

namespace temenos::cgroup {
namespace {

using Names = std::vector<std::string>;

constexpr char kPrefix[] = "temenos-";
constexpr std::int64_t kOldSeconds = 60;
constexpr std::size_t kMaxGroups = 100'000;
constexpr std::size_t kMaxName = 200;
constexpr std::size_t kMaxFile = 64 * 1024;
constexpr int kScopeTimeoutMs = 5'000;  // a bus that hangs must not hold up a start
constexpr std::chrono::milliseconds kRemoveStep{5};
// What to do. A user's manager needs the machine's bus to have processes moved, and does not look
// for it again after a restart of it.
constexpr const char* kNoScope[] = {
    "systemctl --user daemon-reexec, if the machine's bus was restarted; else see "
    "'systemctl --user status'",
    "see 'systemctl status'"};
constexpr const char* kV1Controllers[] = {"memory", "pids", "cpu", "cpuacct"};

std::string user_name() {
  const passwd* entry = getpwuid(geteuid());
  return entry != nullptr ? entry->pw_name : std::to_string(geteuid());
}

bool is_name(std::string_view name) {
  return name.starts_with(kPrefix) && name.size() <= kMaxName &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                  c == '_' || c == '.' || c == '-';
         });
}

bool systemd_runs() {
  struct stat st{};
  return lstat("/run/systemd/system", &st) == 0 && S_ISDIR(st.st_mode);  // sd_booted(3)
}

bool is_socket(const std::string& path) {
  struct stat st{};
  return stat(path.c_str(), &st) == 0 && S_ISSOCK(st.st_mode);
}

std::string bus_of(Driver driver) {
  if (driver == Driver::kSystemdSystem) return "/run/dbus/system_bus_socket";
  return "/run/user/" + std::to_string(geteuid()) + "/bus";
}

Result<void> write_file(const std::string& path, std::string_view text) {
  const UniqueFd fd(open(path.c_str(), O_WRONLY | O_CLOEXEC));
  if (!fd) return fail_errno(errno, "opening " + escape(path));
  return sys::write_all(fd.get(), text);
}

bool has_word(const std::string& text, const std::string& word) {
  std::string flat = text;
  std::replace(flat.begin(), flat.end(), '\n', ' ');
  const auto words = split(flat, ' ');
  return std::find(words.begin(), words.end(), word) != words.end();
}

// For the groups below it. Which of them it cannot give is seen in the group that is made.
void enable_controllers(const std::string& directory) {
  for (const char* controller : {"+memory", "+pids", "+cpu"}) {
    (void)write_file(directory + "/cgroup.subtree_control", controller);
  }
}

// ---- systemd

Result<void> check_systemd(Driver driver) {
  // Pids that are told to a systemd outside of this PID namespace would be other processes'.
  if (!systemd_runs() || !sys::read_path("/proc/1/comm", 64).value_or("").starts_with("systemd")) {
    return fail(Code::kUnsupported, "systemd does not run this machine",
                "run temenos as root, or in a cgroup v2 subtree of your own (docs/limits.md)");
  }
  if (!TRY(read_hierarchies()).only_unified()) {
    return fail(Code::kUnsupported, "this machine has cgroup v1, or v1 and v2 mixed",
                "boot with systemd.unified_cgroup_hierarchy=1 on the kernel's command line");
  }
  if (is_socket(bus_of(driver))) return {};
  if (driver == Driver::kSystemdSystem) {
    return fail(Code::kUnsupported, "there is no system bus (" + bus_of(driver) + ")",
                "sudo apt-get install dbus");
  }
  if (!is_socket("/run/user/" + std::to_string(geteuid()) + "/systemd/private")) {
    return fail(Code::kUnsupported, "no systemd of this user runs (no user@.service)",
                "sudo loginctl enable-linger " + user_name());
  }
  return fail(Code::kUnsupported, "the user's systemd has no bus (" + bus_of(driver) + ")",
              "sudo apt-get install dbus-user-session");
}

std::uint64_t with_reserve(std::uint64_t value, std::uint64_t reserve) {
  return value == 0 ? 0 : value + reserve;
}

Result<Group> make_in_scope(const Request& request) {
  TRY(check_systemd(request.driver));
  const bool system = request.driver == Driver::kSystemdSystem;
  const std::uint64_t cpu_us =
      std::uint64_t{request.limits.cpu_thousandths == 0
                        ? 0
                        : request.limits.cpu_thousandths + kReserveCpuThousandths} *
      1000;
  const std::vector<std::string> argv{
      request.scope_program,
      bus_of(request.driver),
      request.name + ".scope",
      std::to_string(getpid()),
      request.description,
      std::to_string(with_reserve(request.limits.memory_bytes, kReserveBytes)),
      std::to_string(with_reserve(request.limits.tasks, kReserveTasks)),
      std::to_string(cpu_us)};
  auto ran = sys::run_program(argv, kMaxFile, kScopeTimeoutMs);
  const std::string scope = read_hierarchies().value_or(Hierarchies()).unified.own;
  const bool moved = scope.ends_with("/" + request.name + ".scope");
  // What counts is where this process is: an answer may be lost.
  if (!moved && !ran) {
    return tl::make_unexpected(
        std::move(ran)
            .error()
            .with_context("systemd does not answer")
            .with_hint(std::string(kNoScope[system]) + "; 'temenos doctor' asks it again"));
  }
  if (!moved && ran->status.code != 0) {
    const std::string text = ran->output.substr(0, ran->output.find('\n'));
    return fail(Code::kUnsupported, "systemd makes no scope: " + escape(text), kNoScope[system]);
  }
  if (!moved) {
    return fail(Code::kUnsupported, "systemd has not moved this process into its scope",
                "try again");
  }
  // Where a group has controllers to give, it may have no process.
  const auto split_scope = [&scope]() -> Result<Group> {
    const std::string supervise = scope + "/supervise";
    if (mkdir(supervise.c_str(), 0755) != 0) return fail_errno(errno, "making " + supervise);
    TRY(write_file(supervise + "/cgroup.procs", "0"));
    enable_controllers(scope);
    return Group::make_unified(scope + "/sandbox");
  };
  auto group = split_scope();
  if (group) return group;
  // With the sandbox beside it in one limited group, this process could be killed for the sandbox.
  Error error = std::move(group).error();
  error.code = Code::kInternal;
  return tl::make_unexpected(std::move(error).with_hint("start it again"));
}

// ---- a subtree of the unified hierarchy

// systemd marks what it has given away (systemd.resource-control(5), Delegate=); nobody else may
// make groups where it rules.
bool is_delegated(const std::string& directory) {
  char value[2] = {};
  const std::string name = directory.substr(directory.rfind('/') + 1);
  return getxattr(directory.c_str(), "user.delegate", value, sizeof value) == 1 &&
         value[0] == '1' && !name.starts_with("user@");  // that one is another systemd's
}

// A group with processes of its own has no controllers to give (cgroup-v2.rst, "No Internal Process
// Constraint"). Asked for pids or cpu, it would give them all the same, to threads: it becomes the
// root of a threaded subtree, and no process can be put below it any more. The root of all may
// have both, and has no type.
bool can_give(const std::string& directory) {
  const auto type = sys::read_path(directory + "/cgroup.type", kMaxFile);
  if (!type) return true;
  return *type == "domain\n" &&
         sys::read_path(directory + "/cgroup.procs", kMaxFile).value_or("?").empty();
}

Result<std::string> find_subtree() {
  const Hierarchies now = TRY(read_hierarchies());
  const Hierarchy& unified = now.unified;
  const auto nothing = [](const std::string& what) {
    return fail(Code::kUnsupported, what,
                "run temenos as root, or in a cgroup v2 subtree of your own (docs/limits.md)");
  };
  if (unified.mount.empty() || unified.own.empty()) return nothing("no cgroup v2 is mounted");
  const bool guarded = systemd_runs();
  for (std::string at = unified.own; at.size() >= unified.mount.size();
       at = at.substr(0, at.rfind('/'))) {
    // Whoever joins comes from our own group: the kernel asks for this file of what both lie in.
    if (access(at.c_str(), W_OK | X_OK) != 0 || access((at + "/cgroup.procs").c_str(), W_OK) != 0)
      continue;
    if ((guarded && !is_delegated(at)) || !can_give(at)) continue;
    const std::string controllers =
        sys::read_path(at + "/cgroup.controllers", kMaxFile).value_or("");
    if (!has_word(controllers, "memory") && !has_word(controllers, "pids")) continue;
    enable_controllers(at);
    const std::string given = sys::read_path(at + "/cgroup.subtree_control", kMaxFile).value_or("");
    if (has_word(given, "memory") || has_word(given, "pids")) return at;
  }
  return nothing("no cgroup v2 subtree with controllers belongs to this user");
}

Result<Group> make_in_subtree(const Request& request) {
  return Group::make_unified(TRY(find_subtree()) + "/" + request.name);
}

// ---- v1

Result<Group> make_v1(const Request& request) {
  if (geteuid() != 0) {
    return fail(Code::kUnsupported, "groups of cgroup v1 are for root only", "run temenos as root");
  }
  const Hierarchies now = TRY(read_hierarchies());
  std::vector<std::pair<std::string, std::string>> parents;
  bool limits = false;
  for (const char* controller : kV1Controllers) {
    const auto found = now.v1.find(controller);
    if (found == now.v1.end() || found->second.own.empty()) continue;
    parents.emplace_back(controller, found->second.own);
    limits = limits || std::string_view(controller) == "memory" ||
             std::string_view(controller) == "pids";
  }
  if (!limits) {
    return fail(Code::kUnsupported, "no cgroup v1 hierarchy of memory or pids is mounted",
                "mount cgroup v2: it has what is needed");
  }
  return Group::make_v1(parents, request.name);
}

Result<Group> make_unlimited(const Request& request) {
  switch (request.driver) {
    case Driver::kNone:
      break;
    case Driver::kSystemdUser:
    case Driver::kSystemdSystem:
      return make_in_scope(request);
    case Driver::kCgroup2:
      return make_in_subtree(request);
    case Driver::kCgroup1:
      return make_v1(request);
  }
  return fail(Code::kUnsupported, "this host has no way to make groups", "see 'temenos doctor'");
}

}  // namespace

Result<MadeGroup> make_group(const Request& request) {
  if (!is_name(request.name)) return fail(Code::kInternal, "a bad name of a group");
  MadeGroup made;
  made.group = TRY(make_unlimited(request));
  made.refused = made.group.limit(request.limits);
  return made;
}

std::vector<std::string> group_parents() {
  const Hierarchies now = read_hierarchies().value_or(Hierarchies());
  std::set<std::string> parents;
  if (const auto subtree = find_subtree()) parents.insert(*subtree);
  for (const auto& [controller, hierarchy] : now.v1) {
    if (geteuid() == 0 && !hierarchy.own.empty()) parents.insert(hierarchy.own);
  }
  return {parents.begin(), parents.end()};
}

void sweep_groups() {
  for (const auto& parent : group_parents()) {
    const UniqueFd fd(open(parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!fd) continue;
    for (const auto& name : sys::list_names(fd.get(), kMaxGroups).value_or(Names{})) {
      struct stat st{};
      if (!is_name(name) || fstatat(fd.get(), name.c_str(), &st, AT_SYMLINK_NOFOLLOW) != 0 ||
          time(nullptr) - st.st_mtime < kOldSeconds) {
        continue;
      }
      (void)unlinkat(fd.get(), name.c_str(), AT_REMOVEDIR);
    }
  }
}

bool remove_groups(const std::vector<std::string>& directories, int patience_ms) {
  const auto limit = std::chrono::steady_clock::now() + std::chrono::milliseconds(patience_ms);
  bool all = true;
  for (const auto& path : directories) {
    const auto slash = path.rfind('/');
    if (!path.starts_with("/") || !is_name(path.substr(slash + 1))) continue;
    while (rmdir(path.c_str()) != 0 && errno != ENOENT) {
      if (errno != EBUSY || std::chrono::steady_clock::now() >= limit) {
        all = false;
        break;
      }
      // The older hierarchies have no event for it.
      std::this_thread::sleep_for(kRemoveStep);
    }
  }
  return all;
}

}  // namespace temenos::cgroup
