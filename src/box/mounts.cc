#include "box/mounts.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <pwd.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <set>

#include "base/text.h"
#include "base/try.h"
#include "box/autoexec_follow.h"
#include "box/file_reader.h"
#include "box/git_worktree.h"
#include "box/source_path.h"
#include "policy/paths.h"
#include "sys/file_sys.h"

namespace temenos::box {
namespace {

// Of one bind; each is a mount and two or three system calls of the start.
constexpr std::size_t kMaxProtected = 2000;

// Their bytes, because a box chooses the names; the launch message holds this many times over.
constexpr std::size_t kMaxProtectedBytes = 512u << 10;

// Which protected paths come first: the tree's own and its repository's, of which there are no more
// than the rules have names; then by the directories above.
std::size_t rank(const std::string& path) {
  const auto slash = path.find('/');
  const bool of_repository = path.starts_with(".git/") && path.find('/', 5) == path.npos;
  if (slash == path.npos || of_repository) return 0;
  std::size_t levels = 1;
  for (const auto& name : split(path, '/')) levels += name == ".git" ? 0 : 1;
  return levels;
}

// Leaves the first that fit; how many had to go.
std::size_t keep_what_fits(std::vector<std::string>& paths) {
  std::sort(paths.begin(), paths.end(), [](const auto& left, const auto& right) {
    return std::pair(rank(left), left) < std::pair(rank(right), right);
  });
  std::size_t bytes = 0;
  std::size_t kept = 0;
  while (kept < paths.size() && kept < kMaxProtected &&
         (bytes += paths[kept].size()) <= kMaxProtectedBytes) {
    ++kept;
  }
  const std::size_t gone = paths.size() - kept;
  paths.resize(kept);
  return gone;
}

std::set<std::string> home_directories() {
  std::set<std::string> homes{home_directory()};
  setpwent();
  while (const passwd* user = getpwent()) {
    // System accounts have homes such as / or /usr/sbin, which nobody keeps secrets in.
    if (user->pw_uid != 0 && user->pw_uid < 1000) continue;
    if (user->pw_uid >= 65534) continue;
    homes.insert(user->pw_dir);
  }
  endpwent();
  std::set<std::string> real;
  for (const auto& home : homes) {
    const auto path = sys::resolve(home);
    if (path && *path != "/") real.insert(*path);
  }
  return real;
}

Result<void> check_home(const std::string& source, const Policy& policy) {
  if (policy->allowed.home_bind) return {};
  for (const auto& home : home_directories()) {
    if (!is_at_or_below(home, source)) continue;
    return fail(
        Code::kPolicyViolation,
        escape(source) + (source == home ? " is a home directory" : " holds a home directory") +
            ", with its keys and logins",
        "mount the directory that is needed, or name the risk with --allow-danger home-bind");
  }
  return {};
}

// Windows into the kernel and into other processes, not files.
Result<void> check_file_system(const Opened& opened) {
  struct statfs fs{};
  if (fstatfs(opened.fd.get(), &fs) != 0)
    return fail_errno(errno, "cannot mount " + escape(opened.path));
  bool kernel = false;
  for (const long magic : {PROC_SUPER_MAGIC, SYSFS_MAGIC, CGROUP_SUPER_MAGIC, CGROUP2_SUPER_MAGIC,
                           DEVPTS_SUPER_MAGIC, DEBUGFS_MAGIC, TRACEFS_MAGIC, SECURITYFS_MAGIC}) {
    kernel |= fs.f_type == magic;
  }
  if (!kernel) return {};
  return fail(Code::kPolicyViolation,
              escape(opened.path) + " is a window into the host's kernel, not files",
              "a box has a /proc, /sys and /dev of its own");
}

std::string below(const std::string& path, const std::string& directory) {
  return directory == "/" ? path.substr(1) : path.substr(directory.size() + 1);
}

class Resolver {
 public:
  Resolver(const Policy& policy, const HostDirs& dirs) : policy_(policy), dirs_(dirs) {}

  Result<void> add(Opened opened, const std::string& target, bool writable) {
    TRY(check_source(opened.path, writable ? Access::kWrite : Access::kRead,
                     policy_->allowed.home_bind, target));
    TRY(check_file_system(opened));
    TRY(check_home(opened.path, policy_));
    keeper::BindSpec bind{opened.path, target, writable, {}, {}};
    TRY(hide_own(opened, bind));
    if (writable && S_ISDIR(TRY(sys::stat_fd(opened.fd.get())).st_mode)) TRY(watch(opened, bind));
    out_.binds.push_back(std::move(bind));
    out_.sources.push_back(std::move(opened.fd));
    return {};
  }
  Mounts& out() { return out_; }

