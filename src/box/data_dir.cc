#include "box/data_dir.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>

#include "base/text.h"
#include "base/try.h"
#include "keeper/keeper.h"
#include "policy/paths.h"
#include "sys/file_sys.h"

namespace temenos::box {
namespace {

constexpr char kRunDir[] = "run";
constexpr char kStaged[] = ".new-";
constexpr char kWrites[] = "writes";
constexpr std::size_t kMaxWrites = 1u << 20;
constexpr char kDiskHint[] =
    "free some disk space, or set XDG_DATA_HOME to a directory with room that you can write in";
constexpr std::size_t kMaxLeft = 10'000;

Result<UniqueFd> open_run_dir(const HostDirs& dirs) {
  const UniqueFd data(open(dirs.data.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!data) return fail_errno(errno, "opening " + escape(dirs.data));
  auto run = sys::make_directories(data.get(), kRunDir, 0700);
  if (!run) {
    return tl::make_unexpected(std::move(run)
                                   .error()
                                   .with_context("cannot use " + escape(dirs.data))
                                   .with_hint(kDiskHint));
  }
  return run;
}

Result<void> remove_locked(int run, DataDir& dir) {
  TRY(keeper::remove_box(dir.directory.get(), keeper::plan_ids()));
  for (const char* name : {kWrites, "lock"}) {
    if (unlinkat(dir.directory.get(), name, 0) != 0 && errno != ENOENT) {
      return fail_errno(errno, "removing " + escape(dir.path) + "/" + name);
    }
  }
  if (unlinkat(run, dir.id.c_str(), AT_REMOVEDIR) != 0 && errno != ENOENT) {
    return fail_errno(errno, "removing " + escape(dir.path));
  }
  return {};
}

// What the box of this data dir writes; nothing when it is no longer alive, or claims nothing.
std::vector<std::string> writes_of_live_box(int run, const std::string& name) {
  const auto directory = sys::open_beneath(run, name, O_PATH | O_DIRECTORY);
  if (!directory) return {};
  const auto lock = sys::open_beneath(directory->get(), "lock", O_RDONLY);
  if (!lock || flock(lock->get(), LOCK_EX | LOCK_NB) == 0) return {};
  const auto file = sys::open_beneath(directory->get(), kWrites, O_RDONLY);
  if (!file) return {};
  auto paths = split(sys::read_all(file->get(), kMaxWrites).value_or(""), '\0');
  paths.pop_back();  // after the last NUL
  return paths;
}

}  // namespace

Result<DataDir> make_temporary_data_dir(const HostDirs& dirs) {
  const UniqueFd run = TRY(open_run_dir(dirs));
  DataDir dir;
  dir.id = random_hex(8);
  dir.path = dirs.data + "/" + kRunDir + "/" + dir.id;
  // Under another name until it is locked, so that no sweep takes it for one that was left.
  const std::string staged = kStaged + dir.id;
  if (mkdirat(run.get(), staged.c_str(), 0700) != 0) {
    return fail_errno(errno, "cannot make " + escape(dir.path), kDiskHint);
  }
  auto made = [&]() -> Result<void> {
    dir.directory = TRY(sys::open_beneath(run.get(), staged, O_PATH | O_DIRECTORY));
    dir.lock =
        TRY(sys::open_beneath(dir.directory.get(), "lock", O_RDONLY | O_CREAT | O_EXCL, 0600));
    if (flock(dir.lock.get(), LOCK_SH | LOCK_NB) != 0 ||
        renameat(run.get(), staged.c_str(), run.get(), dir.id.c_str()) != 0) {
      return fail_errno(errno, "locking it");
    }
    return {};
  }();
  if (!made) {
    if (dir.directory) unlinkat(dir.directory.get(), "lock", 0);
    unlinkat(run.get(), staged.c_str(), AT_REMOVEDIR);
    return tl::make_unexpected(std::move(made)
                                   .error()
                                   .with_context("cannot make " + escape(dir.path))
                                   .with_hint(kDiskHint));
  }
  return dir;
}

Result<void> claim_writable(const HostDirs& dirs, const DataDir& dir,
                            const std::vector<std::string>& paths, bool shared) {
  const UniqueFd run = TRY(open_run_dir(dirs));
  // One claim at a time: of two that start together, the second sees the first.
  const UniqueFd turn = TRY(sys::open_beneath(run.get(), ".", O_RDONLY | O_DIRECTORY));
  if (flock(turn.get(), LOCK_EX) != 0) return fail_errno(errno, "waiting for another box to start");
  for (const auto& name : TRY(sys::list_names(run.get(), kMaxLeft))) {
    // A staged one claims nothing yet; and a try of its lock could be what its maker meets.
    if (shared || name == dir.id || name.starts_with(kStaged)) continue;
    for (const auto& other : writes_of_live_box(run.get(), name)) {
      for (const auto& path : paths) {
        if (!is_at_or_below(path, other) && !is_at_or_below(other, path)) continue;
        return fail(
            Code::kConflict, "another live box writes in " + escape(other),
            "wait until it has ended, or name the risk that the two meet there: --allow-danger "
            "shared-write");
      }
    }
  }
  std::string text;
  for (const auto& path : paths) text += path + '\0';
  auto written = sys::write_new_file(dir.directory.get(), kWrites, text, 0600);
  if (!written) {
    return tl::make_unexpected(std::move(written)
                                   .error()
                                   .with_context("cannot use " + escape(dir.path))
                                   .with_hint(kDiskHint));
  }
  return {};
}

Result<void> remove_data_dir(const HostDirs& dirs, DataDir dir) {
  const UniqueFd run = TRY(open_run_dir(dirs));
  return remove_locked(run.get(), dir);
}

int sweep_temporary_data_dirs(const HostDirs& dirs) {
  const auto run = open_run_dir(dirs);
  if (!run) return 0;
  const auto names = sys::list_names(run->get(), kMaxLeft);
  if (!names) return 0;
  int removed = 0;
  for (const auto& name : *names) {
    DataDir dir;
    dir.id = name;
    dir.path = dirs.data + "/" + kRunDir + "/" + name;
    auto directory = sys::open_beneath(run->get(), name, O_PATH | O_DIRECTORY);
    if (!directory) continue;
    dir.directory = std::move(*directory);
    if (name.starts_with(kStaged)) {
      // Staged for a moment only; older than a minute, its maker is gone.
      struct stat st{};
      if (fstat(dir.directory.get(), &st) != 0 || time(nullptr) - st.st_mtime < 60) continue;
    }
    auto lock = sys::open_beneath(dir.directory.get(), "lock", O_RDONLY);
    if (lock) {
      if (flock(lock->get(), LOCK_EX | LOCK_NB) != 0) continue;
      dir.lock = std::move(*lock);
    }
    if (remove_locked(run->get(), dir)) ++removed;
  }
  return removed;
}

}  // namespace temenos::box
