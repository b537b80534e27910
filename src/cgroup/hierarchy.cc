#include "cgroup/hierarchy.h"

#include <algorithm>
#include <vector>

#include "base/text.h"
#include "base/try.h"
#include "sys/file_sys.h"

namespace temenos::cgroup {
namespace {

constexpr std::size_t kMaxText = 4u << 20;
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

}  // namespace

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
