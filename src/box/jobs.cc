#include "box/jobs.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <ctime>

#include "base/text.h"
#include "base/time.h"
#include "base/try.h"
#include "box/job_spool.h"
#include "codec/json.h"
#include "codec/object_reader.h"
#include "session/control.h"
#include "sys/file_sys.h"
#include "wire/job_messages.h"

namespace temenos::box {
namespace {

constexpr char kRecord[] = "job.json";
constexpr char kOver[] = "over";
constexpr std::array kSegments = {"log.0", "log.1"};
constexpr char kStaged[] = ".new-";
constexpr char kGone[] = ".gone-";
constexpr std::size_t kMaxNames = 10'000;
constexpr std::size_t kMaxArguments = 1'000;
// Staged for a moment only; older than this, its maker is gone.
constexpr time_t kStagedSeconds = 60;
constexpr char kDiskHint[] =
    "free some disk space, or look at the mode of the box's data directory";

// In order; what is no number of a job is left out.
Result<std::vector<std::uint32_t>> numbers(int jobs_fd) {
  std::vector<std::uint32_t> found;
  for (const auto& name : TRY(sys::list_names(jobs_fd, kMaxNames))) {
    std::uint32_t number = 0;
    const char* end = name.data() + name.size();
    const auto [stop, error] = std::from_chars(name.data(), end, number);
    if (error == std::errc{} && stop == end && number >= 1 && number <= box_wire::kMaxJob &&
        name[0] != '0') {
      found.push_back(number);
    }
  }
  std::sort(found.begin(), found.end());
  return found;
}

void mark_over(int dir) { (void)sys::write_new_file(dir, kOver, "", 0600); }
bool is_marked(int dir) { return sys::open_beneath(dir, kOver, O_PATH).has_value(); }

// Remembered, so that a long log is searched for its end once.
bool is_over(int dir) {
  if (is_marked(dir)) return true;
  const auto read = read_spool(dir, kSpoolEnd, 0);
  // A log that cannot be read now says nothing: it is written too fast, or descriptors are missing.
  if (read ? !read->end : read.error().code != Code::kProtocol) return false;
  mark_over(dir);
  return true;
}

std::string shown(std::string_view text, std::size_t& room) {
  const std::string_view kept = text.substr(0, room);
  room -= kept.size();
  return (is_valid_utf8(kept) ? std::string(kept) : escape(kept)) +
         (kept.size() < text.size() ? "…" : "");
}

std::string record_of(const JobSpec& spec) {
  boost::json::array argv;
  std::size_t room = kMaxJobRecord;
  for (const auto& argument : spec.argv) {
    if (room == 0 || argv.size() == kMaxArguments) {
      argv.push_back("…");
      break;
    }
    argv.emplace_back(shown(argument, room));
  }
  std::size_t cwd_room = box_wire::kMaxPath;
  return serialize_json(boost::json::object{{"argv", std::move(argv)},
                                            {"cwd", shown(spec.cwd, cwd_room)},
                                            {"started", utc_now()},
                                            {"timeout_ms", spec.timeout.count()}});
}

Result<void> read_record(int dir, JobInfo& info) {
  const UniqueFd file = TRY(sys::open_beneath(dir, kRecord, O_RDONLY));
  const auto document = TRY(parse_json(TRY(sys::read_all(file.get(), std::size_t{1} << 20))));
  auto reader = TRY(ObjectReader::of(document, ""));
  const auto* argv = TRY(reader.optional_array("argv", kMaxArguments + 1));
  if (argv != nullptr) {
    for (const auto& argument : *argv) info.argv.push_back(TRY(string_at(argument, "argv")));
  }
  info.cwd = TRY(reader.string("cwd"));
  info.started = TRY(reader.string("started"));
  info.timeout = std::chrono::milliseconds(TRY(reader.integer("timeout_ms")));
  return reader.finish();
}

std::string last_write(int dir) {
  time_t last = 0;
  for (const char* name : kSegments) {
    struct stat st{};
    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0) last = std::max(last, st.st_mtime);
  }
  return utc_text(std::chrono::system_clock::from_time_t(last));
}

JobInfo info_of(int dir, std::uint32_t number, bool box_alive) {
  JobInfo info;
  info.number = number;
  auto recorded = read_record(dir, info);
  if (!recorded) info.error = std::move(recorded).error();
  auto read = read_spool(dir, kSpoolEnd, 0);
  const bool lost = !box_alive || is_marked(dir);
  if (!read) {
    // A log that is only too busy is of a job that runs.
    info.state =
        !lost && read.error().code == Code::kTimedOut ? JobState::kRunning : JobState::kLost;
    if (info.state == JobState::kLost) info.error = std::move(read).error();
  } else if (!read->end) {
    info.state = lost ? JobState::kLost : JobState::kRunning;
  } else if (read->end->how == JobEnd::How::kExited) {
    info.state = JobState::kExited;
    info.result = std::move(read->end->result);
  } else if (read->end->how == JobEnd::How::kFailed) {
    info.state = JobState::kFailed;
    info.error = std::move(read->end->error);
  }
  if (info.state != JobState::kRunning) info.ended = last_write(dir);
  return info;
}

// Its name is free at once, so that nobody sees half of it.
Result<void> remove_named(int jobs_fd, const std::string& name) {
  const std::string gone = kGone + random_hex(8);
  if (renameat(jobs_fd, name.c_str(), jobs_fd, gone.c_str()) != 0) {
    if (errno == ENOENT) return {};
    return fail_errno(errno, "removing job " + name, kDiskHint);
  }
  return sys::remove_tree(jobs_fd, gone);
}

// What a killed process left half-made or half-removed.
void sweep(int jobs_fd) {
  const auto names = sys::list_names(jobs_fd, kMaxNames);
  if (!names) return;
  for (const auto& name : *names) {
    struct stat st{};
    const bool staged = name.starts_with(kStaged);
    if (!staged && !name.starts_with(kGone)) continue;
    if (fstatat(jobs_fd, name.c_str(), &st, AT_SYMLINK_NOFOLLOW) != 0) continue;
    if (staged && time(nullptr) - st.st_mtime < kStagedSeconds) continue;
    (void)sys::remove_tree(jobs_fd, name);
  }
}

// Makes room for one more; kExhausted when too many run.
Result<void> make_room(int jobs_fd) {
  std::vector<std::uint32_t> ended;
  int running = 0;
  for (const auto number : TRY(numbers(jobs_fd))) {
    const auto dir = open_job(jobs_fd, number);
    if (!dir) continue;  // removed in this moment
    if (is_over(dir->get())) {
      ended.push_back(number);
    } else {
      ++running;
    }
  }
  if (running >= session::kMaxJobs) {
    return fail(Code::kExhausted, std::to_string(running) + " jobs run in this box already",
                "wait for one of them, or end one");
  }
  const std::size_t over = ended.size() - std::min(ended.size(), kMaxEndedJobs);
  for (std::size_t i = 0; i < over; ++i) {
    TRY(remove_named(jobs_fd, std::to_string(ended[i])));
  }
  return {};
}

Result<void> fill(int dir, const JobSpec& spec, NewJob& job) {
  TRY(sys::write_new_file(dir, kRecord, record_of(spec), 0600));
  for (std::size_t i = 0; i < kSegments.size(); ++i) {
    job.segments[i] =
        TRY(sys::open_beneath(dir, kSegments[i], O_WRONLY | O_APPEND | O_CREAT | O_EXCL, 0600));
  }
  return {};
}

// The next number that nobody else has taken.
Result<std::uint32_t> publish(int jobs_fd, const std::string& staged) {
  const auto taken = TRY(numbers(jobs_fd));
  for (std::uint64_t number = taken.empty() ? 1 : std::uint64_t{taken.back()} + 1;
       number <= box_wire::kMaxJob; ++number) {
    // A directory that is not empty is never replaced.
    if (renameat(jobs_fd, staged.c_str(), jobs_fd, std::to_string(number).c_str()) == 0) {
      return static_cast<std::uint32_t>(number);
    }
    if (errno != EEXIST && errno != ENOTEMPTY) return fail_errno(errno, "naming it");
  }
  return fail(Code::kExhausted, "no number is left for a job", "remove the box's old jobs");
}

}  // namespace

