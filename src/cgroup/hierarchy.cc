#include "cgroup/hierarchy.h"

#include <algorithm>
#include <charconv>
#include <vector>

#include "base/text.h"
#include "base/try.h"
#include "sys/file_sys.h"

namespace temenos::cgroup {
namespace {

constexpr std::size_t kMaxText = 4u << 20;
constexpr std::size_t kMaxLimit = 64;  // a number or "max"
constexpr const char* kControllers[] = {"memory", "pids", "cpu", "cpuacct", "freezer"};

std::string unescape(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool octal = text[i] == '\\' && i + 3 < text.size() &&
                       std::all_of(text.begin() + static_cast<std::ptrdiff_t>(i) + 1,
                                   text.begin() + static_cast<std::ptrdiff_t>(i) + 4,
                                   [](char c) { return c >= '0' && c <= '7'; });
    if (!octal) {
      out += text[i];
      continue;
    }
    out +=
        static_cast<char>((text[i + 1] - '0') * 64 + (text[i + 2] - '0') * 8 + text[i + 3] - '0');
    i += 3;
  }
  return out;
}

// One line of /proc/self/cgroup: number, controllers, path (which may hold ':').
struct Membership {
  std::vector<std::string> controllers;  // empty: the unified hierarchy
  std::string path;
};

std::vector<Membership> memberships(std::string_view self_cgroup) {
  std::vector<Membership> out;
  for (const auto& line : split(self_cgroup, '\n')) {
    const auto first = line.find(':');
    const auto second = line.find(':', first == line.npos ? first : first + 1);
    if (second == line.npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    Membership one;
    if (!controllers.empty()) one.controllers = split(controllers, ',');
    one.path = line.substr(second + 1);
    out.push_back(std::move(one));
  }
  return out;
}

// `root`: what of the hierarchy the mount shows. Empty when the group lies outside of it.
std::string directory_of(const std::string& mount, const std::string& root,
                         const std::string& path) {
  if (path.starts_with("/..")) return "";
  if (root == "/") return path == "/" ? mount : mount + path;
  if (path == root) return mount;
  return path.starts_with(root + "/") ? mount + path.substr(root.size()) : "";
}

// "max", a missing file and one that cannot be read are no limit.
std::optional<std::uint64_t> least(std::optional<std::uint64_t> one, std::string_view text) {
  std::uint64_t value = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), value);
  if (read.ec != std::errc()) return one;
  return std::min(one.value_or(value), value);
}

// Of `file` in the own group and in each one above it, up to the mount.
std::optional<std::uint64_t> least_of(std::optional<std::uint64_t> value, const Hierarchy& in,
                                      const std::string& file) {
  if (in.own.empty()) return value;
  for (std::string at = in.own; at.size() >= in.mount.size(); at = at.substr(0, at.rfind('/'))) {
    value = least(value, sys::read_path(at + "/" + file, kMaxLimit).value_or(""));
  }
  return value;
}

}  // namespace

Ceiling read_ceiling(const Hierarchies& now) {
  Ceiling ceiling;
  ceiling.memory_bytes = least_of(ceiling.memory_bytes, now.unified, "memory.max");
  ceiling.tasks = least_of(ceiling.tasks, now.unified, "pids.max");
  if (const auto pids = now.v1.find("pids"); pids != now.v1.end()) {
    ceiling.tasks = least_of(ceiling.tasks, pids->second, "pids.max");
  }
  const auto memory = now.v1.find("memory");
  if (memory == now.v1.end() || memory->second.own.empty()) return ceiling;
  // The kernel has done it here, also for groups out of sight (memory.txt, "5.2 stat file").
  constexpr std::string_view kKey = "hierarchical_memory_limit ";
  const std::string stat =
      sys::read_path(memory->second.own + "/memory.stat", kMaxText).value_or("");
  for (const auto& line : split(stat, '\n')) {
    if (!line.starts_with(kKey)) continue;
    ceiling.memory_bytes = least(ceiling.memory_bytes, std::string_view(line).substr(kKey.size()));
  }
  return ceiling;
}

bool Hierarchies::only_unified() const {
  if (unified.mount.empty()) return false;
  return std::none_of(std::begin(kControllers), std::end(kControllers),
                      [this](const char* name) { return v1.contains(name); });
}

Hierarchies parse_hierarchies(std::string_view mountinfo, std::string_view self_cgroup) {
  Hierarchies out;
  const auto own = memberships(self_cgroup);
  for (const auto& line : split(mountinfo, '\n')) {
    const auto dash = line.find(" - ");
    if (dash == line.npos) continue;
    const auto left = split(line.substr(0, dash), ' ');
    const auto right = split(line.substr(dash + 3), ' ');  // type, source, options of the kind
    if (left.size() < 6 || right.size() < 3) continue;
    const std::string root = unescape(left[3]);
    const std::string mount = unescape(left[4]);
    if (right[0] == "cgroup2" && out.unified.mount.empty()) {
      out.unified.mount = mount;
      for (const auto& one : own) {
        if (one.controllers.empty()) out.unified.own = directory_of(mount, root, one.path);
      }
    }
    if (right[0] != "cgroup") continue;
    const auto options = split(right[2], ',');
    for (const auto& one : own) {
      for (const auto& controller : one.controllers) {
        if (std::find(options.begin(), options.end(), controller) == options.end()) continue;
        out.v1.try_emplace(controller, Hierarchy{mount, directory_of(mount, root, one.path)});
      }
    }
  }
  return out;
}

Result<Hierarchies> read_hierarchies() {
  return parse_hierarchies(TRY(sys::read_path("/proc/self/mountinfo", kMaxText)),
                           TRY(sys::read_path("/proc/self/cgroup", kMaxText)));
}

}  // namespace temenos::cgroup
