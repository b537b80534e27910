#include "keeper/box_limits.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <thread>

#include "base/text.h"
#include "base/try.h"
#include "sys/file_sys.h"

namespace temenos::keeper {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kMaxGroups = 64 * 1024;
constexpr int kDyingMs = 10'000;  // of a sandbox whose keeper was killed
// The older hierarchy says that memory has run out before it kills, which takes moments.
constexpr auto kMemoryLook = 10ms;
constexpr auto kMemoryLooks = 2s;
// Of a limit of CPU time: no sooner than it can be used up, and no more often than this.
constexpr auto kCpuLook = 50ms;
constexpr std::uint64_t kLongestLookUs = 3'600'000'000;
// A refusal of the group is counted and so can be named; that of RLIMIT_NPROC cannot.
constexpr std::int64_t kTasksOfNobody = 16;

std::string megabytes(std::uint64_t bytes) { return std::to_string(bytes >> 20) + " MiB"; }

BoxLimits::End out_of_memory(const std::string& evidence) {
  return {EndReason::kOutOfMemory, " (" + evidence + ")", evidence};
}

int until(std::chrono::steady_clock::time_point moment) {
  const auto left =
      std::chrono::ceil<std::chrono::milliseconds>(moment - std::chrono::steady_clock::now());
  return static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, 3'600'000));
}

}  // namespace

void remove_noted_groups(int data_dir) {
  const auto fd = sys::open_beneath(data_dir, kGroupsName, O_RDONLY);
  if (!fd) return;
  const auto groups = split(sys::read_all(fd->get(), kMaxGroups).value_or(""), '\n');
  if (cgroup::remove_groups(groups, kDyingMs)) unlinkat(data_dir, kGroupsName, 0);
}

// What an earlier life has left and what still lives in it stays noted.
Result<void> BoxLimits::note_groups() const {
  const UniqueFd fd =
      TRY(sys::open_beneath(data_dir_, kGroupsName, O_WRONLY | O_CREAT | O_APPEND, 0600));
  std::string lines;
  for (const auto& path : group_.directories()) lines += path + "\n";
  return sys::write_all(fd.get(), lines);
}

Result<void> BoxLimits::make(const LaunchSpec& spec) {
  const LimitSpec& limits = spec.limits;
  cgroup::Request request;
  request.driver = cgroup::driver_named(limits.driver);
  request.name = limits.group;
  request.description = "temenos box " + limits.group;
  request.scope_program = spec.scope;
  request.limits.memory_bytes = static_cast<std::uint64_t>(limits.memory_mb) << 20;
  request.limits.cpu_thousandths = static_cast<std::uint32_t>(limits.cpu_thousandths);
  request.limits.tasks = static_cast<std::uint64_t>(limits.host_tasks);
  auto made = TRY(cgroup::make_group(request));
  group_ = std::move(made.group);
  refused_ = std::move(made.refused);
  return note_groups();
}

// Of what is asked for. The tasks of a sandbox are limited without a group, too.
std::string BoxLimits::missing(const LimitSpec& limits) const {
  const auto& held = group_.controls();
  const bool cpu = limits.cpu_thousandths == 0 || held.cpu;
  const bool cpu_time = limits.cpu_seconds == 0 || group_.usage().cpu_us.has_value();
  return cgroup::Controls{limits.memory_mb == 0 || held.memory, cpu && cpu_time,
                          limits.host_tasks > 0 || held.tasks}
      .missing();
}

Result<void> BoxLimits::begin(const LaunchSpec& spec, int data_dir) {
  data_dir_ = data_dir;
  remove_noted_groups(data_dir);
  oom_ = OomWatch::begin();
  trouble_ = spec.limits.note;
  TRY(disk_.begin(spec, data_dir));
  const auto driver = cgroup::driver_named(spec.limits.driver);
  if (driver != cgroup::Driver::kNone) {
    cgroup::sweep_groups();
    const auto made = make(spec);
    if (made) {
      driver_ = driver;
    } else {
      end();
      if (made.error().code == Code::kInternal) return made;
      refused_ = made.error().to_string();
    }
  }
  // Whatever had been seen of this host before: what counts is the group that is there.
  const std::string lacks = missing(spec.limits);
  if (!lacks.empty() && spec.limits.required) {
    return fail(Code::kUnsupported,
                "limits are required, and there is none of " + lacks + " for this box" +
                    (refused_.empty() ? "" : " (" + refused_ + ")"),
                "see 'temenos doctor'");
  }
  if (!lacks.empty() && (trouble_.empty() || !refused_.empty())) {
    trouble_ = "no limit of " + lacks + " holds for this box" +
               (refused_.empty() ? "" : " (" + refused_ + ")") + ": see 'temenos doctor'";
  }
  if (lacks.empty() && group_.controls().all()) trouble_.clear();
  if (group_.controls().cpu) {
    cpu_thousandths_ = static_cast<std::uint64_t>(spec.limits.cpu_thousandths);
  }
  if (!group_.usage().cpu_us) return {};
  cpu_limit_us_ = static_cast<std::uint64_t>(spec.limits.cpu_seconds) * 1'000'000;
  if (cpu_limit_us_ > 0) look_at_cpu_again();
  return {};
}

