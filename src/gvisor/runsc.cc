#include "gvisor/runsc.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "base/text.h"
#include "base/try.h"
#include "sys/file_sys.h"
#include "sys/process_sys.h"

namespace temenos::gvisor {
namespace {

constexpr char kHint[] = "run ./scripts/setup, which installs a tested runsc beside temenos";

bool executable(const std::string& path) {
  struct stat st{};
  return stat(path.c_str(), &st) == 0 && S_ISREG(st.st_mode) && access(path.c_str(), X_OK) == 0;
}

}  // namespace

const std::vector<std::string>& needed_flags() {
  // What keeper/helper.cc starts a box with; why each is needed stands there.
  static const std::vector<std::string> flags{"directfs",       "file-access-mounts", "host-uds",
                                              "ignore-cgroups", "overlay2",           "panic-log",
                                              "qdisc"};
  return flags;
}

Result<std::string> find_runsc(const std::string& configured, const std::string& libexec_dir) {
  if (!configured.empty()) {
    if (executable(configured)) return sys::resolve(configured);
    return fail(Code::kUnsupported,
                "TEMENOS_RUNSC names " + escape(configured) + ", which is not an executable file",
                kHint);
  }
  if (executable(libexec_dir + "/runsc")) return sys::resolve(libexec_dir + "/runsc");
  // Not the PATH: a relative entry of it would run a program that a box left in the project.
  return fail(Code::kUnsupported, "no runsc (gVisor) in " + escape(libexec_dir), kHint);
}

Result<std::string> runsc_identity(const std::string& path) {
  struct stat st{};
  if (stat(path.c_str(), &st) != 0) return fail_errno(errno, "cannot read " + escape(path), kHint);
  return std::to_string(st.st_dev) + ":" + std::to_string(st.st_ino) + ":" +
         std::to_string(st.st_size) + ":" + std::to_string(st.st_mtim.tv_sec) + "." +
         std::to_string(st.st_mtim.tv_nsec);
}

Result<Runsc> inspect_runsc(const std::string& path) {
  Runsc runsc;
  runsc.path = path;
  runsc.identity = TRY(runsc_identity(path));
  auto answer = sys::run_program({path, "--version"});
  if (!answer) return tl::make_unexpected(std::move(answer).error().with_hint(kHint));
  const auto& version = *answer;
  constexpr std::string_view kPrefix = "runsc version ";
  if (version.status.code != 0 || version.output.rfind(kPrefix, 0) != 0) {
    return fail(Code::kUnsupported, escape(path) + " does not answer --version as runsc does",
                kHint);
  }
  runsc.version = version.output.substr(kPrefix.size(), version.output.find('\n') - kPrefix.size());
  const auto flags = TRY(sys::run_program({path, "flags"}, 65536));
  for (const auto& flag : needed_flags()) {
    const std::string line = "\n  -" + flag;
    const auto at = flags.output.find(line);
    const char next = at == std::string::npos || at + line.size() >= flags.output.size()
                          ? '\0'
                          : flags.output[at + line.size()];
    if (next != '\n' && next != ' ') runsc.missing_flags.push_back(flag);
  }
  return runsc;
}

Error unusable_runsc(const Runsc& runsc) {
  Error error;
  error.code = Code::kUnsupported;
  error.what = runsc.path + " (" + runsc.version + ") is too old: it lacks";
  for (const auto& flag : runsc.missing_flags) error.what += " --" + flag;
  error.hint = kHint;
  return error;
}

}  // namespace temenos::gvisor
