#include "keeper/sources.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <map>

#include "base/host_ids.h"
#include "base/text.h"
#include "base/try.h"
#include "keeper/etc_parts.h"
#include "sys/file_sys.h"
#include "sys/mount_sys.h"

namespace temenos::keeper {
namespace {

constexpr std::size_t kMaxEtcFile = 1u << 20;

// Hands out user namespaces for idmapped mounts, one per owner.
class IdMaps {
 public:
  explicit IdMaps(bool enabled) : enabled_(enabled) {}
  // -1: mount as it is.
  Result<int> for_owner(const struct stat& st) {
    if (!enabled_) return -1;
    UniqueFd& ns = by_owner_[{st.st_uid, st.st_gid}];
    if (!ns) {
      ns = TRY(sys::idmap_namespace({st.st_uid, kBoxIdBase, 1}, {st.st_gid, kBoxIdBase, 1}));
    }
    return ns.get();
  }

 private:
  bool enabled_;
  std::map<std::pair<uid_t, gid_t>, UniqueFd> by_owner_;
};

// open_tree(2) only clones what lies in the caller's own mount namespace, so an ordinary user's
// helper opens the path again and makes sure that it is still the file that was checked.
Result<UniqueFd> reopen(const std::string& path, int checked) {
  UniqueFd fd = TRY(sys::open_canonical(path));
  if (!TRY(sys::same_file(fd.get(), checked))) {
    return fail(Code::kConflict, escape(path) + " was replaced while the box was starting",
                "try again; something else is writing there");
  }
  return fd;
}

Result<UniqueFd> clone_checked(const std::string& path, int checked, bool as_root,
                               const sys::CloneOptions& options) {
  if (as_root) return sys::clone_mount(checked, options);
  const UniqueFd fd = TRY(reopen(path, checked));
  return sys::clone_mount(fd.get(), options);
}

Result<UniqueFd> clone_path(const std::string& path, const sys::CloneOptions& options) {
  const UniqueFd fd = TRY(sys::open_canonical(TRY(sys::resolve(path))));
  return sys::clone_mount(fd.get(), options);
}

Result<UniqueFd> clone_bind(const BindSpec& bind, int checked, bool as_root, IdMaps& maps) {
  const struct stat st = TRY(sys::stat_fd(checked));
  if (!S_ISDIR(st.st_mode) && !S_ISREG(st.st_mode)) {
    return fail(Code::kInvalidArgument,
                "cannot mount " + escape(bind.source) +
                    ": only directories and regular files can be mounted",
                "mount the directory it lies in");
  }
  sys::CloneOptions options{.read_only = !bind.writable, .idmap_userns = TRY(maps.for_owner(st))};
  auto mount = clone_checked(bind.source, checked, as_root, options);
  if (!mount && options.idmap_userns >= 0 && mount.error().sys_errno == EINVAL && !bind.writable) {
    // A file system without idmapped mounts: read-only it is still safe, by the modes for "other".
    options.idmap_userns = -1;
    mount = clone_checked(bind.source, checked, as_root, options);
  }
  if (!mount && mount.error().sys_errno == EINVAL && options.idmap_userns >= 0) {
    return fail(Code::kUnsupported,
                "cannot mount " + escape(bind.source) +
                    " writable: its file system (or one mounted below it) has no idmapped mounts",
                "use a directory on ext4, xfs or btrfs, or run temenos as an ordinary user");
  }
  if (!mount) {
    return tl::make_unexpected(
        std::move(mount).error().with_context("cannot mount " + escape(bind.source)));
  }
  return mount;
}

Result<void> add_usr(Sources& sources) {
  sources.usr = TRY(clone_path("/usr", {.read_only = true}));
  for (const char* name : {"bin", "sbin", "lib", "lib32", "lib64", "libx32"}) {
    char target[PATH_MAX];
    const ssize_t n = readlink((std::string("/") + name).c_str(), target, sizeof target);
    if (n > 0) {
      sources.root_links.emplace_back(name, std::string(target, static_cast<std::size_t>(n)));
    } else if (errno == EINVAL) {
      return fail(Code::kUnsupported, std::string("/") + name + " is not a link into /usr",
                  "temenos needs a merged /usr (Debian: install usrmerge)");
    }
  }
  return {};
}

// Files are copied (they are small, and a copy cannot be swapped), directories are mounted.
Result<void> add_host_etc(Sources& sources, const std::string& name) {
  const std::string path = "/etc/" + name;
  struct stat st{};
  if (lstat(path.c_str(), &st) != 0) return {};
  if (S_ISLNK(st.st_mode)) {
    char target[PATH_MAX];
    const ssize_t n = readlink(path.c_str(), target, sizeof target);
    const std::string text(target, n > 0 ? static_cast<std::size_t>(n) : 0);
    // Into /usr it works in the box as it is; elsewhere its content is what counts.
    if (text.rfind("/usr/", 0) == 0 || text.rfind("../usr/", 0) == 0) {
      sources.etc_files.push_back({name, text, true});
      return {};
    }
    if (stat(path.c_str(), &st) != 0) return {};
  }
  if (S_ISDIR(st.st_mode)) {
    sources.etc_mounts.push_back({name, TRY(clone_path(path, {.read_only = true})), true});
  } else if (S_ISREG(st.st_mode) && (st.st_mode & S_IROTH) != 0) {
    sources.etc_files.push_back({name, TRY(sys::read_path(path, kMaxEtcFile)), false});
  }
  return {};
}

Result<void> add_etc(Sources& sources, const LaunchSpec& spec) {
  for (const auto& file : generated_etc(spec.hostname, spec.network)) {
    sources.etc_files.push_back({file.name, file.content, false});
  }
  for (const auto& name : kHostEtc) TRY(add_host_etc(sources, name));
  if (spec.network == NetworkMode::kHost) {
    const auto resolver = sys::read_path("/etc/resolv.conf", kMaxEtcFile);
    sources.etc_files.push_back({"resolv.conf", resolver.value_or(""), false});
  }
  return {};
}

}  // namespace

Result<Sources> clone_sources(const Launch& launch, const IdPlan& plan) {
  const LaunchSpec& spec = launch.spec;
  Sources sources;
  TRY(add_usr(sources));
  TRY(add_etc(sources, spec));
  const UniqueFd box = TRY(sys::open_beneath(launch.data_dir.get(), "box", O_PATH | O_DIRECTORY));
  sources.data = TRY(clone_checked(spec.data_dir + "/box", box.get(), plan.as_root, {}));
  sources.runsc = TRY(clone_path(spec.runsc, {.read_only = true}));
  sources.init = TRY(clone_path(spec.init, {.read_only = true}));
  std::vector<std::string> devices{"null", "zero", "full", "random", "urandom"};
  if (spec.platform == "kvm") devices.emplace_back("kvm");
  for (const auto& name : devices) {
    sources.devices.emplace_back(
        name, TRY(clone_path("/dev/" + name, {.nodev = false, .recursive = false})));
  }
  IdMaps maps(plan.as_root);
  for (std::size_t i = 0; i < spec.binds.size(); ++i) {
    sources.binds.push_back(
        TRY(clone_bind(spec.binds[i], launch.sources[i].get(), plan.as_root, maps)));
  }
  return sources;
}

}  // namespace temenos::keeper