void BoxLimits::look_at_cpu_again() {
  const std::uint64_t used = group_.usage().cpu_us.value_or(0);
  const std::uint64_t left = cpu_limit_us_ > used ? cpu_limit_us_ - used : 0;
  const std::uint64_t most =
      cpu_thousandths_ > 0
          ? cpu_thousandths_
          : std::uint64_t{1000} * std::max(1u, std::thread::hardware_concurrency());
  const auto soonest =
      std::chrono::microseconds(std::min(left / most, kLongestLookUs / 1000) * 1000);
  cpu_look_ = Clock::now() + std::max<Clock::duration>(kCpuLook, soonest);
}

std::string BoxLimits::notes() const {
  const std::string& watched = disk_.why_watched();
  return trouble_ + (trouble_.empty() || watched.empty() ? "" : "; ") + watched;
}

pollfd BoxLimits::memory_poll() const {
  return {group_ ? group_.memory_event_fd() : -1, group_.memory_events(), 0};
}

int BoxLimits::timeout_ms() const {
  int wait = disk_.timeout_ms();
  for (const auto& look : {cpu_look_, memory_look_}) {
    if (look && (wait < 0 || until(*look) < wait)) wait = until(*look);
  }
  return wait;
}

std::optional<BoxLimits::End> BoxLimits::check(short memory_revents, short disk_revents) {
  if (auto over = disk_.check(disk_revents, group_)) return over;
  const auto now = Clock::now();
  if (memory_revents != 0) {
    group_.clear_memory_event();
    memory_looks_end_ = now + kMemoryLooks;
    memory_look_ = now;
  }
  // At each occasion: of a kill for want of the machine's memory the older hierarchy says nothing.
  if (group_.oom_kills() > 0) return cause(false);
  if (memory_look_ && now >= *memory_look_) {
    memory_look_ = now + kMemoryLook;
    if (now >= memory_looks_end_) memory_look_.reset();
  }
  if (!cpu_look_ || now < *cpu_look_) return std::nullopt;
  const std::uint64_t used = group_.usage().cpu_us.value_or(0);
  if (used >= cpu_limit_us_) {
    return End{EndReason::kCpuOver, ": " + std::to_string(cpu_limit_us_ / 1'000'000) + " s", ""};
  }
  look_at_cpu_again();
  return std::nullopt;
}

std::optional<BoxLimits::End> BoxLimits::cause(bool crashed) const {
  if (group_.controls().memory) {
    const auto kills = group_.oom_kills();
    if (kills > 0) {
      const auto peak = group_.usage().memory_peak_bytes;
      return out_of_memory((peak ? "it had " + megabytes(*peak) + "; " : "") + "oom_kill in " +
                           group_.oom_counter() + " of its group rose by " + std::to_string(kills));
    }
  } else if (const std::string evidence = oom_.evidence(); !evidence.empty()) {
    return out_of_memory(evidence);
  }
  // A box outlives most refusals: only a sentry that could not go on is a sign of one.
  if (!crashed || group_.refused_tasks() == 0) return std::nullopt;
  return End{EndReason::kProcessLimit, "", ""};
}

Numbers BoxLimits::numbers() const {
  Numbers out;
  out.driver = static_cast<std::uint32_t>(driver_);
  disk_.tell(out);
  if (!group_) return out;
  out.oom_kills = group_.oom_kills();
  const auto usage = group_.usage();
  const auto put = [](std::uint64_t& to, const auto& from) {
    if (from) to = *from;
  };
  put(out.memory_bytes, usage.memory_bytes);
  put(out.memory_peak_bytes, usage.memory_peak_bytes);
  put(out.cpu_us, usage.cpu_us);
  put(out.tasks, usage.tasks);
  put(out.tasks_peak, usage.tasks_peak);
  put(out.memory_pressure, usage.memory_pressure);
  put(out.cpu_pressure, usage.cpu_pressure);
  put(out.io_pressure, usage.io_pressure);
  const auto& held = group_.controls();
  out.held |= (held.memory ? Numbers::kHeldMemory : 0) | (held.cpu ? Numbers::kHeldCpu : 0) |
              (held.tasks ? Numbers::kHeldTasks : 0);
  return out;
}

void BoxLimits::end() {
  (void)group_.remove();
  group_ = {};
  // What is left is noted for the next who comes.
  const auto fd = sys::open_beneath(data_dir_, kGroupsName, O_RDONLY);
  if (!fd) return;
  const auto groups = split(sys::read_all(fd->get(), kMaxGroups).value_or(""), '\n');
  if (cgroup::remove_groups(groups, 0)) unlinkat(data_dir_, kGroupsName, 0);
}

TasksForTheUser::TasksForTheUser() {
  rlimit limit{};
  if (geteuid() == 0 || getrlimit(RLIMIT_NPROC, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) {
    return;
  }
  before_ = limit;
  limit.rlim_cur = limit.rlim_cur / 4 * 3;
  (void)setrlimit(RLIMIT_NPROC, &limit);
}

TasksForTheUser::~TasksForTheUser() {
  if (before_) (void)setrlimit(RLIMIT_NPROC, &*before_);
}

Result<void> limit_own_tasks(std::int64_t host_tasks) {
  if (host_tasks == 0) return {};
  rlimit limit{};
  if (getrlimit(RLIMIT_NPROC, &limit) != 0) return fail_errno(errno, "getrlimit");
  const auto most = static_cast<rlim_t>(host_tasks + kTasksOfNobody);
  limit.rlim_cur = std::min(limit.rlim_cur, most);
  limit.rlim_max = limit.rlim_cur;
  if (setrlimit(RLIMIT_NPROC, &limit) != 0) return fail_errno(errno, "setrlimit");
  return {};
}

}  // namespace temenos::keeper
