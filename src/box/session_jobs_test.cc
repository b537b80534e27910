// Jobs through the real session and init.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <future>
#include <thread>

#include "box/job_spool.h"
#include "testing/session_fixture.h"
#include "wire/job_messages.h"

namespace temenos {
namespace {

using namespace std::chrono_literals;
using session::ControlMessage;
using session::ControlType;

class SessionJobs : public testing::SessionTest {
 protected:
  // What the library and keeper do: files for session, with `limit` bytes for each segment.
  void add_job(std::uint32_t number, std::uint32_t limit = session::kMinSegment) {
    const std::string path = job_path(number);
    ASSERT_EQ(mkdir(path.c_str(), 0700), 0);
    UniqueFd fds[2];
    int numbers[2];
    for (const int i : {0, 1}) {
      fds[i].reset(open((path + "/log." + std::to_string(i)).c_str(),
                        O_WRONLY | O_APPEND | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
      ASSERT_TRUE(fds[i]);
      numbers[i] = fds[i].get();
    }
    ASSERT_TRUE(
        session::send_control(control_.get(), {ControlType::kAddJob, limit, number}, numbers));
  }
  std::string job_path(std::uint32_t number) const { return dir_ + "/" + std::to_string(number); }
  box::SpoolRead spool(std::uint32_t number, std::uint64_t cursor = 0) {
    const UniqueFd dir(open(job_path(number).c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    auto read = box::read_spool(dir.get(), cursor, 64u << 20);
    if (!read) ADD_FAILURE() << read.error().to_string();
    return read ? std::move(*read) : box::SpoolRead{};
  }
  static std::string text(const box::SpoolRead& read) {
    std::string all;
    for (const auto& chunk : read.chunks) all += chunk.bytes;
    return all;
  }
  void expect_over(std::uint32_t number) {
    const auto event = next_event();
    EXPECT_EQ(event.type, ControlType::kJobOver);
    EXPECT_EQ(event.detail, number);
  }
  static bool until(const std::function<bool()>& holds) {
    for (int i = 0; i < 3'000; ++i) {
      if (holds()) return true;
      std::this_thread::sleep_for(5ms);
    }
    return false;
  }
};

// Waits for the end of a job; session may have forgotten it by the time it is asked.
bool ends(SessionClient& client, std::uint32_t job) {
  const auto over = client.wait_job(job, 60s);
  return over ? *over : over.error().code == Code::kNotFound;
}

TEST_F(SessionJobs, AJobOutlivesTheClientThatStartedIt) {
  add_job(1);
  const std::string go = dir_ + "/go";
  ASSERT_EQ(mkfifo(go.c_str(), 0600), 0);
  {
    SessionClient client = connect();
    const auto started = client.start_job(
        shell("echo out; echo err >&2; read x < " + go + "; echo late; exit 5"), 1);
    ASSERT_TRUE(started) << started.error().to_string();
  }
  ASSERT_TRUE(until([&] { return text(spool(1)).size() >= 8; }));
  const auto before = spool(1);
  EXPECT_FALSE(before.end);
  SessionClient client = connect();
  EXPECT_EQ(client.wait_job(1, 0ms), false);
  EXPECT_EQ(client.wait_job(1, 20ms), false);
  auto waiting = std::async(std::launch::async, [&] { return client.wait_job(1, 60s); });
  UniqueFd(open(go.c_str(), O_WRONLY | O_CLOEXEC));
  const auto over = waiting.get();
  // On a busy machine the job may be over before anybody waits for it.
  EXPECT_TRUE(over ? *over : over.error().code == Code::kNotFound);
  expect_over(1);
  const auto after = spool(1, before.next);
  EXPECT_EQ(text(after), "late\n");
  ASSERT_TRUE(after.end);
  EXPECT_EQ(after.end->result.exit_code, 5);
  const auto gone = client.wait_job(1, 1s);
  ASSERT_FALSE(gone);
  EXPECT_EQ(gone.error().code, Code::kNotFound);
}

TEST_F(SessionJobs, ACommandThatIsNotThereIsAJobThatFailed) {
  add_job(1);
  SessionClient client = connect();
  ExecRequest request;
  request.argv = {"/no/such/program"};
  ASSERT_TRUE(client.start_job(request, 1));
  expect_over(1);
  const auto read = spool(1);
  ASSERT_TRUE(read.end);
  EXPECT_EQ(read.end->how, box::JobEnd::How::kFailed);
  EXPECT_EQ(read.end->error->code, Code::kNotFound);
}

TEST_F(SessionJobs, ASpoolIsBoundedAndKeepsTheNewest) {
  add_job(1);
  SessionClient client = connect();
  ASSERT_TRUE(client.start_job(shell("yes 0123456789 | head -c 20000000; echo; echo the end"), 1));
  EXPECT_TRUE(ends(client, 1));
  expect_over(1);
  for (const char* name : {"/log.0", "/log.1"}) {
    struct stat st{};
    ASSERT_EQ(stat((job_path(1) + name).c_str(), &st), 0);
    EXPECT_LE(st.st_size, session::kMinSegment);
  }
  const auto read = spool(1);
  EXPECT_GT(read.dropped, 19'000'000u);
  EXPECT_TRUE(text(read).ends_with("\nthe end\n"));
  ASSERT_TRUE(read.end);
  EXPECT_EQ(read.end->result.exit_code, 0);
}

TEST_F(SessionJobs, ARunningExecBecomesAJobAndItsCallerKeepsWhatCame) {
  add_job(3);
  const std::string go = dir_ + "/go";
  ASSERT_EQ(mkfifo(go.c_str(), 0600), 0);
  SessionClient client = connect();
  const UniqueFd detach(eventfd(0, EFD_CLOEXEC));
  const testing::Pair in = testing::make_pipe();
  const testing::Pair out = testing::make_pipe();
  ExecIo io;
  io.stdin_fd = in.one.get();
  io.stdout_fd = out.two.get();
  io.detach_fd = detach.get();
  std::thread trigger([&] {
    char line[8];
    EXPECT_EQ(read(out.one.get(), line, sizeof line), 6);  // "first\n": it runs
    eventfd_write(detach.get(), 1);
  });
  // cat ends although nobody closes the caller's stdin.
  const auto result =
      client.exec(shell("echo first; cat; echo second; read x < " + go + "; exit 4"), io, nullptr,
                  [] { return Result<std::uint32_t>(3); });
  trigger.join();
  ASSERT_TRUE(result) << result.error().to_string();
  EXPECT_EQ(result->job, "3");
  EXPECT_FALSE(result->exit_code || result->signal);
  // The connection is free for others.
  ASSERT_TRUE(client.ping());
  UniqueFd(open(go.c_str(), O_WRONLY | O_CLOEXEC));
  EXPECT_TRUE(ends(client, 3));
  expect_over(3);
  const auto read = spool(3);
  EXPECT_EQ(text(read), "second\n");
  ASSERT_TRUE(read.end);
  EXPECT_EQ(read.end->result.exit_code, 4);
}

TEST_F(SessionJobs, AnExecThatEndsBeforeItIsDetachedIsNoJob) {
  add_job(3);
  SessionClient client = connect();
  const UniqueFd detach(eventfd(0, EFD_CLOEXEC));
  ExecIo io;
  io.detach_fd = detach.get();
  const auto result =
      client.exec(shell("exit 6"), io, nullptr, [] { return Result<std::uint32_t>(3); });
  ASSERT_TRUE(result) << result.error().to_string();
  EXPECT_EQ(result->exit_code, 6);
  EXPECT_FALSE(result->job);
}

TEST_F(SessionJobs, ADetachToAJobThatIsNotThereEndsTheCommand) {
  SessionClient client = connect();
  const auto started = client.start_job(shell("exec sleep 1000"), 9);
  ASSERT_FALSE(started);
  EXPECT_EQ(started.error().code, Code::kNotFound);
  EXPECT_FALSE(started.error().hint.empty());
  EXPECT_TRUE(client.ping());
  for (const std::uint32_t number : {0u, box_wire::kMaxJob + 1}) {
    const auto refused = client.start_job(shell("exit"), number);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, Code::kInvalidArgument);
  }
}

TEST_F(SessionJobs, SignalsAndKill) {
  add_job(1);
  add_job(2);
  SessionClient client = connect();
  ASSERT_TRUE(client.start_job(
      shell("trap 'echo got it; exit 3' USR1; echo ready; while :; do sleep 0.01; done"), 1));
  ASSERT_TRUE(client.start_job(shell("setsid sleep 1000 & trap '' TERM; sleep 1000"), 2));
  ASSERT_TRUE(until([&] { return text(spool(1)) == "ready\n"; }));
  ASSERT_TRUE(client.signal_job(1, SIGUSR1, false));
  EXPECT_TRUE(ends(client, 1));
  expect_over(1);
  const auto first = spool(1);
  EXPECT_TRUE(text(first).ends_with("got it\n"));
  ASSERT_TRUE(first.end);
  EXPECT_EQ(first.end->result.exit_code, 3);
  ASSERT_TRUE(client.signal_job(2, 0, false));
  EXPECT_TRUE(ends(client, 2));
  expect_over(2);
  const auto second = spool(2);
  ASSERT_TRUE(second.end);
  EXPECT_EQ(second.end->result.signal, "SIGKILL");
  const auto gone = client.signal_job(2, SIGTERM, true);
  ASSERT_FALSE(gone);
  EXPECT_EQ(gone.error().code, Code::kNotFound);
  EXPECT_EQ(client.signal_job(2, 65, true).error().code, Code::kInvalidArgument);
}

TEST_F(SessionJobs, AWaitIsCancelled) {
  add_job(1);
  SessionClient client = connect();
  ASSERT_TRUE(client.start_job(shell("exec sleep 1000"), 1));
  const UniqueFd cancel(eventfd(1, EFD_CLOEXEC));
  EXPECT_EQ(client.wait_job(1, 1h, cancel.get()), false);
  ASSERT_TRUE(client.signal_job(1, 0, false));
  EXPECT_TRUE(ends(client, 1));
  expect_over(1);
}

TEST_F(SessionJobs, ATimeoutAndALostBoxAreInTheSpool) {
  add_job(1);
  add_job(2);
  SessionClient client = connect();
  ExecRequest request = shell("exec sleep 1000");
  request.timeout = 50ms;
  ASSERT_TRUE(client.start_job(request, 1));
  expect_over(1);
  EXPECT_TRUE(spool(1).end->result.timed_out);
  ASSERT_TRUE(client.start_job(shell("echo here; sleep 1000"), 2));
  ASSERT_TRUE(until([&] { return text(spool(2)) == "here\n"; }));
  ASSERT_TRUE(session::send_control(control_.get(), {ControlType::kStop}));
  expect_over(2);
  const auto read = spool(2);
  ASSERT_TRUE(read.end);
  EXPECT_EQ(read.end->how, box::JobEnd::How::kLost);
}

}  // namespace
}  // namespace temenos
