#include "disk/budget.h"

#include <linux/magic.h>
#include <sys/vfs.h>

#include <algorithm>
#include <cerrno>
#include <iterator>

namespace temenos::disk {
namespace {

using namespace std::chrono_literals;

// A box that is near its limit is not counted for each byte.
constexpr std::uint64_t kSlackShare = 64;
constexpr std::uint64_t kMinSlackBytes = 256 * 1024;
constexpr std::uint64_t kMinSlackFiles = 64;
// What a box may use up more while its host has too little.
constexpr std::uint64_t kLowBytes = std::uint64_t{1} << 20;
constexpr std::uint64_t kLowFiles = 256;
// Until a box that is seen to be too fast stands still.
constexpr auto kAhead = 25ms;
constexpr auto kSpeedFades = 100ms;  // in which what was once seen of it is forgotten
// A count that takes little time is not made more than so often by what others write.
constexpr auto kPause = 15ms;
// Nobody uses up more in a second, if he was not seen to do so.
constexpr std::uint64_t kFastestBytes = std::uint64_t{2} << 30;
constexpr std::uint64_t kFastestFiles = 100'000;
constexpr auto kShortInterval = 5ms;
constexpr auto kLongInterval = 500ms;
// Where nothing has been used up for so long, whoever begins to may get that part of his limit
// further: a box that does nothing need not wake anybody to have that seen.
constexpr auto kQuiet = 1s;
constexpr std::uint64_t kQuietShare = 8;
constexpr auto kQuietInterval = 20ms;  // but not oftener, and after a while not even that
constexpr auto kLongQuietInterval = 50ms;
constexpr int kQuietSteps = 200;
// Of counts while the box runs, which cost it little of its time.
constexpr auto kLivePeriod = 5s;
constexpr int kLiveShare = 50;
constexpr auto kLatePeriod = 100ms;  // where free space is told late
constexpr int kLateShare = 20;
constexpr auto kShortCount = 50ms;  // mostly that of a machine that has much to do
constexpr int kShortLateShare = 5;
constexpr auto kLateInterval = 20ms;

// Those of which it is known.
constexpr std::uint32_t kPromptTypes[] = {EXT4_SUPER_MAGIC, XFS_SUPER_MAGIC, TMPFS_MAGIC,
                                          F2FS_SUPER_MAGIC};

std::uint64_t part(std::uint64_t of, Budget::Clock::duration time) {
  return static_cast<std::uint64_t>(static_cast<double>(of) *
                                    std::chrono::duration<double>(time).count());
}

// In which `amount` can be used up.
std::chrono::milliseconds time_for(std::uint64_t amount, std::uint64_t fastest) {
  const double seconds = static_cast<double>(amount) / static_cast<double>(fastest);
  return std::chrono::milliseconds(static_cast<int>(std::min(seconds, 1.0) * 1000));
}

std::uint64_t less(std::uint64_t from, std::uint64_t what) { return from > what ? from - what : 0; }

std::uint64_t slack(std::uint64_t limit, std::uint64_t least) {
  return std::max(limit / kSlackShare, std::min(least, limit));
}

std::uint64_t floor_of(std::uint64_t total, std::uint64_t most) {
  return std::min(most, total / Budget::kHostShare);
}

}  // namespace

Result<Space> space_of(int fd) {
  struct statfs st{};
  if (fstatfs(fd, &st) != 0) return fail_errno(errno, "fstatfs");
  const auto block = static_cast<std::uint64_t>(st.f_frsize);
  Space space{st.f_bavail * block, st.f_ffree, st.f_blocks * block, st.f_files};
  space.is_prompt = std::find(std::begin(kPromptTypes), std::end(kPromptTypes),
                              static_cast<std::uint32_t>(st.f_type)) != std::end(kPromptTypes);
  return space;
}

// How much has to be used up until the box may be over.
Budget::Amount Budget::room() const {
  return {std::max(less(limit_.bytes, sure_.bytes), slack(limit_.bytes, kMinSlackBytes)),
          std::max(less(limit_.files, sure_.files), slack(limit_.files, kMinSlackFiles))};
}

bool Budget::host_is_low() const {
  return space_->free_bytes < floor_of(space_->total_bytes, kHostBytes) ||
         (space_->total_files > 0 &&
          space_->free_files < floor_of(space_->total_files, kHostFiles));
}

void Budget::see_fall(const Space& space, Clock::time_point now) {
  const Amount fall{less(space_->free_bytes, space.free_bytes),
                    less(space_->free_files, space.free_files)};
  fallen_.bytes += fall.bytes;
  fallen_.files += fall.files;
  if (fall.bytes > 0 || fall.files > 0) last_fall_ = now;
  // Who has just stood still is as fast again at once.
  const std::chrono::duration<double> time = std::max<Clock::duration>(now - looked_, 1ms);
  const double fading = std::max(1 - time / kSpeedFades, 0.0);
  const auto faster = [&](std::uint64_t before, std::uint64_t what) {
    return static_cast<std::uint64_t>(
        std::max(static_cast<double>(before) * fading, static_cast<double>(what) / time.count()));
  };
  speed_ = {faster(speed_.bytes, fall.bytes), faster(speed_.files, fall.files)};
}

bool Budget::may_be_over() const {
  const Amount room = this->room();
  return fallen_.bytes + part(speed_.bytes, kAhead) >= room.bytes ||
         fallen_.files + part(speed_.files, kAhead) >= room.files;
}

Budget::Look Budget::look(const Space& space, Clock::time_point now) {
  if (space_) see_fall(space, now);
  if (!space_) last_fall_ = now;
  looked_ = now;
  space_ = space;
  const bool low = host_is_low();
  if (!low) use_at_low_.reset();
  Look look = Look::kNone;
  if (may_be_over() ||
      (low && (!use_at_low_ || fallen_.bytes >= kLowBytes || fallen_.files >= kLowFiles))) {
    // A host on which others write as well: the box has at least half of the time.
    if (now >= next_still_) look = Look::kStill;
  } else if (now >= next_live_ &&
             (!space.is_prompt || !counted_ || counted_->free_bytes != space.free_bytes ||
              counted_->free_files != space.free_files)) {
    look = Look::kLive;
    next_live_ = now + kLivePeriod;
  }
  if (look != Look::kNone) counted_ = space;
  return look;
}

Budget::Verdict Budget::counted(const Use& use, bool still, Clock::time_point begin,
                                Clock::time_point end) {
  const auto took = end - begin;
  if (still)
    next_still_ =
        end + std::max<Clock::duration>(took, std::min<Clock::duration>(4 * took, kPause));
  const bool late = !space_ || !space_->is_prompt;
  const int late_share = took <= kShortCount ? kShortLateShare : kLateShare;
  next_live_ = end + (late ? std::max<Clock::duration>(kLatePeriod, late_share * took)
                           : std::max<Clock::duration>(kLivePeriod, kLiveShare * took));
  const Use before = use_;
  use_ = use;
  if (!still) {
    // What was not found may have been hidden; what was found is there, or was.
    sure_.bytes = std::max(sure_.bytes, use.bytes);
    sure_.files = std::max(sure_.files, use.files);
    if (limit_.is_over(use)) fallen_ = {limit_.bytes, limit_.files};
    return Verdict::kGood;
  }
  // What has been used up since that look is seen by the next one.
  sure_ = use;
  fallen_ = {};
  if (limit_.is_over(use)) return Verdict::kOverLimit;
  if (!space_ || !host_is_low()) return Verdict::kGood;
  // `before` may have been too much: counted while it moved its files about.
  if (!use_at_low_) {
    use_at_low_ = Use{std::min(before.bytes, use.bytes), std::min(before.files, use.files)};
  }
  if (use.bytes >= use_at_low_->bytes + kLowBytes || use.files >= use_at_low_->files + kLowFiles) {
    return Verdict::kHostFull;
  }
  return Verdict::kGood;
}

std::chrono::milliseconds Budget::interval() const {
  if (!space_) return kShortInterval;
  if (!space_->is_prompt) return kLateInterval;
  const Amount room = this->room();
  Amount left{less(room.bytes, fallen_.bytes), less(room.files, fallen_.files)};
  const bool quiet = looked_ - last_fall_ >= kQuiet;
  if (quiet)
    left = {left.bytes + limit_.bytes / kQuietShare, left.files + limit_.files / kQuietShare};
  left.bytes =
      std::min(left.bytes, less(space_->free_bytes, floor_of(space_->total_bytes, kHostBytes)));
  if (space_->total_files > 0) {
    left.files =
        std::min(left.files, less(space_->free_files, floor_of(space_->total_files, kHostFiles)));
  }
  const auto time = std::min(time_for(left.bytes, std::max(kFastestBytes, speed_.bytes)),
                             time_for(left.files, std::max(kFastestFiles, speed_.files)));
  const auto rest =
      std::chrono::floor<std::chrono::milliseconds>(looked_ - last_fall_) / kQuietSteps;
  const auto least =
      quiet ? std::clamp<std::chrono::milliseconds>(rest, kQuietInterval, kLongQuietInterval)
            : std::chrono::milliseconds(kShortInterval);
  return std::clamp<std::chrono::milliseconds>(time / 2, least, kLongInterval);
}

}  // namespace temenos::disk
