#include "box/host_dirs.h"

#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdlib>

#include "base/text.h"
#include "base/try.h"
#include "sys/file_sys.h"

namespace temenos::box {
namespace {

constexpr char kHint[] =
    "point XDG_DATA_HOME, XDG_CONFIG_HOME and XDG_CACHE_HOME to directories that you can write in "
    "and that have room";

std::string variable(const char* name) {
  const char* value = getenv(name);
  // The specification: a relative path is to be ignored.
  return value != nullptr && value[0] == '/' ? value : "";
}

Result<std::string> make_private(const std::string& path) {
  // The parents may hold symlinks of the user's own; from here on the real path counts.
  const auto slash = path.rfind('/');
  const std::string parent = path.substr(0, slash);
  if (access(parent.c_str(), F_OK) != 0) {
    for (auto at = parent.find('/', 1);; at = parent.find('/', at + 1)) {
      const std::string level = parent.substr(0, at);
      const int err = mkdir(level.c_str(), 0700) == 0 ? 0 : errno;
      if (err != 0 && err != EEXIST && access(level.c_str(), F_OK) != 0) {
        return fail_errno(err, "cannot make " + escape(level), kHint);
      }
      if (at == std::string::npos) break;
    }
  }
  const std::string real = TRY(sys::resolve(parent)) + path.substr(slash);
  if (mkdir(real.c_str(), 0700) != 0 && errno != EEXIST) {
    return fail_errno(errno, "cannot make " + escape(real), kHint);
  }
  struct stat st{};
  if (lstat(real.c_str(), &st) != 0 || !S_ISDIR(st.st_mode) || st.st_uid != geteuid()) {
    return fail(Code::kPermissionDenied, escape(real) + " is not a directory of this user",
                "move it away");
  }
  if ((st.st_mode & 077) != 0 && chmod(real.c_str(), 0700) != 0) {
    return fail_errno(errno, "cannot make " + escape(real) + " private", kHint);
  }
  return real;
}

}  // namespace

std::string home_directory() {
  std::string home = variable("HOME");
  if (home.empty()) {
    const passwd* user = getpwuid(geteuid());
    if (user != nullptr && user->pw_dir[0] == '/') home = user->pw_dir;
  }
  while (home.size() > 1 && home.back() == '/') home.pop_back();
  return home;
}

std::vector<std::string> HostDirs::own() const {
  std::vector<std::string> out{data, config, cache, libexec};
  if (!runtime.empty()) out.push_back(runtime);
  out.insert(out.end(), usual.begin(), usual.end());
  return out;
}

namespace {

Result<std::string> running_program() {
  char exe[PATH_MAX];
  const ssize_t n = readlink("/proc/self/exe", exe, sizeof exe);
  if (n <= 0) return fail_errno(errno, "cannot find the running program", "mount /proc");
  return std::string(exe, static_cast<std::size_t>(n));
}

}  // namespace

Result<HostDirs> host_dirs() {
  const std::string home = home_directory();
  auto base = [&home](const char* name, const char* below_home) {
    const std::string set = variable(name);
    if (!set.empty()) return set;
    return home.empty() ? std::string() : home + below_home;
  };
  HostDirs dirs;
  struct {
    const char* name;
    const char* below_home;
    std::string* out;
  } rows[] = {{"XDG_DATA_HOME", "/.local/share", &dirs.data},
              {"XDG_CONFIG_HOME", "/.config", &dirs.config},
              {"XDG_CACHE_HOME", "/.cache", &dirs.cache}};
  for (auto& row : rows) {
    const std::string path = base(row.name, row.below_home);
    if (path.empty() || (variable(row.name).empty() && access(home.c_str(), F_OK) != 0)) {
      return fail(Code::kUnsupported,
                  home.empty() ? "this user has no home directory"
                               : "the home directory " + escape(home) + " is not there",
                  std::string("set HOME or ") + row.name);
    }
    *row.out = TRY(make_private(path + "/temenos"));
  }
  for (const auto& row : rows) {
    // With a variable set for this call alone, other calls' state still lies in the usual place.
    const auto usual = sys::resolve(home + row.below_home + "/temenos");
    if (!home.empty() && usual && *usual != *row.out) dirs.usual.push_back(*usual);
  }
  const std::string runtime = variable("XDG_RUNTIME_DIR");
  if (!runtime.empty() && access(runtime.c_str(), F_OK) == 0) {
    // Made like the others: what is not there cannot be hidden, and a box could make its own of it.
    // Where this user cannot make it (another user's directory), no box of this user can either.
    dirs.runtime = make_private(runtime + "/temenos").value_or("");
  }
  dirs.program = TRY(running_program());
  dirs.libexec = TRY(libexec_beside_program());
  return dirs;
}

Result<std::string> libexec_beside_program() {
  const std::string program = TRY(running_program());
  const std::string bin = program.substr(0, program.rfind('/'));
  return bin.substr(0, bin.rfind('/')) + "/libexec/temenos";
}

Result<std::string> program(const HostDirs& dirs, const char* name) {
  auto path = sys::resolve(dirs.libexec + "/" + name);
  if (path && access(path->c_str(), X_OK) != 0) path = fail_errno(errno, escape(*path));
  if (!path) {
    return tl::make_unexpected(std::move(path)
                                   .error()
                                   .with_context("temenos is not installed whole")
                                   .with_hint("run ./scripts/setup again"));
  }
  return path;
}

}  // namespace temenos::box
