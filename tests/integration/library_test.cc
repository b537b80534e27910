// All that a program can do with one box through the library, in a real box: commands, jobs, files,
// archives, ports, and what the audit log says of it.
#include <arpa/inet.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <fstream>
#include <sstream>
#include <thread>

#include "base/unique_fd.h"
#include "temenos/box_manager.h"
#include "temenos/policy_builder.h"
#include "tests/integration/durable_box.h"

namespace temenos::testing {
namespace {

using namespace std::chrono_literals;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class LibraryTest : public DurableBoxTest {
 protected:
  void SetUp() override {
    enter_host();
    auto manager = BoxManager::open();
    ASSERT_TRUE(manager) << manager.error().to_string();
    manager_.emplace(std::move(*manager));
    auto box = manager_->create(
        {"", "box"},
        *Policy::Builder().network(NetworkMode::kNone).platform(Platform::kSystrap).build());
    ASSERT_TRUE(box) << box.error().to_string();
    box_.emplace(std::move(*box));
  }
  void TearDown() override {
    box_.reset();
    if (manager_) EXPECT_TRUE(manager_->remove({"", "box"}));
    DurableBoxTest::TearDown();
  }
  Box& box() { return *box_; }
  static ExecRequest shell(const std::string& script) {
    ExecRequest request;
    request.argv = {"sh", "-c", script};
    return request;
  }
  std::string output(const std::string& script) {
    const auto result = box().exec(shell(script));
    return result ? result->stdout_data + result->stderr_data : result.error().to_string();
  }
  std::uint32_t job(const std::string& script, std::uint64_t limit = 16 << 20) {
    const auto number = box().start_job(shell(script), limit);
    EXPECT_TRUE(number) << number.error().to_string();
    return number.value_or(0);
  }
  // The whole log of a job that is over.
  std::string log_of(std::uint32_t number, bool errors = false) {
    EXPECT_EQ(box().wait_job(number, 60s), true);
    std::string text;
    for (std::uint64_t cursor = 0;;) {
      const auto log = box().job_log(number, cursor, 100'000);
      if (!log) return log.error().to_string();
      for (const auto& chunk : log->chunks) {
        if (chunk.is_stderr == errors) text += chunk.bytes;
      }
      cursor = log->next;
      if (log->whole) {
        EXPECT_TRUE(log->over);
        return text;
      }
    }
  }
  std::string audit() {
    std::ifstream in(data_dir("box") + "/audit.jsonl");
    return (std::stringstream() << in.rdbuf()).str();
  }
  std::optional<BoxManager> manager_;
  std::optional<Box> box_;
};

TEST_F(LibraryTest, JobsOutliveTheirCallerAndTheirBoxesLogsOutliveTheBox) {
  const auto number = job("echo out; echo err >&2; cat; exit 7");
  EXPECT_EQ(log_of(number), "out\n");
  EXPECT_EQ(log_of(number, true), "err\n");
  const auto slow = job("echo begun; trap 'echo asked; exit 3' TERM; while :; do sleep 0.05; done");
  // Another handle, as of another process, sees and ends it.
  auto other = manager_->find({"", "box"});
  ASSERT_TRUE(other);
  auto listed = other->jobs();
  ASSERT_TRUE(listed) << listed.error().to_string();
  ASSERT_EQ(listed->size(), 2u);
  EXPECT_EQ((*listed)[0].state, JobState::kExited);
  EXPECT_EQ((*listed)[0].result.exit_code, 7);
  EXPECT_EQ((*listed)[1].state, JobState::kRunning);
  EXPECT_EQ((*listed)[1].argv[2].substr(0, 10), "echo begun");
  EXPECT_EQ(other->wait_job(slow, 10ms), false);
  // When it has said something it has its trap.
  std::string said;
  for (std::uint64_t cursor = 0; said.empty();) {
    const auto log = other->job_log(slow, cursor, 1000);
    ASSERT_TRUE(log) << log.error().to_string();
    for (const auto& chunk : log->chunks) said += chunk.bytes;
    cursor = log->next;
  }
  while (box().job(slow)->state == JobState::kRunning) {
    ASSERT_TRUE(other->signal_job(slow, SIGTERM));
    if (other->wait_job(slow, 100ms).value_or(true)) break;
  }
  EXPECT_EQ(box().job(slow)->result.exit_code, 3);
  const auto endless = job("sleep 1000");
  ASSERT_TRUE(box().stop());
  EXPECT_EQ(box().job(endless)->state, JobState::kLost);
  const auto log = box().job_log(slow, 0, 1000);
  ASSERT_TRUE(log);
  EXPECT_TRUE(log->over);
  EXPECT_FALSE(box().is_alive()) << "reading a log started the box";
  // In the next life it is still known that it is over, and numbers go on.
  EXPECT_GT(job("exit 0"), endless);
  EXPECT_EQ(box().job(endless)->state, JobState::kLost);
}

TEST_F(LibraryTest, ALogIsBoundedAndACursorStaysGood) {
  const auto number =
      job("i=0; while [ $i -lt 20000 ]; do echo line $i of many; i=$((i+1)); done", 256 << 10);
  EXPECT_THAT(log_of(number), EndsWith("line 19999 of many\n"));
  const auto log = box().job_log(number, 0, 1 << 20);
  ASSERT_TRUE(log);
  EXPECT_GT(log->dropped, 0u);
  std::string kept;
  for (const auto& chunk : log->chunks) kept += chunk.bytes;
  EXPECT_LE(kept.size(), 256u << 10);
  EXPECT_TRUE(box().job_log(number, kLogEnd, 1000)->chunks.empty());
}

TEST_F(LibraryTest, ARunningCommandBecomesAJob) {
  const UniqueFd detach(eventfd(0, EFD_CLOEXEC));
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  const UniqueFd reader(ends[0]);
  UniqueFd writer(ends[1]);
  ExecIo io;
  io.stdout_fd = writer.get();
  io.detach_fd = detach.get();
  std::thread caller([&] {
    char line[6];
    EXPECT_EQ(read(reader.get(), line, sizeof line), 6);
    eventfd_write(detach.get(), 1);
  });
  const auto result =
      box().exec(shell("echo first; while [ ! -e /tmp/go ]; do sleep 0.02; done; echo second"), io);
  caller.join();
  ASSERT_TRUE(result) << result.error().to_string();
  ASSERT_TRUE(result->job);
  EXPECT_FALSE(result->exit_code);
  EXPECT_EQ(output("touch /tmp/go"), "");
  EXPECT_EQ(log_of(static_cast<std::uint32_t>(std::stoul(*result->job))), "second\n");
}

TEST_F(LibraryTest, FilesAndDirectories) {
  ASSERT_EQ(box().mkdir("/root/a/b", 0750, true), true);
  EXPECT_EQ(box().mkdir("/root/a/b", 0750, true), false);
  EXPECT_EQ(box().mkdir("/root/a").error().code, Code::kAlreadyExists);
  const std::string bytes("\0\xff\n text", 8);
  ASSERT_TRUE(box().write_file("/root/a/f", bytes, {.mode = 0640}));
  EXPECT_EQ(box().read_file("/root/a/f", 100), bytes);
  EXPECT_EQ(box().read_file("/root/a/f", 3, 2), bytes.substr(2, 3));
  ASSERT_TRUE(box().write_file("/root/a/f", "more", {.how = WriteOptions::How::kAppend}));
  const auto info = box().stat("/root/a/f");
  ASSERT_TRUE(info);
  EXPECT_EQ(info->mode, 0640u);
  EXPECT_EQ(info->size, 12u);
  EXPECT_EQ(box().list("/root/a")->size(), 2u);
  EXPECT_EQ(box().stat("/root/none").error().code, Code::kNotFound);
  EXPECT_EQ(box().read_file("/root/a", 1).error().sys_errno, EISDIR);
  EXPECT_EQ(box().remove("/root/a", true), 3u);
  EXPECT_EQ(output("ls -A /root"), "");
  // It lies on the disk of the host when the call returns, whatever is killed then.
  ASSERT_TRUE(box().write_file("/root/kept", "kept"));
  ASSERT_TRUE(box().stop());
  EXPECT_EQ(box().read_file("/root/kept", 100), "kept");
}

TEST_F(LibraryTest, ArchivesGoOutAndIn) {
  ASSERT_EQ(output("mkdir -p /root/d/sub; echo one >/root/d/f; ln -s f /root/d/l; "
                   "echo '-n' >/root/-n; chmod 4755 /root/d/f; head -c 3000000 /dev/urandom "
                   ">/root/d/sub/big; mkdir /root/in"),
            "");
  const std::string path = host_.path() + "/archive.tar";
  const UniqueFd archive(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  ASSERT_TRUE(archive);
  auto out = box().tar_out("/root/d", archive.get());
  ASSERT_TRUE(out) << out.error().to_string();
  EXPECT_EQ(host_shell("tar -tf '" + path + "' | sort"), "./\n./f\n./l\n./sub/\n./sub/big\n");
  ASSERT_EQ(lseek(archive.get(), 0, SEEK_SET), 0);
  ASSERT_TRUE(box().tar_in("/root/in", archive.get()));
  EXPECT_EQ(output("cd /root; diff -r d in && stat -c %u in/f && readlink in/l"), "0\nf\n");
  // One file, whatever its name looks like.
  const UniqueFd single(open(host_.path().c_str(), O_RDWR | O_TMPFILE | O_CLOEXEC, 0600));
  ASSERT_TRUE(single);
  ASSERT_TRUE(box().tar_out("/root/-n", single.get()));
  EXPECT_EQ(box().tar_out("/root/none", single.get()).error().code, Code::kNotFound);
  const auto bad = box().tar_in("/root/none", archive.get());
  ASSERT_FALSE(bad);
  EXPECT_THAT(bad.error().to_string(), HasSubstr("/root/none"));
}

TEST_F(LibraryTest, PortsOfABox) {
  const auto nobody = box().dial({.port = 8080});
  ASSERT_FALSE(nobody);
  EXPECT_EQ(nobody.error().sys_errno, ECONNREFUSED);
  const auto server = job(
      "cd /root && echo page >index.html && exec python3 -u -m http.server 8080 --bind 127.0.0.1");
  std::string said;
  for (std::uint64_t cursor = 0; said.find("Serving") == said.npos;) {
    const auto log = box().job_log(server, cursor, 1000);
    ASSERT_TRUE(log && !log->over) << said;
    for (const auto& chunk : log->chunks) said += chunk.bytes;
    cursor = log->next;
  }
  const auto port = box().forward({.port = 8080});
  ASSERT_TRUE(port) << port.error().to_string();
  EXPECT_EQ(host_shell("curl -s http://127.0.0.1:" + std::to_string(*port) + "/"), "page\n");
  const auto dialed = box().dial({.port = 8080});
  ASSERT_TRUE(dialed) << dialed.error().to_string();
  const UniqueFd direct(*dialed);
  const std::string request = "GET / HTTP/1.0\r\n\r\n";
  ASSERT_EQ(write(direct.get(), request.data(), request.size()),
            static_cast<ssize_t>(request.size()));
  std::string answer;
  char block[4096];
  for (ssize_t n; (n = read(direct.get(), block, sizeof block)) > 0;) {
    answer.append(block, static_cast<std::size_t>(n));
  }
  EXPECT_THAT(answer, StartsWith("HTTP/1.0 200"));
  EXPECT_THAT(answer, EndsWith("page\n"));
  // They end with the handle.
  box_.emplace(std::move(*manager_->find({"", "box"})));
  EXPECT_EQ(host_shell("curl -s http://127.0.0.1:" + std::to_string(*port) + "/ || echo gone"),
            "gone\n");
}

TEST_F(LibraryTest, TheExampleRuns) {
  EXPECT_EQ(host_shell("'" + guest("library_example") + "' 2>&1"),
            "hello from temenos\njob 1: done\n");
}

TEST_F(LibraryTest, TheAuditLogHasWhatWasDone) {
  ASSERT_EQ(output("exit 3"), "");
  ASSERT_TRUE(box().write_file("/root/f", "a secret"));
  EXPECT_FALSE(box().read_file("/root/none", 10));
  ASSERT_TRUE(box().stop());
  const std::string log = audit();
  for (const char* part :
       {"\"event\":\"create\",\"name\":\"box\"", "\"event\":\"start\",\"ok\":true",
        "\"event\":\"exec\",\"argv\":[\"sh\",\"-c\",\"exit 3\"],\"cwd\":\"/root\",\"exit_code\":3",
        "\"event\":\"write\",\"path\":\"/root/f\",\"ok\":true",
        "\"event\":\"read\",\"path\":\"/root/none\",\"ok\":false,\"error\":",
        "\"event\":\"end\",\"reason\":\"stopped\"", "\"event\":\"stop\",\"ok\":true"}) {
    EXPECT_THAT(log, HasSubstr(part));
  }
  EXPECT_EQ(log.find("a secret"), std::string::npos);
}

TEST_F(LibraryTest, ABoxThatEndedIsSaidToAndTheNextCallStartsItAgain) {
  ASSERT_EQ(output("echo kept >/root/f"), "");
  const auto died = box().exec(shell("kill -9 1"));
  ASSERT_FALSE(died);
  EXPECT_EQ(died.error().code, Code::kBoxDied);
  EXPECT_EQ(box().end_reason(), "init_died");
  ASSERT_TRUE(box().ended());
  EXPECT_EQ(output("cat /root/f"), "kept\n");
}

}  // namespace
}  // namespace temenos::testing
