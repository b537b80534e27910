// Making and removing directories on behalf of the tools outside, with init's rights inside the
// box. Symlinks on the way are followed as the box's programs would; one that is named itself is
// removed, never what it leads to. Other processes of the box may change the tree at the same time:
// then something may be left, but nothing is removed that was not in it.
//
// Thread-safety: none.
#pragma once

#include <dirent.h>
#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "wire/box_protocol.h"

namespace temenos::init {

// MKDIR, at once: FILE_DONE or ERROR.
void make_directory(std::uint32_t id, const box_wire::Mkdir& request, ByteQueue& out);

// A directory and all below it, of any depth, piece by piece. The names of the uppermost levels and
// an open descriptor for each are kept; below them only 16 bytes a level.
class TreeRemoval {
 public:
  enum class Progress { kMore, kDone, kFailed };

  // Removes `path` at once when it is no directory or not `recursive`. Null when it ended with
  // that; `error` is then 0 or its errno, `count` what was removed.
  static std::unique_ptr<TreeRemoval> start(const box_wire::Remove& request, int& error,
                                            std::uint64_t& count);
  ~TreeRemoval();
  TreeRemoval(const TreeRemoval&) = delete;
  TreeRemoval& operator=(const TreeRemoval&) = delete;

  // Works for a few milliseconds. It stops at the first entry that cannot be removed: error() then
  // says why. A mount point is EBUSY, and nothing below it is touched.
  Progress step();
  int error() const { return error_; }
  std::uint64_t count() const { return count_; }

 private:
  struct Level {
    DIR* listing = nullptr;  // null: closed to spare descriptors; read from its start again
    std::string name;        // in the level above; empty: whatever it is called by now
    dev_t device = 0;
    ino_t inode = 0;
    int rounds = 0;  // how often its listing was begun again because something was left
  };
  TreeRemoval() = default;
  int open_level(int parent, const char* name);
  int leave_level();
  int remove_entry(const dirent& entry);

  UniqueFd parent_;
  std::vector<Level> levels_;  // from the directory to remove down to the one that is emptied now
  int error_ = 0;
  std::uint64_t count_ = 0;
};

}  // namespace temenos::init
