// The limit of memory: whatever a box fills, the host's kernel ends the box at its limit, by name,
// and nobody else is hurt.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "tests/limits/limits_test.h"

namespace temenos::testing {
namespace {

using ::testing::HasSubstr;

constexpr std::int64_t kRoomMb = 128;
constexpr std::uint64_t kRoom = std::uint64_t{kRoomMb} << 20;
// Under certain circumstances, usage may go over the limit temporarily (cgroup-v2.rst): some pages
// that the kernel must have at once.
constexpr std::uint64_t kForced = std::uint64_t{1} << 20;
constexpr char kBox[] = "greedy";

// "SwapFree:" and the like, in kB.
long meminfo(const std::string& field) {
  std::ifstream in("/proc/meminfo");
  for (std::string name, rest; in >> name; std::getline(in, rest)) {
    if (name == field + ":") return atol(rest.c_str());
  }
  return -1;
}

class MemoryLimit : public LimitsTest, public ::testing::WithParamInterface<std::string> {
 protected:
  void SetUp() override {
    LimitsTest::SetUp();
    witness_.emplace(start("witness", {.limits = {}, .platform = GetParam()}));
    const auto stats = witness_->stats();
    ASSERT_TRUE(stats) << stats.error().to_string();
    if (!stats->memory_held) {
      GTEST_SKIP() << "this host keeps no limit of memory (driver " << stats->driver << ")";
    }
    before_ = processes("witness");
    swap_free_ = meminfo("SwapFree");
  }
  void TearDown() override {
    if (before_.keeper > 0) {
      // A box that was there before has not noticed.
      EXPECT_EQ(output(*witness_, "echo well"), "well\n");
      EXPECT_EQ(processes("witness").sandbox, before_.sandbox);
    }
    witness_.reset();
    LimitsTest::TearDown();
  }

  Box limited() { return start(kBox, {.limits = {.memory_mb = kRoomMb}, .platform = GetParam()}); }
  // It ran out of memory, its caller has a result that says so, and keeper told who.
  void expect_out_of_memory(Box& box, const Result<ExecResult>& result) {
    ASSERT_TRUE(result) << result.error().to_string();
    EXPECT_TRUE(result->oom) << text_of(result);
    EXPECT_THAT(result->oom_evidence, HasSubstr("oom_kill in memory."));
    EXPECT_EQ(result->signal, "SIGKILL");
    EXPECT_FALSE(box.is_alive());
    EXPECT_EQ(box.end_reason(), "out_of_memory");
    ASSERT_TRUE(box.ended());
    EXPECT_THAT(box.ended()->to_string(), HasSubstr(result->oom_evidence));
    expect_within_room(box.ended()->to_string());
  }
  // "(it had N MiB)".
  void expect_within_room(const std::string& sentence) {
    const auto at = sentence.find("(it had ");
    if (at == std::string::npos) return;  // a kernel that keeps no peak (v2 before 5.19)
    EXPECT_LE(atol(sentence.c_str() + at + 8), kRoomMb) << sentence;
  }
  // Fills something once, and is ended for it.
  void expect_end(const ExecRequest& request) {
    Box box = limited();
    expect_out_of_memory(box, box.exec(request));
  }

