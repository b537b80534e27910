// When to look at what a box uses of its disk, and when that is too much: the decisions, without
// any system call.
//
// Counting a box's files takes time, asking a file system how much of it is free takes none. So
// that is asked often: the oftener the less there is to be used up, and seldom while nobody uses up
// anything. The files are counted when so much has been used up, by whomever, that the box may be
// over its limit before it stands still. The box stands still for that count: while it runs it
// could move its files about where they are just not looked for. Without it, every few seconds,
// they are counted for those who want to know, and for what the free space does not tell: when
// others free as much as the box takes. Some file systems (btrfs) say too late what they have
// promised; there that is done as often as it costs little.
//
// Thread-safety: plain values.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

#include "disk/use.h"

namespace temenos::disk {

// Of the file system that the box's files lie on.
struct Space {
  std::uint64_t free_bytes = 0;  // for who is not root
  std::uint64_t free_files = 0;
  std::uint64_t total_bytes = 0;
  std::uint64_t total_files = 0;  // 0: no fixed number
  // What is written is taken from the free space at once, and not only when it reaches the disk.
  bool is_prompt = true;
};
Result<Space> space_of(int fd);

class Budget {
 public:
  using Clock = std::chrono::steady_clock;
  enum class Look { kNone, kLive, kStill };
  enum class Verdict { kGood, kOverLimit, kHostFull };

  // What is left to the host in any case: a box with a limit that goes on to write is ended before.
  static constexpr std::uint64_t kHostBytes = std::uint64_t{256} << 20;
  static constexpr std::uint64_t kHostFiles = 65'536;
  static constexpr std::uint64_t kHostShare = 20;  // or one of so many parts, if that is less

  explicit Budget(const Limit& limit) : limit_(limit) {}

  // Is it time to count? The caller then does so and says what it found; not to be asked again
  // before, when it is to be counted while the box stands still.
  Look look(const Space& space, Clock::time_point now);
  // `still`: the box did not run meanwhile.
  Verdict counted(const Use& use, bool still, Clock::time_point begin, Clock::time_point end);
  // Until the next look().
  std::chrono::milliseconds interval() const;
  // By the last count.
  const Use& use() const { return use_; }
  // By the last look.
  std::uint64_t free_bytes() const { return space_ ? space_->free_bytes : 0; }

 private:
  struct Amount {
    std::uint64_t bytes = 0;
    std::uint64_t files = 0;
  };
  Amount room() const;
  bool host_is_low() const;
  void see_fall(const Space& space, Clock::time_point now);
  bool may_be_over() const;

  Limit limit_;
  Use use_;
  Use sure_;  // it takes so much at least: by the last count for which it stood still
  std::optional<Space> space_;     // at the last look
  std::optional<Space> counted_;   // when the last count began
  Amount fallen_;                  // how much less was free from look to look, since sure_
  Amount speed_;                   // of that, in a second, of late
  std::optional<Use> use_at_low_;  // by the last count before the host had too little
  Clock::time_point looked_;
  Clock::time_point last_fall_;
  Clock::time_point next_still_;
  Clock::time_point next_live_;
};

}  // namespace temenos::disk
