#include "keeper/disk_watch.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "base/text.h"
#include "base/try.h"
#include "disk/meter.h"
#include "disk/quota.h"
#include "sys/file_sys.h"
#include "sys/process_sys.h"

namespace temenos::keeper {
namespace {

using namespace std::chrono_literals;

// Who is in the middle of a large write goes on with it. That is no reason to wait: a kill is what
// ends it.
constexpr int kStopMs = 5;
// A box that cannot be counted is not left alone. What cannot be counted at once is mostly a child
// of helper that is not yet runsc, and a machine that has much to do may leave it so for a while.
constexpr auto kPatience = 60s;
constexpr int kMaxFailures = 3;
constexpr auto kMaxFailing = 2s;
constexpr auto kNextTry = 10ms;  // in which the box runs, so that whatever it is can pass
constexpr auto kMoment = 2s;

Error too_much(const disk::Use& use, const disk::Limit& limit, const LaunchSpec& spec) {
  Error error;
  error.code = Code::kExhausted;
  error.what = "the box's files take " + disk::describe(use) + ", and limits.disk_mb allows " +
               disk::describe(limit);
  error.hint = spec.durable ? "raise disk_mb in " + escape(spec.data_dir) +
                                  "/temenos-box.json, or remove the box"
                            : "raise limits.disk_mb (--disk)";
  return error;
}

}  // namespace

Result<void> DiskWatch::begin(const LaunchSpec& spec, int data_dir) {
  const bool root = geteuid() == 0;
  if (spec.limits.disk_mb == 0 || spec.scratch != Scratch::kDisk) {
    // It may have had one in an earlier life.
    if (root) disk::release_quota(data_dir);
    return {};
  }
  limit_ = disk::Limit::of_mb(spec.limits.disk_mb);
  files_ = TRY(sys::open_beneath(data_dir, "box", O_RDONLY | O_DIRECTORY));
  const auto held = disk::hold_by_quota(data_dir, files_.get(), limit_);
  by_quota_ = held.has_value();
  if (by_quota_) return {};
  // Also where its files take more already: then the first count refuses it, and knows how much.
  why_watched_ =
      "the limit of disk is watched, not kept by the kernel (" + held.error().to_string() + ")";
  budget_.emplace(limit_);
  auto [here, there] = TRY(sys::socket_pair(SOCK_SEQPACKET));
  here_ = std::move(here);
  there_ = std::move(there);
  asked_ = Asked{0, true, {}};
  return {};
}

int DiskWatch::timeout_ms() const {
  if (!next_look_) return -1;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(*next_look_ - Clock::now());
  return static_cast<int>(std::max<std::int64_t>(left.count(), 0));
}

std::optional<LimitEnd> DiskWatch::ask(bool still, cgroup::Group& group) {
  disk::Ask ask;
  ask.number = ++last_number_;
  ask.max_bytes = limit_.bytes;
  ask.max_files = limit_.files;
  ask.still = still ? 1 : 0;
  asked_ = Asked{ask.number, still, Clock::now()};
  if (still && group.can_freeze()) {
    stopped_ = true;
    const auto frozen = group.freeze(true, kStopMs);
    // Who is late stands still soon; a group that cannot be frozen does not stand still at all.
    if (!frozen && frozen.error().code != Code::kTimedOut) ask.stop = 1;
  } else {
    ask.stop = still ? 1 : 0;
  }
  if (disk::send(here_.get(), ask)) return std::nullopt;
  return LimitEnd{EndReason::kHelperDied, ""};
}

std::optional<LimitEnd> DiskWatch::hear(cgroup::Group& group) {
  const auto answer = disk::receive_answer(here_.get());
  if (!answer) {
    here_.reset();
    // Mostly helper is gone as well, and its message says more.
    next_look_ = Clock::now() + kMoment;
    return std::nullopt;
  }
  if (!asked_ || answer->number != asked_->number) return std::nullopt;
  Asked asked = *asked_;
  asked_.reset();
  next_look_ = Clock::now();
  // Helper's own, which it makes at a time of its choice.
  if (asked.number == 0) asked.begin = *next_look_;
  if (answer->sys_errno != 0) {
    let_go(group);
    if (!asked.still) return std::nullopt;
    const auto now = Clock::now();
    if (failures_++ == 0) failing_since_ = now;
    next_look_ = now + kNextTry;
    if (failures_ < kMaxFailures || now - failing_since_ < kMaxFailing) return std::nullopt;
    return LimitEnd{EndReason::kDiskLimit,
                    std::string(": its files cannot be counted: ") + strerror(answer->sys_errno)};
  }
  failures_ = 0;
  const disk::Use use{answer->bytes, answer->files};
  const auto verdict = budget_->counted(use, asked.still, asked.begin, Clock::now());
  switch (verdict) {
    case disk::Budget::Verdict::kOverLimit:
      return LimitEnd{EndReason::kDiskLimit, ": its files take " + disk::describe(use) +
                                                 ", and it may have " + disk::describe(limit_)};
    case disk::Budget::Verdict::kHostFull:
      return LimitEnd{EndReason::kDiskLimit, ": the file system that its files lie on has only " +
                                                 std::to_string(budget_->free_bytes() >> 20) +
                                                 " MiB left"};
    case disk::Budget::Verdict::kGood:
      break;
  }
  let_go(group);
  return std::nullopt;
}

std::optional<LimitEnd> DiskWatch::look(cgroup::Group& group) {
  const auto now = Clock::now();
  if (!here_) {
    return LimitEnd{EndReason::kHelperDied, " (the one that counts what its files take)"};
  }
  next_look_ = now + budget_->interval();
  if (asked_ && asked_->still) {
    if (now - asked_->begin < kPatience) return std::nullopt;
    return LimitEnd{EndReason::kDiskLimit, ": its files could not be counted in a minute"};
  }
  const auto space = disk::space_of(files_.get());
  if (!space) {
    return LimitEnd{
        EndReason::kDiskLimit,
        ": how much is free cannot be told: " + std::string(strerror(space.error().sys_errno)), ""};
  }
  const auto look = budget_->look(*space, now);
  if (look == disk::Budget::Look::kStill) return ask(true, group);
  if (look == disk::Budget::Look::kLive && !asked_) return ask(false, group);
  return std::nullopt;
}

std::optional<LimitEnd> DiskWatch::check(short revents, cgroup::Group& group) {
  if (revents != 0) {
    if (auto end = hear(group)) return end;
  }
  if (!next_look_ || Clock::now() < *next_look_) return std::nullopt;
  return look(group);
}

void DiskWatch::let_go(cgroup::Group& group) {
  if (stopped_) (void)group.freeze(false, 0);
  stopped_ = false;
}

void DiskWatch::tell(Numbers& numbers) const {
  if (!files_) return;
  numbers.held |= by_quota_ ? Numbers::kHeldDisk : Numbers::kWatchedDisk;
  if (budget_) numbers.disk_bytes = budget_->use().bytes;
  if (!by_quota_) return;
  const auto use = disk::use_by_quota(files_.get());
  if (use) numbers.disk_bytes = use->bytes;
}

Result<void> start_meter(int socket, const LaunchSpec& spec, const char* directory, dev_t overlay) {
  const UniqueFd files(open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!files) return fail_errno(errno, "opening the box's files");
  const auto limit = disk::Limit::of_mb(spec.limits.disk_mb);
  const auto use = TRY(disk::use_of_tree(files.get(), limit.files));
  if (limit.is_over(use)) return tl::make_unexpected(too_much(use, limit, spec));
  TRY(disk::send(socket, disk::Answer{0, use.bytes, use.files, 0}));
  UniqueFd pidfd;
  const pid_t pid = TRY(sys::raw_fork(0, &pidfd));
  if (pid == 0) _exit(disk::meter_main(socket, files.get(), overlay));
  return {};
}

}  // namespace temenos::keeper