  std::optional<Box> witness_;
  BoxProcesses before_;
  long swap_free_ = 0;
};
INSTANTIATE_TEST_SUITE_P(Each, MemoryLimit, ::testing::ValuesIn(platforms()),
                         [](const auto& info) { return info.param; });

TEST_P(MemoryLimit, AskingForMoreIsTheEndByNameEachTime) {
  Box box = limited();
  const int rounds = limit_rounds(100);
  for (int n = 0; n < rounds && !HasFailure(); ++n) {
    SCOPED_TRACE(n);
    const auto started = box.start();
    ASSERT_TRUE(started) << started.error().to_string();
    expect_out_of_memory(box, box.exec(use_up({"memory", "400"})));
  }
  // Others of the machine may swap; a few MiB are theirs.
  EXPECT_GT(meminfo("SwapFree"), swap_free_ - 32 * 1024) << "swap was used";
}

TEST_P(MemoryLimit, TheCommandLineSays137) {
  const auto result = host_.temenos(
      {"run", "--no-net", "--platform", GetParam(), "--memory", std::to_string(kRoomMb), "--volume",
       guest("use_up") + ":/use/up:ro", "--", "/use/up", "memory", "400"});
  EXPECT_EQ(result.status, 137) << result.err;
  EXPECT_THAT(result.err, HasSubstr("the box ran out of memory"));
  EXPECT_THAT(result.err, HasSubstr("oom_kill in memory."));
  EXPECT_THAT(result.err, HasSubstr("--memory"));
  expect_within_room(result.err);
}

// Of a box that is over already nothing can be said to have run out of memory now.
TEST_P(MemoryLimit, ACommandThatNeverRanIsNoneThatRanOutOfMemory) {
  Box box = limited();
  const Generation life(processes(kBox));
  ASSERT_TRUE(box.start_job(use_up({"memory", "400"})));
  EXPECT_EQ(life.wait_for_end(static_cast<int>(patience(30).count())), "");
  const auto result = box.exec(command({"true"}));
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, Code::kBoxDied);
  EXPECT_THAT(result.error().to_string(), HasSubstr("the box ran out of memory"));
  EXPECT_EQ(box.end_reason(), "out_of_memory");
}

TEST_P(MemoryLimit, AFileWithoutAName) { expect_end(use_up({"memfd", "400"})); }

TEST_P(MemoryLimit, ManySmallProcesses) { expect_end(use_up({"processes", "120", "4"})); }

TEST_P(MemoryLimit, AMemoryFileSystemOfTheBoxItself) {
  // Without a size each gets a part of the box's room: several are more than it.
  expect_end(command({"unshare", "-Urm", "sh", "-c",
                      "for n in 1 2 3 4; do mkdir -p /tmp/$n; mount -t tmpfs tmpfs /tmp/$n; "
                      "/use/up file /tmp/$n/full 400; done"}));
  remove(kBox);
  expect_end(command({"unshare", "-Urm", "sh", "-c",
                      "mount -t tmpfs -o size=1g tmpfs /mnt && exec /use/up file /mnt/full 400"}));
}

TEST_P(MemoryLimit, PipesSocketsAndPageTables) {
  for (const auto& words : std::vector<std::vector<std::string>>{
           {"pipes", "20000"}, {"sockets", "20000"}, {"pages", "100000"}}) {
    SCOPED_TRACE(words[0]);
    expect_end(use_up(words));
    remove(kBox);
  }
}

// These have a size, which is the box's room or less: what is full may say so first.
TEST_P(MemoryLimit, MemoryFileSystemsOfEachBox) {
  for (const char* path : {"/tmp/full", "/dev/shm/full"}) {
    SCOPED_TRACE(path);
    Box box = limited();
    const auto result = box.exec(use_up({"file", path, "400"}));
    ASSERT_TRUE(result) << result.error().to_string();
    if (result->oom) {
      expect_out_of_memory(box, result);
    } else {
      EXPECT_THAT(result->stderr_data, HasSubstr("No space left on device"));
      const auto stats = box.stats();
      ASSERT_TRUE(stats);
      EXPECT_LE(stats->memory_peak_bytes.value_or(0), kRoom + kForced);
      EXPECT_EQ(output(box, "rm " + std::string(path) + "; echo well"), "well\n");
    }
    remove(kBox);
  }
}

// What the host's kernel can give back is no reason to end a box.
TEST_P(MemoryLimit, TheFileCacheIsWithinItAndNoEnd) {
  Box box = limited();
  const auto result = box.exec(use_up({"cache", "/root/large", "400"}));
  ASSERT_TRUE(result) << result.error().to_string();
  EXPECT_EQ(result->stdout_data, "read\n") << text_of(result);
  const auto stats = box.stats();
  ASSERT_TRUE(stats) << stats.error().to_string();
  EXPECT_LE(stats->memory_bytes.value_or(0), kRoom);
  EXPECT_LE(stats->memory_peak_bytes.value_or(0), kRoom + kForced);
}

// What gVisor itself takes leaves room for the runtimes that people use.
TEST_P(MemoryLimit, RuntimesStartInTheSmallestRoom) {
  Box box = start(kBox, {.limits = {.memory_mb = 64}, .platform = GetParam()});
  for (const char* script : {"python3 -c 'print(42)'", "node -p 42", "java -version && echo 42"}) {
    if (output(box, "command -v $(echo \"" + std::string(script) + "\" | cut -d' ' -f1)").empty()) {
      continue;
    }
    EXPECT_THAT(output(box, script), HasSubstr("42")) << script;
  }
}

}  // namespace
}  // namespace temenos::testing
