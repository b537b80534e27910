#include "store/data_dir.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <thread>

#include "base/text.h"
#include "base/try.h"
#include "policy/paths.h"
#include "store/atomic_file.h"
#include "sys/file_sys.h"

namespace temenos::store {
namespace {

constexpr char kStaged[] = ".new-";
constexpr char kGone[] = ".gone-";
constexpr char kLock[] = "lock";
constexpr char kTurn[] = "turn";
constexpr char kWrites[] = "writes";
constexpr std::size_t kMaxWrites = 1u << 20;
constexpr std::size_t kMaxDirs = 10'000;
// Staged for a moment only; older than this, its maker is gone.
constexpr time_t kStagedSeconds = 60;
constexpr std::chrono::milliseconds kLockStep{2};

const char* name_of(Kind kind) { return kind == Kind::kRun ? "run" : "boxes"; }

tl::unexpected<Error> cannot(Error error, const std::string& what) {
  return tl::make_unexpected(std::move(error).with_context(what).with_hint(kDiskHint));
}

// flock(2) with a limit: there is no such call, and a signal would need the whole process.
Result<void> lock_within(int fd, int how, std::chrono::milliseconds patience, const char* busy) {
  const auto end = std::chrono::steady_clock::now() + patience;
  while (flock(fd, how | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) return fail_errno(errno, "flock");
    if (std::chrono::steady_clock::now() >= end) {
      return fail(Code::kConflict, busy, "try again, or stop the box first");
    }
    std::this_thread::sleep_for(kLockStep);
  }
  return {};
}

bool is_locked(int directory) {
  const auto lock = sys::open_beneath(directory, kLock, O_RDONLY);
  return lock && flock(lock->get(), LOCK_EX | LOCK_NB) != 0;
}

// What the box of this data dir writes; nothing when it is no longer alive, or claims nothing. What
// cannot be read might claim anything.
Result<std::vector<std::string>> writes_of_live_box(int all, const std::string& name) {
  const auto directory = sys::open_beneath(all, name, O_PATH | O_DIRECTORY);
  // Something else that lies there.
  if (!directory &&
      (directory.error().sys_errno == ENOTDIR || directory.error().sys_errno == ELOOP)) {
    return std::vector<std::string>{};
  }
  const auto lock = directory ? sys::open_beneath(directory->get(), kLock, O_RDONLY)
                              : Result<UniqueFd>(tl::make_unexpected(directory.error()));
  if (lock && flock(lock->get(), LOCK_EX | LOCK_NB) == 0) return std::vector<std::string>{};
  const auto file = lock ? sys::open_beneath(directory->get(), kWrites, O_RDONLY)
                         : Result<UniqueFd>(tl::make_unexpected(lock.error()));
  if (!file && file.error().code == Code::kNotFound) return std::vector<std::string>{};
  if (!file) {
    return tl::make_unexpected(
        Error(file.error()).with_context("what the box " + name + " writes"));
  }
  auto paths = split(TRY(sys::read_all(file->get(), kMaxWrites)), '\0');
  paths.pop_back();  // after the last NUL
  return paths;
}

Result<void> check_overlap(int all, const std::string& own, const std::vector<std::string>& paths) {
  for (const auto& name : TRY(sys::list_names(all, kMaxDirs))) {
    // A staged one claims nothing yet; and a try of its lock could be what its maker meets.
    if (name == own || name.starts_with('.')) continue;
    for (const auto& other : TRY(writes_of_live_box(all, name))) {
      for (const auto& path : paths) {
        if (!is_at_or_below(path, other) && !is_at_or_below(other, path)) continue;
        return fail(
            Code::kConflict, "another live box writes in " + escape(other),
            "wait until it has ended, or name the risk that the two meet there: --allow-danger "
            "shared-write");
      }
    }
  }
  return {};
}

// Who has locked the directory itself removes it; others leave it alone. Empty: somebody does.
Result<UniqueFd> claim_removal(int all, const std::string& name) {
  UniqueFd directory = TRY(sys::open_beneath(all, name, O_RDONLY | O_DIRECTORY));
  if (flock(directory.get(), LOCK_EX | LOCK_NB) == 0) return directory;
  if (errno != EWOULDBLOCK) return fail_errno(errno, "locking " + escape(name));
  return UniqueFd();
}

Result<void> remove_content(int all, int directory, const std::string& name,
                            RemoveContent content) {
  TRY(content(directory));
  return sys::remove_tree(all, name);
}

// The directory of all of `kind`, made where missing.
Result<UniqueFd> open_all(const std::string& data, Kind kind) {
  const UniqueFd root(::open(data.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!root) return fail_errno(errno, "opening " + escape(data), kDiskHint);
  auto all = sys::make_directories(root.get(), name_of(kind), 0700);
  if (!all) return cannot(std::move(all).error(), "cannot use " + escape(data));
  return all;
}

// As open_all(), but what is not there stays so.
Result<UniqueFd> open_existing(const std::string& data, Kind kind) {
  return sys::open_canonical(data + "/" + name_of(kind));
}

}  // namespace

Result<DataDir> stage(const std::string& data, Kind kind) {
  const UniqueFd all = TRY(open_all(data, kind));
  DataDir dir;
  dir.id = kStaged + random_hex(8);
  dir.path = data + "/" + name_of(kind) + "/" + dir.id;
  if (mkdirat(all.get(), dir.id.c_str(), 0700) != 0) {
    return fail_errno(errno, "cannot make " + escape(dir.path), kDiskHint);
  }
  auto made = [&]() -> Result<void> {
    dir.directory = TRY(sys::open_beneath(all.get(), dir.id, O_PATH | O_DIRECTORY));
    dir.life =
        TRY(sys::open_beneath(dir.directory.get(), kLock, O_RDONLY | O_CREAT | O_EXCL, 0600));
    if (flock(dir.life.get(), LOCK_SH | LOCK_NB) != 0) return fail_errno(errno, "locking it");
    (void)TRY(sys::open_beneath(dir.directory.get(), kTurn, O_RDONLY | O_CREAT | O_EXCL, 0600));
    return {};
  }();
  if (!made) {
    (void)sys::remove_tree(all.get(), dir.id);
    return cannot(std::move(made).error(), "cannot make " + escape(dir.path));
  }
  return dir;
}

Result<void> publish(const std::string& data, Kind kind, DataDir& dir, const std::string& id) {
  const UniqueFd all = TRY(open_existing(data, kind));
  if (renameat2(all.get(), dir.id.c_str(), all.get(), id.c_str(), RENAME_NOREPLACE) != 0) {
    return fail_errno(errno, "cannot name " + escape(dir.path), kDiskHint);
  }
  dir.id = id;
  dir.path = data + "/" + name_of(kind) + "/" + id;
  return {};
}

Result<DataDir> open(const std::string& data, Kind kind, const std::string& id) {
  const UniqueFd all = TRY(open_existing(data, kind));
  DataDir dir;
  dir.id = id;
  dir.path = data + "/" + name_of(kind) + "/" + id;
  dir.directory = TRY(sys::open_beneath(all.get(), id, O_PATH | O_DIRECTORY));
  return dir;
}

Result<std::vector<std::string>> list(const std::string& data, Kind kind) {
  const auto all = open_existing(data, kind);
  if (!all && all.error().code == Code::kNotFound) return std::vector<std::string>{};
  if (!all) return tl::make_unexpected(all.error());
  auto names = TRY(sys::list_names(all->get(), kMaxDirs));
  std::erase_if(names, [](const std::string& name) { return name.starts_with('.'); });
  return names;
}

Result<UniqueFd> take_turn(const DataDir& dir, std::chrono::milliseconds patience) {
  auto turn = sys::open_beneath(dir.directory.get(), kTurn, O_RDONLY);
  if (!turn && turn.error().code != Code::kNotFound) return tl::make_unexpected(turn.error());
  if (turn) {
    TRY(lock_within(turn->get(), LOCK_EX, patience,
                    "the box is being started, stopped or removed"));
    // Removed before, or while we waited, or by one who was killed in the middle: its name is
    // another one's by now, or nobody's.
    const auto named = sys::open_canonical(dir.path);
    if (named && TRY(sys::same_file(named->get(), dir.directory.get()))) return std::move(*turn);
  }
  return fail(Code::kNotFound, "the box was removed", "make it again");
}

Result<void> take_life(DataDir& dir, std::chrono::milliseconds patience) {
  UniqueFd life = TRY(sys::open_beneath(dir.directory.get(), kLock, O_RDONLY));
  TRY(lock_within(life.get(), LOCK_EX, patience, "the box is still running"));
  // Not atomic, but nobody without the turn takes it but for a look (is_locked()).
  TRY(lock_within(life.get(), LOCK_SH, patience, "the box is still running"));
  dir.life = std::move(life);
  return {};
}

bool is_alive(const DataDir& dir) { return is_locked(dir.directory.get()); }

Result<void> claim_writable(const std::string& data, const DataDir& dir,
                            const std::vector<std::string>& paths, bool shared) {
  // One claim at a time: of two that start together, the second sees the first.
  const UniqueFd root = TRY(sys::open_canonical(data));
  const UniqueFd turn = TRY(sys::open_beneath(root.get(), ".", O_RDONLY | O_DIRECTORY));
  if (flock(turn.get(), LOCK_EX) != 0) return fail_errno(errno, "waiting for another box to start");
  if (!shared) {
    for (const Kind kind : {Kind::kRun, Kind::kBoxes}) {
      const auto all = open_existing(data, kind);
      if (all) TRY(check_overlap(all->get(), dir.id, paths));
      if (!all && all.error().code != Code::kNotFound) return tl::make_unexpected(all.error());
    }
  }
  std::string text;
  for (const auto& path : paths) text += path + '\0';
  auto written = write_atomically(dir.directory.get(), kWrites, text);
  if (!written) return cannot(std::move(written).error(), "cannot use " + escape(dir.path));
  return {};
}

Result<void> remove(const std::string& data, Kind kind, DataDir dir, RemoveContent content) {
  const UniqueFd all = TRY(open_existing(data, kind));
  const UniqueFd directory = TRY(claim_removal(all.get(), dir.id));
  // A sweep has found it first.
  if (!directory) return {};
  const std::string gone = kGone + random_hex(8);
  if (renameat(all.get(), dir.id.c_str(), all.get(), gone.c_str()) != 0) {
    return fail_errno(errno, "removing " + escape(dir.path), kDiskHint);
  }
  auto removed = remove_content(all.get(), directory.get(), gone, content);
  if (!removed) {
    return tl::make_unexpected(
        std::move(removed).error().with_context("removing " + escape(dir.path)));
  }
  return {};
}

int sweep(const std::string& data, Kind kind, RemoveContent content) {
  const auto all = open_existing(data, kind);
  if (!all) return 0;
  const auto names = sys::list_names(all->get(), kMaxDirs);
  if (!names) return 0;
  int removed = 0;
  for (const auto& name : *names) {
    const bool staged = name.starts_with(kStaged);
    if (!staged && !name.starts_with(kGone) && kind != Kind::kRun) continue;
    const auto found = sys::open_beneath(all->get(), name, O_PATH | O_DIRECTORY);
    if (!found) continue;
    struct stat st{};
    if (staged && (fstat(found->get(), &st) != 0 || time(nullptr) - st.st_mtime < kStagedSeconds)) {
      continue;
    }
    const auto lock = sys::open_beneath(found->get(), kLock, O_RDONLY);
    // Held: it lives.
    if (lock && flock(lock->get(), LOCK_EX | LOCK_NB) != 0) continue;
    // Only now: who removes one of his own must never find it claimed by a sweep that leaves it.
    const auto directory = claim_removal(all->get(), name);
    if (!directory || !*directory) continue;
    if (remove_content(all->get(), directory->get(), name, content)) ++removed;
  }
  return removed;
}

}  // namespace temenos::store
