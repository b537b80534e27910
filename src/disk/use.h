// How much of a file system the files of one box take, counted from outside. The files are hostile:
// any depth, any number, any names, and changed while they are counted unless somebody has made the
// box stand still.
//
// Thread-safety: plain functions.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "temenos/error.h"

namespace temenos::disk {

struct Use {
  std::uint64_t bytes = 0;  // blocks, as du(1) counts them
  std::uint64_t files = 0;  // inodes: files, directories, symlinks
};

// A limit of bytes is one of files, too: of one for each block that a file usually takes at least.
// Else empty files could use up all inodes of the file system.
struct Limit {
  std::uint64_t bytes = 0;
  std::uint64_t files = 0;
  static constexpr std::uint64_t kBytesPerFile = 4096;
  static Limit of_mb(std::int64_t mb) {
    const auto bytes = static_cast<std::uint64_t>(mb) << 20;
    return {bytes, bytes / kBytesPerFile};
  }
  bool is_over(const Use& use) const { return use.bytes > bytes || use.files > files; }
};

// "131 MiB (17 files)"
std::string describe(const Use& use);
std::string describe(const Limit& limit);

// `directory` and all below it on its file system. Counts no further once there are more than
// `max_files`. Memory: 16 bytes for each level of the deepest directory; two descriptors. Each name
// of a file with several counts for its share, which is exact when none of them lies elsewhere and
// nothing changes meanwhile. kConflict: directories were moved meanwhile, or `cancel_fd` has become
// readable.
Result<Use> use_of_tree(int directory, std::uint64_t max_files, int cancel_fd = -1);

// The processes of a sandbox that can hold files, each as its directory in /proc: all that are at
// most two generations from process 1 of the calling process' PID namespace, without the caller.
// (gVisor's further ones share the descriptors of their parent, and there may be thousands: none of
// them is held open.) An error when one of those meant may have been missed.
Result<std::vector<UniqueFd>> sandbox_processes();

// What they have open of files that have no name any more. `devices`: of the files meant, as those
// processes see them (the overlay) and as they are. An error when something was not seen.
Result<Use> use_of_nameless(const std::vector<UniqueFd>& processes,
                            const std::array<dev_t, 2>& devices);

// The processes stand still (SIGSTOP) while it lives. Their children run on: gVisor runs the
// guest's code there, which does nothing with files but to write in memory that it has mapped.
class StandStill {
 public:
  // Borrowed. Waits until they do, for at most 5 ms: who is in the middle of a large
  // write finishes that first.
  explicit StandStill(const std::vector<UniqueFd>& processes);
  ~StandStill();
  StandStill(const StandStill&) = delete;
  StandStill& operator=(const StandStill&) = delete;

 private:
  const std::vector<UniqueFd>& processes_;
};

void kill_all(const std::vector<UniqueFd>& processes);

}  // namespace temenos::disk