 private:
  // temenos' own state and programs: nothing that a box could read, or write for the host to obey.
  Result<void> hide_own(const Opened& opened, keeper::BindSpec& bind) const {
    for (const auto& own : dirs_.own()) {
      if (is_at_or_below(opened.path, own)) {
        return fail(Code::kPolicyViolation, escape(opened.path) + " belongs to temenos itself",
                    "mount another directory");
      }
      if (!is_at_or_below(own, opened.path) || access(own.c_str(), F_OK) != 0) continue;
      bind.hidden.push_back(below(own, opened.path));
    }
    if (bind.writable && is_at_or_below(dirs_.program, opened.path) &&
        dirs_.program != opened.path) {
      bind.protected_paths.push_back(below(dirs_.program, opened.path));
    }
    return {};
  }

  Result<void> watch(const Opened& opened, keeper::BindSpec& bind) {
    if (policy_->allowed.autoexec) {
      out_.warnings.push_back("files that host programs run by themselves are writable in " +
                              escape(opened.path) + " (--allow-danger autoexec)");
      return {};
    }
    WatchedBind watched{opened.path, opened.fd.get(), {}};
    FileReader reader(dirs_.libexec);
    watched.before = TRY(look_for_autoexec(opened.fd.get(), opened.path, reader));
    if (!watched.before.complete) {
      out_.warnings.push_back(
          escape(opened.path) +
          " is too large to look for every file that host programs run by themselves; "
          "what was not seen is not protected");
    }
    for (const auto& text : watched.before.trouble) {
      out_.warnings.push_back(text + ": what host programs obey of it is not protected");
    }
    std::vector<std::string> paths;
    for (const auto& [path, found] : watched.before.found) {
      // A symlink cannot be a mount point; what it leads to was found as well.
      if (found.is_protected()) paths.push_back(path);
    }
    // A box can make any number of them, and with all of them no later one would start.
    const std::size_t gone = keep_what_fits(paths);
    if (gone > 0) {
      out_.warnings.push_back(std::to_string(gone) +
                              " more files that host programs run by themselves are in " +
                              escape(opened.path) + " than can be protected: they are writable");
    }
    bind.protected_paths.insert(bind.protected_paths.end(), paths.begin(), paths.end());
    out_.watched.push_back(std::move(watched));
    return {};
  }

  const Policy& policy_;
  const HostDirs& dirs_;
  Mounts out_;
};

Result<void> add_project(Resolver& resolver, SourcePaths& paths, const Policy& policy,
                         const std::string& project) {
  const bool writable = policy->project == ProjectAccess::kWrite;
  auto fits = check_target(project, "the project");
  if (!fits) {
    return tl::make_unexpected(std::move(fits).error().with_hint("leave it out with --no-project"));
  }
  TRY(resolver.add(TRY(paths.open(project)), project, writable));
  auto worktree = find_git_worktree(project);
  if (worktree) {
    const std::string common = worktree->common.path;
    TRY(resolver.add(std::move(worktree->common), common, false));
    for (auto& part : worktree->written) {
      const std::string path = part.path;
      if (writable) TRY(resolver.add(std::move(part), path, true));
    }
  }
  paths.add_writable(project);
  return {};
}

// One bind of the policy, before its source is looked for.
struct Wanted {
  DiskVolume source;
  std::string target;
  bool writable = false;
};

std::vector<Wanted> wanted_binds(const Policy& policy) {
  std::vector<Wanted> wanted;
  for (const auto& mount : policy->mounts) {
    wanted.push_back({{mount.source, false, ""}, mount.target, mount.access == Access::kWrite});
  }
  for (const auto& volume : policy->volumes) {
    const auto* disk = std::get_if<DiskVolume>(&volume.volume);
    if (disk != nullptr) wanted.push_back({*disk, volume.target, volume.access == Access::kWrite});
  }
  for (const auto& secret : policy->secret_files) {
    wanted.push_back({{secret.source, false, ""}, secret.target, false});
  }
  // What a box may write is known before links that might lie in it are met; an outer one before an
  // inner.
  std::sort(wanted.begin(), wanted.end(), [](const Wanted& a, const Wanted& b) {
    if (a.writable != b.writable) return a.writable;
    return a.source.host_dir.size() < b.source.host_dir.size();
  });
  return wanted;
}

}  // namespace

Result<Mounts> resolve_mounts(const Policy& policy, const std::string& project_dir,
                              const HostDirs& dirs) {
  Resolver resolver(policy, dirs);
  SourcePaths paths(home_directory());
  if (!project_dir.empty()) TRY(add_project(resolver, paths, policy, project_dir));
  for (const auto& wanted : wanted_binds(policy)) {
    Opened opened = TRY(paths.open(wanted.source));
    if (wanted.writable) paths.add_writable(opened.path);
    TRY(resolver.add(std::move(opened), wanted.target, wanted.writable));
  }
  for (const auto& volume : policy->volumes) {
    if (const auto* memory = std::get_if<MemoryVolume>(&volume.volume)) {
      resolver.out().memory.push_back({volume.target, static_cast<std::uint64_t>(memory->size_mb)});
    }
  }
  return std::move(resolver.out());
}

}  // namespace temenos::box
