// The directories of boxes on the host: layout, staged creation, locks, removal. All below
// $XDG_DATA_HOME/temenos, mode 0700, hidden from every box.
//
//   run/<random>/     boxes of `temenos run`, gone with the box
//   boxes/<id>/       boxes with a name, until they are removed
//     temenos-box.json  name, scope, policy (box/box_record.h); not in run/. The name is in
//                     box/autoexec.list, for a data dir that a later call does not know as one
//     lock            flock(2), shared: by every process outside the sandbox that keeps the box
//                     alive (starter, keeper, helper), each with an open file description that
//                     nothing in the sandbox has; free when all of them are gone
//     turn            flock(2), exclusive: who starts, removes or changes the box; held briefly
//     writes          the host directories that the live box writes, each ended by NUL
//     watched         what host programs obey in them, as it was before the box started
//     keeper.sock     where the keeper of a live box listens; not in run/
//     audit.jsonl     what happened, and audit.jsonl.1 before it
//     jobs/<n>/       detached commands and their output
//     box/            upper, work, base: owned by the box's root, see keeper/rootfs.h
//   .new-<random>     a data dir while it is made; it gets its name when it is whole
//   .gone-<random>    a data dir while it is removed; its name is free at once
//
// The lock says whether somebody keeps the box alive. It does not say that the last process of the
// sandbox is gone: when keeper or helper are killed, their descriptors close a moment before the
// kernel has ended the sandbox. That no second sandbox ever writes in one upper is kept by the
// kernel: the overlay is mounted exclusively (keeper/rootfs.h).
//
// Thread-safety: plain functions; locks hold between processes and between objects.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "temenos/error.h"

namespace temenos::store {

enum class Kind { kRun, kBoxes };

struct DataDir {
  std::string path;
  std::string id;
  UniqueFd directory;  // O_PATH
  UniqueFd life;       // the lock, held shared; empty: not held by this object
};

// A new directory, staged, with its life lock held.
Result<DataDir> stage(const std::string& data, Kind kind);
// Gives it its name: from here on others see it. kAlreadyExists when the name is taken.
Result<void> publish(const std::string& data, Kind kind, DataDir& dir, const std::string& id);
// Opens one by name; no lock is taken. kNotFound when there is none.
Result<DataDir> open(const std::string& data, Kind kind, const std::string& id);
// The published ones, in no order.
Result<std::vector<std::string>> list(const std::string& data, Kind kind);

// Waits for its turn to start, remove or change the box; kConflict after `patience`.
Result<UniqueFd> take_turn(const DataDir& dir, std::chrono::milliseconds patience);
// Takes the life lock for a start; kConflict when somebody still holds it after `patience`. The
// caller has the turn.
Result<void> take_life(DataDir& dir, std::chrono::milliseconds patience);
// Somebody keeps the box alive.
bool is_alive(const DataDir& dir);

// Notes which host directories the box of `dir` writes, so that no other live box of this user
// starts with an overlapping one: kConflict, unless `shared`. Sees boxes that started before; those
// that start later see this. The caller holds the life lock of `dir`.
Result<void> claim_writable(const std::string& data, const DataDir& dir,
                            const std::vector<std::string>& paths, bool shared);

// Removes what the box itself wrote, below the data dir: its owner is the box's root.
using RemoveContent = Result<void> (*)(int data_dir);

// Removes it with all in it: its name is free as soon as this has begun. The caller holds the turn
// or knows by other means that nobody starts it.
Result<void> remove(const std::string& data, Kind kind, DataDir dir, RemoveContent content);

// Removes what a killed process left half-made or half-removed, and all boxes of kRun whose every
// process is gone. Returns how many.
int sweep(const std::string& data, Kind kind, RemoveContent content);

}  // namespace temenos::store
