#include "box/jobs.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <thread>

#include "box/job_spool.h"
#include "session/control.h"
#include "session/spool.h"
#include "sys/file_sys.h"
#include "wire/job_messages.h"

namespace temenos::box {
namespace {

using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::Ge;
using testing::SizeIs;

class JobsTest : public testing::Test {
 protected:
  void SetUp() override {
    char pattern[] = "/tmp/temenos-jobs-XXXXXX";
    ASSERT_NE(mkdtemp(pattern), nullptr);
    path_ = pattern;
    jobs_.reset(open(pattern, O_PATH | O_DIRECTORY | O_CLOEXEC));
  }
  void TearDown() override {
    const UniqueFd tmp(open("/tmp", O_PATH | O_CLOEXEC));
    EXPECT_TRUE(sys::remove_tree(tmp.get(), path_.substr(5)));
  }
  NewJob make(const std::string& name = "cmd") {
    auto job = create_job(jobs_.get(), {.argv = {name}, .cwd = "/w"});
    if (!job) ADD_FAILURE() << job.error().to_string();
    return job ? std::move(*job) : NewJob{};
  }
  // What session writes at its end.
  static void end(NewJob job, std::uint8_t code = 0) {
    put(std::move(job), box_wire::Exited{false, code}, box_wire::Done{});
  }
  template <typename... Message>
  static void put(NewJob job, const Message&... message) {
    ByteQueue queue;
    (box_wire::put(queue, box_wire::kJobFrameId, message), ...);
    std::vector<std::uint8_t> frames(queue.size());
    ASSERT_EQ(session::copy_frames(queue, frames), frames.size());
    session::Spool(std::move(job.segments), job.segment_limit).write(frames);
  }
  std::vector<JobInfo> list(bool alive = true) {
    auto jobs = list_jobs(jobs_.get(), alive);
    if (!jobs) ADD_FAILURE() << jobs.error().to_string();
    return jobs ? std::move(*jobs) : std::vector<JobInfo>{};
  }
  std::vector<std::string> names() { return *sys::list_names(jobs_.get(), 10'000); }

  std::string path_;
  UniqueFd jobs_;
};

TEST_F(JobsTest, AJobIsMadeWholeAndSaysWhatItIs) {
  auto job = create_job(
      jobs_.get(),
      {.argv = {"sh", "-c", "a\nb", "\xff"}, .cwd = "/work", .timeout = std::chrono::seconds(5)});
  ASSERT_TRUE(job) << job.error().to_string();
  EXPECT_EQ(job->number, 1u);
  EXPECT_EQ(job->segment_limit, 8u << 20);
  for (const UniqueFd& segment : job->segments) {
    EXPECT_EQ(fcntl(segment.get(), F_GETFL) & (O_ACCMODE | O_APPEND), O_WRONLY | O_APPEND);
    EXPECT_EQ(fcntl(segment.get(), F_GETFD), FD_CLOEXEC);
    struct stat st{};
    ASSERT_EQ(fstat(segment.get(), &st), 0);
    EXPECT_EQ(st.st_mode & 07777, 0600u);
  }
  EXPECT_THAT(names(), ElementsAre("1"));
  const auto info = read_job(jobs_.get(), 1, true);
  ASSERT_TRUE(info) << info.error().to_string();
  EXPECT_THAT(info->argv, ElementsAre("sh", "-c", "a\nb", "\\xff"));
  EXPECT_EQ(info->cwd, "/work");
  EXPECT_EQ(info->timeout, std::chrono::seconds(5));
  EXPECT_THAT(info->started, SizeIs(20));
  EXPECT_EQ(info->ended, "");
  EXPECT_EQ(info->state, JobState::kRunning);
  EXPECT_FALSE(info->error);
  EXPECT_EQ(make().number, 2u);
}

TEST_F(JobsTest, StatesComeFromTheSpool) {
  make();
  end(make(), 3);
  put(make(), box_wire::ErrorReply{box_wire::Stage::kNotFound, 2});
  put(make(), box_wire::ErrorReply{box_wire::Stage::kBoxLost, 0});
  const auto jobs = list();
  ASSERT_EQ(jobs.size(), 4u);
  EXPECT_EQ(jobs[0].state, JobState::kRunning);
  EXPECT_EQ(jobs[1].state, JobState::kExited);
  EXPECT_EQ(jobs[1].result.exit_code, 3);
  EXPECT_THAT(jobs[1].ended, AllOf(SizeIs(20), Ge(jobs[1].started)));
  EXPECT_EQ(jobs[2].state, JobState::kFailed);
  EXPECT_EQ(jobs[2].error->code, Code::kNotFound);
  EXPECT_EQ(jobs[3].state, JobState::kLost);
  EXPECT_EQ(list(false)[0].state, JobState::kLost);
  EXPECT_EQ(list(true)[0].state, JobState::kRunning);
  // In its next life the box has not this job.
  ASSERT_TRUE(settle_jobs(jobs_.get()));
  EXPECT_EQ(list(true)[0].state, JobState::kLost);
  EXPECT_EQ(list(true)[1].state, JobState::kExited);
}

TEST_F(JobsTest, DamageIsSaidAndHidesNoOther) {
  make();
  make("good");
  const UniqueFd log(open((path_ + "/1/log.0").c_str(), O_WRONLY | O_CLOEXEC));
  ASSERT_TRUE(sys::write_all(log.get(), std::string(100, 'x')));
  const UniqueFd record(open((path_ + "/2/job.json").c_str(), O_WRONLY | O_TRUNC | O_CLOEXEC));
  const auto jobs = list();
  ASSERT_EQ(jobs.size(), 2u);
  EXPECT_EQ(jobs[0].state, JobState::kLost);
  EXPECT_EQ(jobs[0].error->code, Code::kProtocol);
  EXPECT_EQ(jobs[1].state, JobState::kRunning);
  EXPECT_TRUE(jobs[1].error);
}

TEST_F(JobsTest, OldEndedJobsGoAndRunningOnesStay) {
  const NewJob first = make("runs");
  for (std::size_t i = 0; i < kMaxEndedJobs + 5; ++i) end(make());
  make("last");
  const auto jobs = list();
  ASSERT_EQ(jobs.size(), kMaxEndedJobs + 2);
  EXPECT_EQ(jobs.front().number, first.number);
  EXPECT_EQ(jobs[1].number, 7u);
  EXPECT_EQ(jobs.back().number, kMaxEndedJobs + 7);
  const auto gone = read_job(jobs_.get(), 2, true);
  ASSERT_FALSE(gone);
  EXPECT_EQ(gone.error().code, Code::kNotFound);
  EXPECT_FALSE(gone.error().hint.empty());
  EXPECT_THAT(names(), Each(testing::Not(testing::StartsWith("."))));
}

TEST_F(JobsTest, AsManyRunAsSessionHasPlacesFor) {
  for (int i = 0; i < session::kMaxJobs; ++i) make();
  const auto refused = create_job(jobs_.get(), {.argv = {"x"}, .cwd = "/"});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kExhausted);
  EXPECT_FALSE(refused.error().hint.empty());
  ASSERT_TRUE(remove_job(jobs_.get(), 5));
  ASSERT_TRUE(remove_job(jobs_.get(), 5));
  EXPECT_EQ(make().number, session::kMaxJobs + 1u);
}

TEST_F(JobsTest, WhatIsNotAJobOfOursIsLeftAloneOrSweptWhenOld) {
  for (const char* name : {"0", "01", "x", "4294967296", ".new-abc", ".new-old", ".gone-abc"}) {
    ASSERT_EQ(mkdirat(jobs_.get(), name, 0700), 0);
  }
  const timespec old[2] = {{1, 0}, {1, 0}};
  ASSERT_EQ(utimensat(jobs_.get(), ".new-old", old, 0), 0);
  EXPECT_EQ(make().number, 1u);
  EXPECT_THAT(names(), ElementsAre(".new-abc", "0", "01", "1", "4294967296", "x"));
  EXPECT_EQ(list().size(), 1u);
}

TEST_F(JobsTest, ALongCommandIsCutAndABadOneRefused) {
  const auto job =
      create_job(jobs_.get(), {.argv = {"x", std::string(1u << 20, 'y'), "z"}, .cwd = "/"});
  ASSERT_TRUE(job);
  const auto jobs = list();
  ASSERT_EQ(jobs.size(), 1u);
  ASSERT_EQ(jobs[0].argv.size(), 3u);
  EXPECT_LE(jobs[0].argv[1].size(), kMaxJobRecord + 3);
  EXPECT_EQ(jobs[0].argv[2], "…");
  EXPECT_EQ(create_job(jobs_.get(), {}).error().code, Code::kInvalidArgument);
  for (const std::uint64_t limit : {0u, (256u << 10) - 2, (128u << 20) + 2}) {
    const auto refused = create_job(jobs_.get(), {.argv = {"x"}, .cwd = "/", .log_limit = limit});
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, Code::kInvalidArgument);
  }
}

TEST_F(JobsTest, NumbersAreTakenOnce) {
  constexpr int kThreads = 4;
  constexpr int kEach = 10;
  std::vector<std::uint32_t> taken[kThreads];
  {
    std::vector<std::jthread> threads;
    for (auto& mine : taken) {
      threads.emplace_back([&] {
        for (int i = 0; i < kEach; ++i) mine.push_back(make().number);
      });
    }
  }
  std::vector<std::uint32_t> all;
  for (const auto& mine : taken) all.insert(all.end(), mine.begin(), mine.end());
  std::sort(all.begin(), all.end());
  for (std::size_t i = 0; i < all.size(); ++i) EXPECT_EQ(all[i], i + 1);
  EXPECT_EQ(names().size(), static_cast<std::size_t>(kThreads * kEach));
}

// Whoever makes the next job may have too few descriptors to read the logs of the others.
TEST_F(JobsTest, AJobWhoseLogCannotBeReadNowIsNotOver) {
  const NewJob running = make();
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  std::vector<UniqueFd> held;
  do {
    held.emplace_back(fcntl(0, F_DUPFD_CLOEXEC, 3));
  } while (held.back().get() < 100);
  // Room for the job's directory and one of its segments.
  const rlimit low{101, before.rlim_max};
  held.resize(held.size() - 2);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
  const auto next = create_job(jobs_.get(), {.argv = {"x"}, .cwd = "/"});
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_FALSE(next);
  EXPECT_EQ(read_job(jobs_.get(), running.number, true)->state, JobState::kRunning);
}

}  // namespace
}  // namespace temenos::box
