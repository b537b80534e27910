// The jobs of a box on disk: a directory each below `jobs/` of its data dir (store/data_dir.h). No
// box can write there; session writes the logs, through descriptors that it is given.
//
//   jobs/<n>/          n = 1, 2, ...; never used again while a later one is there
//     job.json         what runs
//     log.0, log.1     its spool (box/job_spool.h)
//     over             it is known not to run any more
//   jobs/.new-<x>, .gone-<x>   one while it is made, while it is removed
//
// To start one: create_job(), its segments to session by way of keeper (kAddJob), then
// SessionClient::start_job() or a detach. When that fails: remove_job().
//
// `jobs_fd` is that directory. Thread-safety: plain functions; any number of processes may use one
// directory at once. Ownership: results own what they hold.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "temenos/error.h"
#include "temenos/jobs.h"

namespace temenos::box {

inline constexpr std::size_t kMaxEndedJobs = 100;           // kept; then the oldest go
inline constexpr std::uint64_t kDefaultJobLog = 16u << 20;  // bytes, both segments
inline constexpr std::size_t kMaxJobRecord = 32 * 1024;     // bytes of argv that are kept

struct JobSpec {
  std::vector<std::string> argv;
  std::string cwd;
  std::chrono::milliseconds timeout{0};      // 0: none
  std::uint64_t log_limit = kDefaultJobLog;  // 256 KiB to 128 MiB
};

struct NewJob {
  std::uint32_t number = 0;
  std::array<UniqueFd, 2> segments;  // for appending only
  std::uint32_t segment_limit = 0;   // bytes of one, for kAddJob
};

// A new job. Ended ones over kMaxEndedJobs are removed. kExhausted: 64 run already.
Result<NewJob> create_job(int jobs_fd, const JobSpec& spec);

// By number. One that has no end yet is kRunning, or kLost when the box does not live.
Result<std::vector<JobInfo>> list_jobs(int jobs_fd, bool box_alive);
Result<JobInfo> read_job(int jobs_fd, std::uint32_t number, bool box_alive);

// Its directory, for read_spool(). kNotFound: there is no such job.
Result<UniqueFd> open_job(int jobs_fd, std::uint32_t number);

// One that does not run. A missing one is no error.
Result<void> remove_job(int jobs_fd, std::uint32_t number);

// To be called while the box does not live, before it starts again: what has no end by now will not
// get one, and must not look as if it ran in the new life.
Result<void> settle_jobs(int jobs_fd);

}  // namespace temenos::box
