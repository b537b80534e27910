#include "keeper/oom_watch.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>

#include "base/text.h"
#include "sys/file_sys.h"

namespace temenos::keeper {
namespace {

constexpr std::size_t kMaxCounters = 256 * 1024;  // /proc/vmstat has about 5 KiB

std::optional<std::uint64_t> count(int fd) {
  if (fd < 0 || lseek(fd, 0, SEEK_SET) != 0) return std::nullopt;
  return oom_kills(sys::read_all(fd, kMaxCounters).value_or(""));
}

}  // namespace

std::optional<std::uint64_t> oom_kills(std::string_view text) {
  constexpr std::string_view kKey = "oom_kill ";
  for (const auto& line : split(text, '\n')) {
    if (!line.starts_with(kKey)) continue;
    std::uint64_t number = 0;
    const char* end = line.data() + line.size();
    const auto read = std::from_chars(line.data() + kKey.size(), end, number);
    if (read.ec == std::errc() && read.ptr == end) return number;
  }
  return std::nullopt;
}

std::string memory_group_v1(std::string_view proc_self_cgroup) {
  for (const auto& line : split(proc_self_cgroup, '\n')) {
    const auto parts = split(line, ':');  // number, controllers, path (which may hold ':')
    if (parts.size() < 3) continue;
    const auto controllers = split(parts[1], ',');
    if (std::find(controllers.begin(), controllers.end(), "memory") == controllers.end()) continue;
    return "/sys/fs/cgroup/memory" + line.substr(parts[0].size() + parts[1].size() + 2) +
           "/memory.oom_control";
  }
  return "";
}

std::string memory_group_v2(std::string_view proc_self_cgroup) {
  for (const auto& line : split(proc_self_cgroup, '\n')) {
    if (line.starts_with("0::")) return "/sys/fs/cgroup" + line.substr(3) + "/memory.events";
  }
  return "";
}

OomWatch OomWatch::begin() {
  OomWatch watch;
  const std::string groups = sys::read_path("/proc/self/cgroup", kMaxCounters).value_or("");
  for (const auto& path :
       {memory_group_v1(groups), memory_group_v2(groups), std::string("/proc/vmstat")}) {
    if (path.empty()) continue;
    // Held open: the group that counts is the one of now.
    watch.file_ = UniqueFd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
    const auto before = count(watch.file_.get());
    if (!before) continue;
    watch.name_ = path;
    watch.before_ = *before;
    return watch;
  }
  watch.file_.reset();
  return watch;
}

std::string OomWatch::evidence() const {
  const auto now = count(file_.get());
  if (!now || *now <= before_) return "";
  return "oom_kill in " + name_ + " rose by " + std::to_string(*now - before_);
}

}  // namespace temenos::keeper
