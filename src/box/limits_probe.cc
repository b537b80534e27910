#include "box/limits_probe.h"

#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>

#include "base/try.h"
#include "box/host_probe.h"
#include "codec/object_reader.h"
#include "keeper/limit_trials.h"
#include "store/atomic_file.h"
#include "sys/file_sys.h"
#include "sys/process_sys.h"

namespace temenos::box {
namespace {

namespace json = boost::json;

constexpr std::size_t kMaxCache = 64 * 1024;
constexpr int kTrialsTimeoutMs = 70'000;
constexpr char kCacheName[] = "limits.json";
constexpr std::int64_t kPoorSeconds = 600;

std::int64_t seconds_since_boot() {
  timespec now{};
  clock_gettime(CLOCK_BOOTTIME, &now);
  return now.tv_sec;
}

// systemd makes its groups wherever the caller is; the other drivers make them where he is.
std::string key_of(const LimitTrials& trials) {
  std::string key = this_boot() + "|" + std::to_string(geteuid());
  const auto best = cgroup::best_of(trials).driver;
  if (best == cgroup::Driver::kCgroup1 || best == cgroup::Driver::kCgroup2) {
    key += "|" + sys::read_path("/proc/self/cgroup", kMaxCache).value_or("");
  }
  return key;
}

// Something holds, or to hear that nothing does has taken long.
bool is_worth_keeping(const LimitTrials& trials) {
  return cgroup::best_of(trials).controls.any() ||
         std::any_of(trials.begin(), trials.end(),
                     [](const cgroup::Trial& trial) { return trial.no_answer; });
}

Result<LimitTrials> read_cache(const HostDirs& dirs, bool required) {
  const std::string text = TRY(sys::read_path(dirs.cache + "/" + kCacheName, kMaxCache));
  const auto document = TRY(parse_json(text, {.max_bytes = kMaxCache}));
  auto reader = TRY(ObjectReader::of(document, ""));
  const std::string key = TRY(reader.string("key"));
  const std::int64_t age = seconds_since_boot() - TRY(reader.integer("found_s"));
  auto trials = TRY(keeper::trials_from_json(TRY(reader.string("trials"))));
  const auto held = cgroup::best_of(trials).controls;
  if (key != key_of(trials)) return fail(Code::kNotFound, "of another place");
  if (held.all()) return trials;
  if (!is_worth_keeping(trials) || required || age < 0 || age >= kPoorSeconds) {
    return fail(Code::kNotFound, "not to be relied on");
  }
  return trials;
}

// A cache: when it cannot be written, the next call finds out again.
void write_cache(const HostDirs& dirs, const LimitTrials& trials) {
  const std::string text = serialize_json(json::object{{"key", key_of(trials)},
                                                       {"found_s", seconds_since_boot()},
                                                       {"trials", keeper::trials_to_json(trials)}});
  const UniqueFd directory(open(dirs.cache.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  (void)store::write_atomically(directory.get(), kCacheName, text);
}

}  // namespace

Result<LimitTrials> probe_limits(const HostDirs& dirs, bool required, int cancel_fd) {
  auto cached = read_cache(dirs, required);
  return cached ? cached : try_limits(dirs, cancel_fd);
}

Result<LimitTrials> try_limits(const HostDirs& dirs, int cancel_fd) {
  const std::vector<std::string> argv{TRY(program(dirs, "temenos-keeper")), keeper::kTryLimits,
                                      TRY(program(dirs, "temenos-scope"))};
  const auto ran = sys::run_program(argv, kMaxCache, kTrialsTimeoutMs, cancel_fd);
  if (!ran && ran.error().code == Code::kBoxDied) {
    return fail(Code::kBoxDied, "the start was given up", "start it again");
  }
  if (!ran || ran->status.code != 0) {
    return fail(Code::kInternal, "temenos-keeper cannot try the limits of this host",
                "run ./scripts/setup again");
  }
  auto trials = TRY(keeper::trials_from_json(ran->output));
  if (is_worth_keeping(trials)) {
    write_cache(dirs, trials);
  } else {
    forget_limits(dirs);  // what held once does no more
  }
  return trials;
}

void forget_limits(const HostDirs& dirs) { unlink((dirs.cache + "/" + kCacheName).c_str()); }

}  // namespace temenos::box
