#include "box/limits_probe.h"

#include <fcntl.h>
#include <unistd.h>

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

// systemd makes its groups wherever the caller is; the other drivers make them where he is.
std::string key_of(const LimitTrials& trials) {
  std::string key = this_boot() + "|" + std::to_string(geteuid());
  const auto best = cgroup::best_of(trials).driver;
  if (best == cgroup::Driver::kCgroup1 || best == cgroup::Driver::kCgroup2) {
    key += "|" + sys::read_path("/proc/self/cgroup", kMaxCache).value_or("");
  }
  return key;
}

Result<LimitTrials> read_cache(const HostDirs& dirs) {
  const std::string text = TRY(sys::read_path(dirs.cache + "/" + kCacheName, kMaxCache));
  const auto document = TRY(parse_json(text, {.max_bytes = kMaxCache}));
  auto reader = TRY(ObjectReader::of(document, ""));
  const std::string key = TRY(reader.string("key"));
  auto trials = TRY(keeper::trials_from_json(TRY(reader.string("trials"))));
  if (key != key_of(trials) || !cgroup::best_of(trials).controls.any())
    return fail(Code::kNotFound, "of another place");
  return trials;
}

// A cache: when it cannot be written, the next call finds out again.
void write_cache(const HostDirs& dirs, const LimitTrials& trials) {
  const std::string text = serialize_json(
      json::object{{"key", key_of(trials)}, {"trials", keeper::trials_to_json(trials)}});
  const UniqueFd directory(open(dirs.cache.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  (void)store::write_atomically(directory.get(), kCacheName, text);
}

}  // namespace

Result<LimitTrials> probe_limits(const HostDirs& dirs) {
  auto cached = read_cache(dirs);
  return cached ? cached : try_limits(dirs);
}

Result<LimitTrials> try_limits(const HostDirs& dirs) {
  const auto ran = TRY(sys::run_program({TRY(program(dirs, "temenos-keeper")), keeper::kTryLimits,
                                         TRY(program(dirs, "temenos-scope"))},
                                        kMaxCache, kTrialsTimeoutMs));
  if (ran.status.code != 0) {
    return fail(Code::kInternal, "temenos-keeper cannot try the limits of this host",
                "run ./scripts/setup again");
  }
  auto trials = TRY(keeper::trials_from_json(ran.output));
  if (cgroup::best_of(trials).controls.any()) {
    write_cache(dirs, trials);
  } else {
    unlink((dirs.cache + "/" + kCacheName).c_str());  // what held once does no more
  }
  return trials;
}

}  // namespace temenos::box
