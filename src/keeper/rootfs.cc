#include "keeper/rootfs.h"

#include <fcntl.h>
#include <linux/mount.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <set>

#include "base/text.h"
#include "base/try.h"
#include "egress/plan.h"
#include "gvisor/oci.h"
#include "sys/file_sys.h"
#include "sys/mount_sys.h"

namespace temenos::keeper {
namespace {

constexpr unsigned kTight = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV;

// Of a root in memory. An inode costs the kernel about a KiB beside the size.
constexpr std::int64_t kInodesPerMb = 256;
constexpr std::int64_t kMinInodes = 4096;
constexpr std::int64_t kRunscBaseMb = 4;  // only mount points lie there

// The empty directories of a box's root; HOME is among them, so what a box writes there lies in its
// upper. On /run/temenos the gofer mounts what it serves there.
constexpr const char* kBaseDirs[] = {
    "dev",     "etc",         "home",     "media",     "mnt",     "opt",      "proc",
    "root",    "run/temenos", "srv",      "sys",       "tmp",     "usr",      "var/cache",
    "var/lib", "var/log",     "var/mail", "var/spool", "var/tmp", "home/user"};

Result<UniqueFd> open_path(const std::string& path) {
  UniqueFd fd(open(path.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
  if (!fd) return fail_errno(errno, "opening " + path);
  return fd;
}

Result<void> make_dir(const std::string& path, mode_t mode = 0755) {
  if (mkdir(path.c_str(), mode) != 0 && errno != EEXIST) return fail_errno(errno, "making " + path);
  return {};
}

// Attaches `mount` on a fresh directory or file of the helper's own tree.
Result<void> attach_new(int mount, const std::string& path) {
  const struct stat st = TRY(sys::stat_fd(mount));
  if (S_ISDIR(st.st_mode)) {
    TRY(make_dir(path));
  } else {
    const UniqueFd file(open(path.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0644));
    if (!file) return fail_errno(errno, "making " + path);
  }
  const UniqueFd target = TRY(open_path(path));
  return sys::attach_mount(mount, target.get());
}

// runsc takes from /proc/meminfo what it tells the box to have. Programs size themselves by that (a
// JVM's heap), so it is what the box may use and not what the host has.
Result<void> tell_memory(std::int64_t memory_mb) {
  const UniqueFd root = TRY(open_path("/"));
  TRY(sys::write_new_file(root.get(), "meminfo",
                          "MemTotal: " + std::to_string(memory_mb * 1024) + " kB\n", 0444));
  const UniqueFd plain = TRY(open_path("/meminfo"));
  const UniqueFd mount = TRY(sys::clone_mount(plain.get(), {.read_only = true}));
  const UniqueFd target = TRY(open_path("/proc/meminfo"));
  return sys::attach_mount(mount.get(), target.get());
}

// A runsc of before August 2024 takes a namespace in which /proc/sys/net/core/rmem_default exists
// for the host's own, and runs in none of them. Newer kernels have that file in each.
Result<void> hide_network_settings() {
  const UniqueFd empty = TRY(sys::new_filesystem("tmpfs", {{"size", "4096"}, {"mode", "0555"}},
                                                 kTight | MOUNT_ATTR_RDONLY));
  const UniqueFd target = TRY(open_path("/proc/sys/net"));
  return sys::attach_mount(empty.get(), target.get());
}

Result<void> attach_tmpfs(const std::string& path, const char* size, const char* mode) {
  const UniqueFd mount =
      TRY(sys::new_filesystem("tmpfs", {{"size", size}, {"mode", mode}}, kTight));
  return attach_new(mount.get(), path);
}

// --- a bind
// ---------------------------------------------------------------------------------------------

// What `path` names below the bind, with mounts made here taken into account. Never follows a
// symlink.
Result<UniqueFd> open_in_bind(int bind, const std::string& path) {
  return sys::open_beneath(bind, path, O_PATH);
}

// A directory of a bind becomes a mount point of itself: then no rename of it, or of what is above
// it, can move it out of the way (rename(2): EBUSY).
Result<void> pin_directory(int bind, const std::string& path, bool read_only) {
  const auto fd = open_in_bind(bind, path);
  if (!fd) {
    // Removed since the scan: when it is made again, the scan after the box's end finds it new.
    if (fd.error().code == Code::kNotFound) return {};
    return tl::make_unexpected(fd.error());
  }
  const UniqueFd copy = TRY(sys::clone_mount(fd->get(), {.read_only = read_only}));
  return sys::attach_mount(copy.get(), fd->get());
}

Result<void> hide(int bind, const std::string& path) {
  const UniqueFd fd = TRY(open_in_bind(bind, path));
  const UniqueFd empty = TRY(sys::new_filesystem("tmpfs", {{"size", "4096"}, {"mode", "0555"}},
                                                 kTight | MOUNT_ATTR_RDONLY));
  return sys::attach_mount(empty.get(), fd.get());
}

std::vector<std::string> directories_above(const std::string& path) {
  std::vector<std::string> out;
  for (auto at = path.find('/'); at != std::string::npos; at = path.find('/', at + 1)) {
    out.push_back(path.substr(0, at));
  }
  return out;
}

Result<void> secure_bind(const std::string& root, const BindSpec& spec) {
  std::vector<std::string> ends = spec.hidden;
  if (spec.writable) {
    ends.insert(ends.end(), spec.protected_paths.begin(), spec.protected_paths.end());
    std::set<std::string> above;  // ordered: a parent comes before its children
    for (const auto& path : ends) {
      for (auto& directory : directories_above(path)) above.insert(std::move(directory));
    }
    for (const auto& directory : above) {
      // Opened anew each time: the walk must go through the mounts made so far.
      const UniqueFd bind = TRY(open_path(root));
      TRY(pin_directory(bind.get(), directory, false));
    }
    // Parents before children here too: a protected directory inside a protected one adds nothing.
    std::vector<std::string> paths = spec.protected_paths;
    std::sort(paths.begin(), paths.end());
    for (const auto& path : paths) {
      const UniqueFd bind = TRY(open_path(root));
      TRY(pin_directory(bind.get(), path, true));
    }
  }
  for (const auto& path : spec.hidden) {
    const UniqueFd bind = TRY(open_path(root));
    TRY(hide(bind.get(), path));
  }
  return {};
}

Result<void> attach_binds(const LaunchSpec& spec, std::vector<UniqueFd> mounts) {
  TRY(make_dir("/m"));
  for (std::size_t i = 0; i < mounts.size(); ++i) {
    const std::string path = "/m/" + std::to_string(i);
    auto done = attach_new(mounts[i].get(), path);
    if (done) done = secure_bind(path, spec.binds[i]);
    if (!done) {
      return tl::make_unexpected(std::move(done).error().with_context(
          "protecting files in " + escape(spec.binds[i].source)));
    }
  }
  return {};
}

// --- the box's root
// -------------------------------------------------------------------------------------

bool below(const std::string& path, const std::string& directory) {
  return path.size() > directory.size() && path.compare(0, directory.size(), directory) == 0 &&
         path[directory.size()] == '/';
}

// The innermost bind that `target` lies in; the number of binds when there is none.
std::size_t bind_around(const LaunchSpec& spec, const std::string& target) {
  std::size_t around = spec.binds.size();
  for (std::size_t i = 0; i < spec.binds.size(); ++i) {
    if (below(target, spec.binds[i].target) &&
        (around == spec.binds.size() || below(spec.binds[i].target, spec.binds[around].target))) {
      around = i;
    }
  }
  return around;
}

// A bind inside another one is mounted there in the host's tree as well, and comes into the box
// with it: if only the sentry knew of it, the files below would still be within the gofer's reach.
// Inner ones first.
Result<void> nest_binds(const LaunchSpec& spec) {
  for (const auto& memory : spec.memory) {
    const std::size_t around = bind_around(spec, memory.target);
    if (around == spec.binds.size()) continue;
    const UniqueFd root = TRY(open_path("/m/" + std::to_string(around)));
    TRY(hide(root.get(), memory.target.substr(spec.binds[around].target.size() + 1)));
  }
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < spec.binds.size(); ++i) order.push_back(i);
  std::sort(order.begin(), order.end(), [&spec](std::size_t a, std::size_t b) {
    return spec.binds[a].target.size() > spec.binds[b].target.size();
  });
  for (const std::size_t i : order) {
    const std::size_t around = bind_around(spec, spec.binds[i].target);
    if (around == spec.binds.size()) continue;
    const std::string inside = spec.binds[i].target.substr(spec.binds[around].target.size() + 1);
    const UniqueFd source = TRY(open_path("/m/" + std::to_string(i)));
    const UniqueFd root = TRY(open_path("/m/" + std::to_string(around)));
    const UniqueFd target = TRY(open_in_bind(root.get(), inside));
    const UniqueFd copy = TRY(sys::clone_mount(source.get(), {}));
    TRY(sys::attach_mount(copy.get(), target.get()));
  }
  return {};
}

// gVisor makes a missing mount point by itself, on the host when it lies in a bind. So it must be
// there: in the base we make it, in another bind it is the user's to make.
Result<void> make_mount_point(const LaunchSpec& spec, const std::string& target, bool directory,
                              int base) {
  const std::size_t around = bind_around(spec, target);
  for (const auto& memory : spec.memory) {
    if (around == spec.binds.size() || !below(target, memory.target)) continue;
    if (!below(memory.target, spec.binds[around].target)) continue;
    return fail(Code::kInvalidArgument,
                "cannot mount at " + escape(target) + ": the memory volume at " +
                    escape(memory.target) + " lies between it and " +
                    escape(spec.binds[around].source),
                "mount one of them somewhere else");
  }
  if (around < spec.binds.size()) {
    const std::string inside = target.substr(spec.binds[around].target.size() + 1);
    const UniqueFd root = TRY(open_path("/m/" + std::to_string(around)));
    const auto there = open_in_bind(root.get(), inside);
    if (there && S_ISDIR(TRY(sys::stat_fd(there->get())).st_mode) == directory) return {};
    return fail(Code::kInvalidArgument,
                "cannot mount at " + escape(target) + ": there is no such " +
                    (directory ? "directory" : "file") + " in " + escape(spec.binds[around].source),
                "make it first, or mount somewhere else");
  }
  const std::string relative = target.substr(1);
  if (directory) {
    TRY(sys::make_directories(base, relative, 0755));
    return {};
  }
  const auto slash = relative.rfind('/');
  const UniqueFd above = TRY(sys::make_directories(
      base, slash == std::string::npos ? "." : relative.substr(0, slash), 0755));
  const std::string name = slash == std::string::npos ? relative : relative.substr(slash + 1);
  const auto made = sys::write_new_file(above.get(), name, "", 0644);
  if (!made && made.error().code != Code::kAlreadyExists) return made;
  return {};
}

// In the directory `path`, which is there.
Result<void> make_base(const LaunchSpec& spec, const Sources& sources, const std::string& path) {
  const UniqueFd base = TRY(open_path(path));
  for (const char* name : kBaseDirs) TRY(sys::make_directories(base.get(), name, 0755));
  if (chmod((path + "/root").c_str(), 0700) != 0 ||
      chmod((path + "/var/tmp").c_str(), 01777) != 0 ||
      chown((path + "/home/user").c_str(), 1000, 1000) != 0) {
    // EINVAL: a single-id map has no id 1000; the directory stays root's.
    if (errno != EINVAL) return fail_errno(errno, "making the box's base");
  }
  for (const auto& [name, target] : sources.root_links) {
    if (symlinkat(target.c_str(), base.get(), name.c_str()) != 0 && errno != EEXIST) {
      return fail_errno(errno, "linking /" + name);
    }
  }
  for (std::size_t i = 0; i < spec.binds.size(); ++i) {
    const UniqueFd source = TRY(open_path("/m/" + std::to_string(i)));
    const bool directory = S_ISDIR(TRY(sys::stat_fd(source.get())).st_mode);
    TRY(make_mount_point(spec, spec.binds[i].target, directory, base.get()));
  }
  for (const auto& memory : spec.memory) {
    TRY(make_mount_point(spec, memory.target, true, base.get()));
  }
  return nest_binds(spec);
}

Result<void> make_etc(const Sources& sources) {
  const std::string etc = std::string(kRootfs) + "/etc";
  const UniqueFd mount =
      TRY(sys::new_filesystem("tmpfs", {{"size", "16m"}, {"mode", "0755"}}, kTight));
  {
    const UniqueFd target = TRY(open_path(etc));
    TRY(sys::attach_mount(mount.get(), target.get()));
  }
  const UniqueFd root = TRY(open_path(etc));
  auto parent_of = [&root](const std::string& name) -> Result<UniqueFd> {
    const auto slash = name.rfind('/');
    return sys::make_directories(root.get(),
                                 slash == std::string::npos ? "." : name.substr(0, slash), 0755);
  };
  auto leaf = [](const std::string& name) { return name.substr(name.rfind('/') + 1); };
  for (const auto& file : sources.etc_files) {
    const UniqueFd parent = TRY(parent_of(file.name));
    if (file.symlink) {
      if (symlinkat(file.content.c_str(), parent.get(), leaf(file.name).c_str()) != 0) {
        return fail_errno(errno, "linking /etc/" + file.name);
      }
    } else {
      TRY(sys::write_new_file(parent.get(), leaf(file.name), file.content, 0644));
    }
  }
  for (const auto& part : sources.etc_mounts) {
    const UniqueFd target = TRY(sys::make_directories(root.get(), part.name, 0755));
    TRY(sys::attach_mount(part.mount.get(), target.get()));
  }
  const UniqueFd top = TRY(open_path(etc));
  return sys::make_read_only(top.get(), true);
}

// `index=on` for what the kernel does before it looks whether the file system can hold an index: it
// refuses an upper that is part of another overlay, wherever that one is mounted and as long as one
// of its files is open (EBUSY). So two sandboxes never write in one upper, whatever was killed; the
// last one's processes may need a moment to end.
Result<UniqueFd> mount_overlay(const std::string& data) {
  constexpr std::chrono::seconds kPatience{10};
  constexpr int kStepMs = 2;
  const auto end = std::chrono::steady_clock::now() + kPatience;
  for (;;) {
    auto overlay = sys::new_filesystem("overlay",
                                       {{"lowerdir", data + "/base"},
                                        {"upperdir", data + "/upper"},
                                        {"workdir", data + "/work"},
                                        {"index", "on"},
                                        {"userxattr", ""}},
                                       kTight);
    if (overlay || overlay.error().sys_errno != EBUSY) return overlay;
    if (std::chrono::steady_clock::now() >= end) {
      return fail(Code::kConflict, "another sandbox still has this box's files",
                  "its processes do not end; look for them with: ps -e | grep runsc");
    }
    poll(nullptr, 0, kStepMs);
  }
}

// What the box writes lies in the data dir when write(2) returns.
Result<void> mount_disk_root(const LaunchSpec& spec, const Sources& sources) {
  const std::string data(kDataDir);
  for (const char* name : {"/base", "/upper", "/work"}) TRY(make_dir(data + name));
  TRY(make_base(spec, sources, data + "/base"));
  auto overlay = mount_overlay(data);
  if (!overlay && overlay.error().code == Code::kConflict) {
    return tl::make_unexpected(std::move(overlay).error());
  }
  if (!overlay) {
    return tl::make_unexpected(
        std::move(overlay)
            .error()
            .with_context("the file system of " + spec.data_dir + " cannot hold a box's files")
            .with_hint("set XDG_DATA_HOME to a volume with ext4, xfs or btrfs, or let nothing of "
                       "the box survive: --scratch memory (or runsc)"));
  }
  return attach_new(overlay->get(), kRootfs);
}

// A plain tree, gone with this mount namespace. No overlay: what a base needs above it is only a
// place to write, and an overlay on tmpfs in a user namespace has whole semantics from Linux 6.6 on
// (user.* attributes on tmpfs).
Result<void> mount_memory_root(const LaunchSpec& spec, const Sources& sources) {
  const std::int64_t mb = spec.scratch == Scratch::kRunsc ? kRunscBaseMb : spec.scratch_mb;
  const UniqueFd root = TRY(
      sys::new_filesystem("tmpfs",
                          {{"size", std::to_string(mb) + "m"},
                           {"nr_inodes", std::to_string(std::max(mb * kInodesPerMb, kMinInodes))},
                           {"mode", "0755"}},
                          kTight));
  TRY(attach_new(root.get(), kRootfs));
  return make_base(spec, sources, kRootfs);
}

Result<void> make_rootfs(const LaunchSpec& spec, const Sources& sources) {
  if (spec.scratch == Scratch::kDisk) {
    TRY(mount_disk_root(spec, sources));
  } else {
    TRY(mount_memory_root(spec, sources));
  }
  {
    const UniqueFd usr = TRY(open_path(std::string(kRootfs) + "/usr"));
    TRY(sys::attach_mount(sources.usr.get(), usr.get()));
  }
  TRY(make_etc(sources));
  if (spec.scratch != Scratch::kRunsc) return {};
  // What is written lies above it, in the sentry: nobody writes here.
  const UniqueFd root = TRY(open_path(kRootfs));
  return sys::make_read_only(root.get(), true);
}

// --- the bundle
// -----------------------------------------------------------------------------------------

Result<void> write_bundle(const LaunchSpec& spec) {
  using gvisor::OciMount;
  std::vector<OciMount> mounts = {
      {"/proc", "proc", "proc", {"nosuid", "noexec", "nodev"}},
      {"/sys", "sysfs", "sysfs", {"nosuid", "noexec", "nodev", "ro"}},
      // init keeps each exec's processes together with this, and hides it before anything runs.
      {"/sys/fs/cgroup", "cgroup", "cgroup", {"nosuid", "noexec", "nodev"}},
      {"/dev/shm", "tmpfs", "tmpfs", {"nosuid", "nodev", "mode=1777"}},
      {"/tmp", "tmpfs", "tmpfs", {"nosuid", "nodev", "mode=1777"}},
      {"/run", "tmpfs", "tmpfs", {"nosuid", "nodev", "mode=0755"}},
      {kBoxPrivateDir, "bind", "/box", {"rbind", "ro"}},
  };
  if (spec.scratch == Scratch::kRunsc) {
    // Mounts of their own have no overlay of gVisor's above them, so a write in them is EROFS as in
    // every other box.
    for (const char* name : {"/usr", "/etc"}) {
      mounts.push_back({name, "bind", kRootfs + std::string(name), {"rbind", "ro"}});
    }
  }
  std::vector<OciMount> users;
  for (std::size_t i = 0; i < spec.binds.size(); ++i) {
    if (bind_around(spec, spec.binds[i].target) < spec.binds.size()) continue;  // nest_binds()
    users.push_back({spec.binds[i].target,
                     "bind",
                     "/m/" + std::to_string(i),
                     {"rbind", spec.binds[i].writable ? "rw" : "ro"}});
  }
  for (const auto& memory : spec.memory) {
    users.push_back(
        {memory.target,
         "tmpfs",
         "tmpfs",
         {"nosuid", "nodev", "mode=1777", "size=" + std::to_string(memory.size_mb) + "m"}});
  }
  // A directory before what lies in it.
  std::sort(users.begin(), users.end(),
            [](const OciMount& a, const OciMount& b) { return a.target < b.target; });
  mounts.insert(mounts.end(), users.begin(), users.end());
  const bool filtered = spec.network == NetworkMode::kFiltered;
  std::vector<std::string> init{std::string(kBoxPrivateDir) + "/init"};
  if (filtered) {
    const std::string port = std::to_string(egress::kSelfTestPort);
    init.insert(init.end(), {"--knock", std::string(egress::kSelfTest4), port});
  }
  const gvisor::OciConfig config{
      kRootfs,           std::move(init),         spec.hostname,
      std::move(mounts), spec.limits.guest_tasks, filtered ? "/proc/self/ns/net" : ""};
  TRY(make_dir(kBundle));
  const UniqueFd bundle = TRY(open_path(kBundle));
  return sys::write_new_file(bundle.get(), "config.json", gvisor::oci_config_json(config), 0644);
}

}  // namespace

Result<void> build_tree(const LaunchSpec& spec, Sources sources) {
  // While the host's /proc is in sight: the kernel lets a user namespace have a new one only then.
  auto proc = sys::new_filesystem("proc", {}, kTight | MOUNT_ATTR_NOEXEC);
  if (!proc) {
    return tl::make_unexpected(
        std::move(proc).error().with_hint("this host covers parts of /proc (as container engines "
                                          "do); run temenos outside of that container"));
  }
  const UniqueFd root =
      TRY(sys::new_filesystem("tmpfs", {{"size", "8m"}, {"mode", "0755"}}, kTight));
  TRY(sys::pivot_into(root.get()));
  umask(022);
  TRY(attach_new(proc->get(), "/proc"));
  if (spec.limits.memory_mb > 0) TRY(tell_memory(spec.limits.memory_mb));
  if (spec.network == NetworkMode::kFiltered) TRY(hide_network_settings());
  TRY(make_dir("/dev"));
  for (const auto& [name, device] : sources.devices) TRY(attach_new(device.get(), "/dev/" + name));
  TRY(attach_new(sources.runsc.get(), kRunscPath));
  TRY(make_dir("/box"));
  TRY(attach_new(sources.init.get(), "/box/init"));
  {
    // The box gets this directory: read-only by the kernel, not only by the sandbox's word.
    const UniqueFd plain = TRY(open_path("/box"));
    const UniqueFd box = TRY(sys::clone_mount(plain.get(), {.read_only = true}));
    TRY(sys::attach_mount(box.get(), plain.get()));
  }
  TRY(make_dir(kLogDir));
  TRY(make_dir("/tmp"));  // runsc mounts its own on it
  // Of its own, so that messages a box provokes cannot fill it.
  TRY(attach_tmpfs("/run", "4m", "0700"));
  TRY(make_dir(kRunscState, 0700));
  if (spec.scratch == Scratch::kDisk) TRY(attach_new(sources.data.get(), kDataDir));
  TRY(attach_binds(spec, std::move(sources.binds)));
  sources.binds.clear();
  TRY(make_rootfs(spec, sources));
  return write_bundle(spec);
}

}  // namespace temenos::keeper