Result<NewJob> create_job(int jobs_fd, const JobSpec& spec) {
  NewJob job;
  const std::uint64_t segment = spec.log_limit / kSegments.size();
  if (spec.argv.empty() || segment < session::kMinSegment || segment > session::kMaxSegment) {
    return fail(Code::kInvalidArgument, "job", "give a command, and a log of 256 KiB to 128 MiB");
  }
  job.segment_limit = static_cast<std::uint32_t>(segment);
  sweep(jobs_fd);
  TRY(make_room(jobs_fd));
  const std::string staged = kStaged + random_hex(8);
  auto made = [&]() -> Result<void> {
    if (mkdirat(jobs_fd, staged.c_str(), 0700) != 0) return fail_errno(errno, "mkdir");
    const UniqueFd dir = TRY(sys::open_beneath(jobs_fd, staged, O_PATH | O_DIRECTORY));
    TRY(fill(dir.get(), spec, job));
    job.number = TRY(publish(jobs_fd, staged));
    return {};
  }();
  if (made) return job;
  (void)sys::remove_tree(jobs_fd, staged);
  return tl::make_unexpected(
      std::move(made).error().with_context("cannot make a job").with_hint(kDiskHint));
}

Result<UniqueFd> open_job(int jobs_fd, std::uint32_t number) {
  auto dir = sys::open_beneath(jobs_fd, std::to_string(number), O_PATH | O_DIRECTORY);
  if (dir || dir.error().sys_errno != ENOENT) return dir;
  return fail(Code::kNotFound,
              "job " + std::to_string(number) + ": this box has none of that number",
              "list its jobs; of those that ended only the newest 100 are kept");
}

Result<std::vector<JobInfo>> list_jobs(int jobs_fd, bool box_alive) {
  std::vector<JobInfo> jobs;
  for (const auto number : TRY(numbers(jobs_fd))) {
    const auto dir = open_job(jobs_fd, number);
    if (dir) jobs.push_back(info_of(dir->get(), number, box_alive));
  }
  return jobs;
}

Result<JobInfo> read_job(int jobs_fd, std::uint32_t number, bool box_alive) {
  const UniqueFd dir = TRY(open_job(jobs_fd, number));
  return info_of(dir.get(), number, box_alive);
}

Result<void> remove_job(int jobs_fd, std::uint32_t number) {
  return remove_named(jobs_fd, std::to_string(number));
}

Result<void> settle_jobs(int jobs_fd) {
  for (const auto number : TRY(numbers(jobs_fd))) {
    const auto dir = open_job(jobs_fd, number);
    if (dir) mark_over(dir->get());
  }
  return {};
}

}  // namespace temenos::box
