#include "cgroup/group.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <thread>

#include "base/text.h"
#include "base/try.h"
#include "sys/file_sys.h"

namespace temenos::cgroup {
namespace {

constexpr std::size_t kMaxFile = 64 * 1024;
constexpr std::uint64_t kPeriodUs = 100'000;  // of CPU quotas; the kernel's own default
constexpr std::uint64_t kMinQuotaUs = 1'000;
constexpr std::chrono::milliseconds kFreezeStep{1};

Result<std::string> read_file(int directory, const char* name) {
  const UniqueFd fd(openat(directory, name, O_RDONLY | O_CLOEXEC));
  if (!fd) return fail_errno(errno, name);
  return sys::read_all(fd.get(), kMaxFile);
}

std::optional<std::uint64_t> number(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end == text.data()) return std::nullopt;
  return value;
}

std::optional<std::uint64_t> read_number(const UniqueFd& directory, const char* name) {
  if (!directory) return std::nullopt;
  return number(read_file(directory.get(), name).value_or(""));
}

// The number after `key` in lines of "key number".
std::optional<std::uint64_t> field(std::string_view text, std::string_view key) {
  for (const auto& line : split(text, '\n')) {
    if (line.size() > key.size() && line.starts_with(key) && line[key.size()] == ' ') {
      return number(std::string_view(line).substr(key.size() + 1));
    }
  }
  return std::nullopt;
}

// "some avg10=1.23 ...": 123.
std::optional<std::uint32_t> pressure(const UniqueFd& directory, const char* name) {
  constexpr std::string_view kStart = "some avg10=";
  if (!directory) return std::nullopt;
  const std::string text = read_file(directory.get(), name).value_or("");
  if (!text.starts_with(kStart)) return std::nullopt;
  const std::string_view rest = std::string_view(text).substr(kStart.size());
  const auto dot = rest.find('.');
  const auto whole = number(rest);
  if (!whole || dot == rest.npos || dot + 3 > rest.size()) return std::nullopt;
  return static_cast<std::uint32_t>(*whole * 100 + number(rest.substr(dot + 1, 2)).value_or(0));
}

Result<UniqueFd> make_directory(const std::string& path) {
  if (mkdir(path.c_str(), 0755) != 0) {
    return fail_errno(errno, "making the control group " + escape(path));
  }
  UniqueFd fd(open(path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!fd) return fail_errno(errno, "opening the control group " + escape(path));
  return fd;
}

bool has(int directory, const char* file) { return faccessat(directory, file, F_OK, 0) == 0; }

UniqueFd again(int fd) { return UniqueFd(fcntl(fd, F_DUPFD_CLOEXEC, 3)); }

}  // namespace

Result<Group> Group::make_unified(const std::string& directory) {
  Group group;
  group.kind_ = Kind::kUnified;
  const UniqueFd fd = TRY(make_directory(directory));
  group.directories_.push_back(directory);
  const auto opened = group.open_unified(fd.get());
  if (opened) return group;
  (void)group.remove();
  return tl::make_unexpected(opened.error());
}

Result<void> Group::open_unified(int directory) {
  join_.emplace_back(openat(directory, "cgroup.procs", O_WRONLY | O_CLOEXEC));
  if (!join_.back()) return fail_errno(errno, "opening cgroup.procs");
  if (has(directory, "memory.max")) memory_ = again(directory);
  if (has(directory, "pids.max")) tasks_ = again(directory);
  if (has(directory, "cpu.max")) cpu_ = again(directory);
  cpu_account_ = again(directory);  // cpu.stat is there without its controller
  if (has(directory, "cgroup.freeze")) freezer_ = again(directory);
  oom_counter_.reset(openat(directory, "memory.events", O_RDONLY | O_CLOEXEC));
  controls_ = {static_cast<bool>(memory_), static_cast<bool>(cpu_), static_cast<bool>(tasks_)};
  if (!memory_) return {};
  // All or nothing: what is left of a box after the loss of one process is of no use to anybody.
  return set(memory_, "memory.oom.group", 1);
}

Result<Group> Group::make_v1(const std::vector<std::pair<std::string, std::string>>& parents,
                             const std::string& name) {
  Group group;
  group.kind_ = Kind::kV1;
  auto make = [&]() -> Result<void> {
    for (const auto& [controller, parent] : parents) {
      const std::string path = parent + "/" + name;
      const auto seen = std::find(group.directories_.begin(), group.directories_.end(), path);
      // One hierarchy may have several controllers.
      const bool fresh = seen == group.directories_.end();
      const UniqueFd fd = fresh ? TRY(make_directory(path))
                                : UniqueFd(open(path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
      if (fresh) {
        group.directories_.push_back(path);
        group.join_.emplace_back(openat(fd.get(), "cgroup.procs", O_WRONLY | O_CLOEXEC));
        if (!group.join_.back()) return fail_errno(errno, "opening cgroup.procs");
      }
      TRY(group.open_v1(controller, fd.get()));
    }
    return {};
  };
  const auto made = make();
  if (made) return group;
  (void)group.remove();
  return tl::make_unexpected(made.error());
}

Result<void> Group::open_v1(const std::string& controller, int directory) {
  if (controller == "pids") tasks_ = again(directory);
  if (controller == "cpu" && has(directory, "cpu.cfs_quota_us")) cpu_ = again(directory);
  if (controller == "cpuacct") cpu_account_ = again(directory);
  controls_.tasks = static_cast<bool>(tasks_);
  controls_.cpu = static_cast<bool>(cpu_);
  if (controller != "memory") return {};
  memory_ = again(directory);
  controls_.memory = true;
  oom_counter_.reset(openat(directory, "memory.oom_control", O_RDONLY | O_CLOEXEC));
  oom_event_.reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  const UniqueFd control(openat(directory, "cgroup.event_control", O_WRONLY | O_CLOEXEC));
  if (!oom_counter_ || !oom_event_ || !control) return fail_errno(errno, "memory.oom_control");
  // memcg_test.txt, "cgroup.event_control": who asks is told of each time memory runs out.
  return sys::write_all(
      control.get(), std::to_string(oom_event_.get()) + " " + std::to_string(oom_counter_.get()));
}

Result<void> Group::set(const UniqueFd& directory, const char* file, std::uint64_t value) const {
  const UniqueFd fd(openat(directory.get(), file, O_WRONLY | O_CLOEXEC));
  if (!fd) return fail_errno(errno, std::string("opening ") + file);
  auto written = sys::write_all(fd.get(), std::to_string(value));
  if (!written) return tl::make_unexpected(std::move(written).error().with_context(file));
  return {};
}

Result<void> Group::expect(const UniqueFd& directory, const char* file, std::uint64_t value) const {
  TRY(set(directory, file, value));
  // Memory is rounded down to pages.
  const auto now = read_number(directory, file);
  if (now && *now <= value && value - *now < 65536) return {};
  return fail(Code::kUnsupported, std::string("the kernel did not take ") + file);
}

Result<void> Group::limit_memory(std::uint64_t bytes) const {
  if (kind_ == Kind::kUnified) {
    TRY(expect(memory_, "memory.max", bytes));
    // Not there when the kernel counts no swap.
    if (!has(memory_.get(), "memory.swap.max")) return {};
    return set(memory_, "memory.swap.max", 0);
  }
  TRY(expect(memory_, "memory.limit_in_bytes", bytes));
  if (!has(memory_.get(), "memory.memsw.limit_in_bytes")) {
    return set(memory_, "memory.swappiness", 0);
  }
  return expect(memory_, "memory.memsw.limit_in_bytes", bytes);
}

Result<void> Group::limit_cpu(std::uint32_t thousandths) const {
  const std::uint64_t quota = std::max(kMinQuotaUs, kPeriodUs * thousandths / 1000);
  if (kind_ == Kind::kV1) {
    TRY(expect(cpu_, "cpu.cfs_period_us", kPeriodUs));
    return expect(cpu_, "cpu.cfs_quota_us", quota);
  }
  const UniqueFd fd(openat(cpu_.get(), "cpu.max", O_WRONLY | O_CLOEXEC));
  if (!fd) return fail_errno(errno, "opening cpu.max");
  TRY(sys::write_all(fd.get(), std::to_string(quota) + " " + std::to_string(kPeriodUs)));
  if (read_number(cpu_, "cpu.max") == quota) return {};
  return fail(Code::kUnsupported, "the kernel did not take cpu.max");
}

std::string Group::limit(const Limits& limits) {
  std::string trouble;
  const auto keep = [&trouble](bool& held, const Result<void>& done) {
    if (done) return;
    held = false;
    trouble += (trouble.empty() ? "" : "; ") + done.error().to_string();
  };
  if (limits.memory_bytes > 0 && controls_.memory) {
    keep(controls_.memory, limit_memory(limits.memory_bytes));
  }
  if (limits.tasks > 0 && limits.tasks < kMostTasks && controls_.tasks) {
    keep(controls_.tasks, expect(tasks_, "pids.max", limits.tasks));
  }
  if (limits.cpu_thousandths > 0 && controls_.cpu) {
    keep(controls_.cpu, limit_cpu(limits.cpu_thousandths));
  }
  return trouble;
}

std::vector<int> Group::join_fds() const {
  std::vector<int> out;
  for (const auto& fd : join_) out.push_back(fd.get());
  return out;
}

std::uint64_t Group::oom_kills() const {
  if (!oom_counter_ || lseek(oom_counter_.get(), 0, SEEK_SET) != 0) return 0;
  return field(sys::read_all(oom_counter_.get(), kMaxFile).value_or(""), "oom_kill").value_or(0);
}

const char* Group::oom_counter() const {
  return kind_ == Kind::kUnified ? "memory.events" : "memory.oom_control";
}

std::uint64_t Group::refused_tasks() const {
  if (!tasks_) return 0;
  return field(read_file(tasks_.get(), "pids.events").value_or(""), "max").value_or(0);
}

std::uint64_t Group::throttled() const {
  if (!cpu_) return 0;
  return field(read_file(cpu_.get(), "cpu.stat").value_or(""), "nr_throttled").value_or(0);
}

int Group::memory_event_fd() const {
  return kind_ == Kind::kV1 ? oom_event_.get() : oom_counter_.get();
}

short Group::memory_events() const { return kind_ == Kind::kV1 ? POLLIN : POLLPRI; }

void Group::clear_memory_event() {
  std::uint64_t count = 0;
  if (kind_ == Kind::kV1) (void)!read(oom_event_.get(), &count, sizeof count);
  if (kind_ == Kind::kUnified) (void)oom_kills();  // kernfs: reading is what clears it
}

Usage Group::usage() const {
  Usage out;
  const bool v1 = kind_ == Kind::kV1;
  out.memory_bytes = read_number(memory_, v1 ? "memory.usage_in_bytes" : "memory.current");
  out.memory_peak_bytes = read_number(memory_, v1 ? "memory.max_usage_in_bytes" : "memory.peak");
  out.tasks = read_number(tasks_, "pids.current");
  out.tasks_peak = read_number(tasks_, "pids.peak");
  if (v1) {
    const auto nanoseconds = read_number(cpu_account_, "cpuacct.usage");
    if (nanoseconds) out.cpu_us = *nanoseconds / 1000;
    return out;
  }
  if (cpu_account_) {
    out.cpu_us = field(read_file(cpu_account_.get(), "cpu.stat").value_or(""), "usage_usec");
  }
  out.memory_pressure = pressure(cpu_account_, "memory.pressure");
  out.cpu_pressure = pressure(cpu_account_, "cpu.pressure");
  out.io_pressure = pressure(cpu_account_, "io.pressure");
  return out;
}

Result<void> Group::freeze(bool still, int timeout_ms) {
  if (!freezer_) return fail(Code::kUnsupported, "this group cannot be frozen");
  const UniqueFd fd(openat(freezer_.get(), "cgroup.freeze", O_WRONLY | O_CLOEXEC));
  if (!fd) return fail_errno(errno, "opening the freezer");
  TRY(sys::write_all(fd.get(), still ? "1" : "0"));
  if (!still) return {};
  const auto limit = std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms);
  for (;;) {
    if (field(read_file(freezer_.get(), "cgroup.events").value_or(""), "frozen") == 1) return {};
    if (std::chrono::steady_clock::now() >= limit) {
      return fail(Code::kTimedOut, "the box does not stand still");
    }
    // Its event would have to be waited for with a limit, too, and mostly it is over at once.
    std::this_thread::sleep_for(kFreezeStep);
  }
}

std::vector<std::string> Group::remove() {
  std::vector<std::string> left;
  for (const auto& path : directories_) {
    if (rmdir(path.c_str()) != 0 && errno != ENOENT) left.push_back(path);
  }
  directories_.clear();
  return left;
}

}  // namespace temenos::cgroup
