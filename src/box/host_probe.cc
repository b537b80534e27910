#include "box/host_probe.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "base/text.h"
#include "base/try.h"
#include "codec/object_reader.h"
#include "store/atomic_file.h"
#include "sys/file_sys.h"

namespace temenos::box {
namespace {

namespace json = boost::json;

constexpr std::size_t kMaxCache = 65536;
constexpr char kCacheName[] = "host.json";

// In order of preference where the measured workloads do not differ by much.
constexpr const char* kPlatforms[] = {"kvm", "systrap", "ptrace"};
// A platform further down the list is taken only when it is this much faster.
constexpr double kClearlyFaster = 0.6;

std::string host_key(const std::string& runsc_identity) {
  return runsc_identity + "|" + this_boot();
}

Result<HostProbe> parse_cache(const std::string& text, const std::string& key) {
  const auto document = TRY(parse_json(text, {.max_bytes = kMaxCache}));
  auto reader = TRY(ObjectReader::of(document, ""));
  if (TRY(reader.string("key")) != key) return fail(Code::kNotFound, "another host");
  HostProbe probe;
  probe.runsc.path = TRY(reader.string("path"));
  probe.runsc.version = TRY(reader.string("version"));
  const json::array* platforms = TRY(reader.optional_array("platforms", 8));
  if (platforms == nullptr) return probe;
  for (const auto& value : *platforms) {
    auto row = TRY(ObjectReader::of(value, "platforms"));
    PlatformTrial trial;
    trial.name = TRY(row.string("name"));
    trial.ok = TRY(row.optional_bool("ok")).value_or(false);
    trial.ms = static_cast<int>(TRY(row.integer("ms")));
    trial.why = TRY(row.string("why"));
    probe.platforms.push_back(std::move(trial));
  }
  return probe;
}

// A cache: when it cannot be written, the next call finds out again.
void write_cache(const HostProbe& probe, const HostDirs& dirs) {
  json::array platforms;
  for (const auto& trial : probe.platforms) {
    platforms.push_back(
        json::object{{"name", trial.name}, {"ok", trial.ok}, {"ms", trial.ms}, {"why", trial.why}});
  }
  const std::string text = serialize_json(json::object{{"key", host_key(probe.runsc.identity)},
                                                       {"path", probe.runsc.path},
                                                       {"version", probe.runsc.version},
                                                       {"platforms", platforms}});
  const UniqueFd directory(open(dirs.cache.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  (void)store::write_atomically(directory.get(), kCacheName, text);
}

// Empty: it can be tried.
std::string why_no_kvm() {
  struct stat st{};
  if (stat("/dev/kvm", &st) != 0) return "this host has no /dev/kvm";
  // A box of root runs under an id of its own, which is in no group.
  if (geteuid() == 0 && (st.st_mode & 06) != 06)
    return "/dev/kvm is not open to the ids of root's boxes";
  if (access("/dev/kvm", R_OK | W_OK) != 0) return "/dev/kvm cannot be opened by this user";
  return "";
}

void sort_best_first(std::vector<PlatformTrial>& trials) {
  auto rank = [](const std::string& name) {
    return std::find(std::begin(kPlatforms), std::end(kPlatforms), name) - std::begin(kPlatforms);
  };
  std::sort(trials.begin(), trials.end(), [&](const PlatformTrial& a, const PlatformTrial& b) {
    if (a.ok != b.ok) return a.ok;
    return rank(a.name) < rank(b.name);
  });
  for (std::size_t i = 1; i < trials.size(); ++i) {
    if (trials[i].ok && trials[i].ms < kClearlyFaster * trials[0].ms)
      std::swap(trials[0], trials[i]);
  }
}

std::string name_of(Platform platform) {
  switch (platform) {
    case Platform::kAuto:
      return "auto";
    case Platform::kKvm:
      return "kvm";
    case Platform::kSystrap:
      return "systrap";
    case Platform::kPtrace:
      return "ptrace";
  }
  return "auto";
}

}  // namespace

std::string this_boot() {
  utsname name{};
  uname(&name);
  auto boot = sys::read_path("/proc/sys/kernel/random/boot_id", 64).value_or("");
  while (!boot.empty() && boot.back() == '\n') boot.pop_back();
  return std::string(name.release) + "|" + boot;
}

Result<HostProbe> probe_runsc(const HostDirs& dirs) {
  const char* configured = getenv("TEMENOS_RUNSC");
  const std::string path =
      TRY(gvisor::find_runsc(configured != nullptr ? configured : "", dirs.libexec));
  const std::string identity = TRY(gvisor::runsc_identity(path));
  const auto cached = sys::read_path(dirs.cache + "/" + kCacheName, kMaxCache);
  if (cached) {
    auto probe = parse_cache(*cached, host_key(identity));
    if (probe && probe->runsc.path == path) {
      probe->runsc.identity = identity;
      return probe;
    }
  }
  HostProbe probe;
  probe.runsc = TRY(gvisor::inspect_runsc(path));
  if (!probe.runsc.missing_flags.empty()) {
    return tl::make_unexpected(gvisor::unusable_runsc(probe.runsc));
  }
  write_cache(probe, dirs);
  return probe;
}

Result<std::string> choose_platform(HostProbe& probe, Platform wanted, const HostDirs& dirs,
                                    const TryPlatform& attempt) {
  if (wanted != Platform::kAuto) return name_of(wanted);
  if (probe.platforms.empty()) try_all_platforms(probe, dirs, attempt);
  if (probe.platforms[0].ok) return probe.platforms[0].name;
  // What the host lacks for all of them is said once.
  std::string why;
  for (std::size_t i = 0; i < probe.platforms.size();) {
    const std::size_t first = i;
    for (; i < probe.platforms.size() && probe.platforms[i].why == probe.platforms[first].why;
         ++i) {
      why += (i > first ? ", " : first > 0 ? "; " : "") + probe.platforms[i].name;
    }
    why += ": " + probe.platforms[first].why;
  }
  return fail(Code::kUnsupported, "gVisor runs no box on this host (" + why + ")",
              "see 'temenos doctor'");
}

void try_all_platforms(HostProbe& probe, const HostDirs& dirs, const TryPlatform& attempt) {
  probe.platforms.clear();
  for (const char* name : kPlatforms) {
    if (std::string_view(name) == "kvm") {
      const std::string why = why_no_kvm();
      if (!why.empty()) {
        probe.platforms.push_back({name, false, 0, why});
        continue;
      }
    }
    probe.platforms.push_back(attempt(probe.runsc, name));
    if (probe.platforms.back().given_up) return;
  }
  sort_best_first(probe.platforms);
  // A host on which nothing works yet is asked again the next time: the user is about to change it.
  if (probe.platforms[0].ok) write_cache(probe, dirs);
}

}  // namespace temenos::box
