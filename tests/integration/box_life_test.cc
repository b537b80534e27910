// How long a box lives: its time, its idleness, and its memory.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <fstream>
#include <optional>
#include <sstream>

#include "box/box_handle.h"
#include "codec/json.h"
#include "sys/file_sys.h"
#include "temenos/policy_builder.h"
#include "tests/integration/program.h"

namespace temenos::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;
using ::testing::HasSubstr;

class BoxLifeTest : public IntegrationTest {
 protected:
  // A box of the library's, for what the command line cannot do yet: one without a command.
  Result<box::BoxHandle> start(const Limits& limits) {
    box::HostDirs dirs;
    dirs.data = host_.dir("home/data/temenos");
    dirs.config = host_.dir("home/config/temenos");
    dirs.cache = host_.dir("home/cache/temenos");
    const std::string program = temenos_program();
    auto libexec = sys::resolve(program.substr(0, program.rfind('/')) + "/../libexec/temenos");
    if (!libexec) return tl::make_unexpected(libexec.error());
    dirs.libexec = *libexec;
    const auto policy = Policy::Builder().network(NetworkMode::kNone).limits(limits).build();
    if (!policy) return tl::make_unexpected(policy.error());
    box::StartOptions options;
    options.runsc = dirs.libexec + "/runsc";
    options.platform = "systrap";
    return box::BoxHandle::start(*policy, dirs, options);
  }
  // Waits for the end of the box.
  static Error end_of(box::BoxHandle& box) { return box.explain(fail(Code::kBoxDied, "").value()); }
  static ExecRequest shell(const std::string& script) {
    ExecRequest request;
    request.argv = {"/bin/sh", "-c", script};
    request.env = {"PATH=/usr/bin:/bin"};
    return request;
  }
};

TEST_F(BoxLifeTest, TtlEndsTheBoxAndSaysSo) {
  const auto begun = steady_clock::now();
  const auto result = run({"--ttl", "2", "--json"}, "echo up; sleep 1000");
  EXPECT_EQ(result.status, 125);
  EXPECT_GE(steady_clock::now() - begun, seconds(2));
  EXPECT_LT(steady_clock::now() - begun, seconds(60));
  EXPECT_THAT(result.err, HasSubstr("temenos: the box's time was over: 2 s: raise"));
  const auto json = parse_json(result.out, {});
  ASSERT_TRUE(json) << result.out;
  EXPECT_EQ(json->at("error").at("end_reason").as_string(), "ttl_over");
}

TEST_F(BoxLifeTest, ABoxThatEndsBeforeItsTimeIsNotTouched) {
  const auto result = run({"--ttl", "100", "--idle", "100"}, "exit 3");
  EXPECT_EQ(result.status, 3);
  EXPECT_EQ(result.err, "");
}

TEST_F(BoxLifeTest, APolicyFileSaysTheSame) {
  const auto policy = host_.file("ttl.toml", "network = \"none\"\n[limits]\nttl_seconds = 1\n");
  Program program(host_, {temenos_program(), "run", "--policy", policy, "--", "sleep", "1000"});
  expect_error(program.finish(), 125, {"the box's time was over: 1 s"});
}

TEST_F(BoxLifeTest, AnIdleBoxEnds) {
  auto box = start({.idle_seconds = 1});
  ASSERT_TRUE(box) << box.error().to_string();
  const auto begun = steady_clock::now();
  const Error end = end_of(*box);
  EXPECT_EQ(box->end_reason(), keeper::EndReason::kIdle) << end.to_string();
  EXPECT_THAT(end.to_string(), HasSubstr("idle for too long: 1 s"));
  // The count begins at ready, a moment before start() has returned.
  EXPECT_GE(steady_clock::now() - begun, milliseconds(500));
  EXPECT_TRUE(box->stop());
}

TEST_F(BoxLifeTest, AWorkingBoxIsNotIdle) {
  auto box = start({.idle_seconds = 1});
  ASSERT_TRUE(box) << box.error().to_string();
  // One long command, which says nothing.
  const auto slept = box->session().exec(shell("sleep 3; echo rested"));
  ASSERT_TRUE(slept) << box->explain(slept.error()).to_string();
  EXPECT_EQ(slept->stdout_data, "rested\n");
  // Many short ones.
  const auto begun = steady_clock::now();
  auto last = begun;
  while (steady_clock::now() < begun + seconds(3)) {
    ASSERT_TRUE(box->session().ping());
    last = steady_clock::now();
  }
  const Error end = end_of(*box);
  EXPECT_EQ(box->end_reason(), keeper::EndReason::kIdle) << end.to_string();
  EXPECT_GE(steady_clock::now() - last, milliseconds(900));
  EXPECT_TRUE(box->stop());
}

// --- memory
// ----------------------------------------------------------------------------------------------

// A memory group of cgroup v1 below the one that this process is in, with a limit.
class MemoryGroup {
 public:
  explicit MemoryGroup(const std::string& limit) {
    std::ifstream groups("/proc/self/cgroup");
    for (std::string line; std::getline(groups, line);) {
      const auto at = line.find(":memory:");
      if (at == std::string::npos) continue;
      path_ =
          "/sys/fs/cgroup/memory" + line.substr(at + 8) + "/oom-test-" + std::to_string(getpid());
    }
    if (path_.empty() || mkdir(path_.c_str(), 0755) != 0) return;
    made_ = true;
    put("memory.limit_in_bytes", limit);
    put("memory.memsw.limit_in_bytes", limit);  // where swap is counted
  }
  ~MemoryGroup() {
    // What was in it may still be on its way out.
    for (int i = 0; made_ && i < 1000 && rmdir(path_.c_str()) != 0 && errno == EBUSY; ++i) {
      usleep(10'000);
    }
  }
  MemoryGroup(const MemoryGroup&) = delete;
  MemoryGroup& operator=(const MemoryGroup&) = delete;
  bool made() const { return made_; }
  const std::string& path() const { return path_; }

 private:
  void put(const char* file, const std::string& text) const {
    std::ofstream(path_ + "/" + file) << text;
  }
  std::string path_;
  bool made_ = false;
};

class OutOfMemoryTest : public IntegrationTest, public ::testing::WithParamInterface<std::string> {
 protected:
  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "only root may make a memory group here";
    group_.emplace("200M");
    if (!group_->made()) GTEST_SKIP() << "no memory group of cgroup v1 can be made here";
  }
  CliResult run_in_group(std::vector<std::string> flags, const std::string& script) {
    std::vector<std::string> words{
        "/bin/sh", "-c", "echo $$ >" + group_->path() + "/cgroup.procs && exec \"$@\"", "sh"};
    for (auto& word : argv(std::move(flags), script)) words.push_back(std::move(word));
    Program program(host_, std::move(words));
    return program.finish(120);
  }
  void TearDown() override {
    group_.reset();
    IntegrationTest::TearDown();
  }
  std::optional<MemoryGroup> group_;
  static constexpr char kEat[] =
      "echo before; exec python3 -c 'x = []\nwhile True: x.append(b\"x\" * (16 << 20))'";
};

// The limit is not the box's own but that of the group which temenos was started in. Whom the
// kernel chooses is its own affair: the sandbox, or the process that the sandbox runs this command
// in. Both are in the box's group, and are the end of the box.
TEST_P(OutOfMemoryTest, IsToldByTheKernelsCount) {
  const auto result = run_in_group({"--platform", GetParam()}, kEat);
  EXPECT_EQ(result.out, "before\n");
  EXPECT_THAT(result.err, HasSubstr("the box ran out of memory (it had 1"));
  EXPECT_EQ(result.err.find('\n'), result.err.size() - 1) << result.err;
  EXPECT_EQ(result.status, 128 + SIGKILL) << result.err;
}

TEST_P(OutOfMemoryTest, JsonIsAResultThatSaysOom) {
  const auto result = run_in_group({"--platform", GetParam(), "--json"}, kEat);
  const auto json = parse_json(result.out, {});
  ASSERT_TRUE(json) << result.out;
  EXPECT_TRUE(json->at("oom").as_bool());
  ASSERT_TRUE(json->as_object().contains("oom_evidence")) << result.out;
  EXPECT_THAT(std::string(json->at("oom_evidence").as_string()), HasSubstr("oom_kill in memory."));
  EXPECT_EQ(json->at("stdout").as_string(), "before\n");
  EXPECT_EQ(json->at("signal").as_string(), "SIGKILL");
  EXPECT_EQ(result.status, 128 + SIGKILL) << result.err;
  EXPECT_TRUE(json->at("truncated").as_bool());
  EXPECT_TRUE(json->at("exit_code").is_null());
}

// The same group, the same signal, and memory enough.
TEST_P(OutOfMemoryTest, AKillInSuchAGroupIsNone) {
  Program program(
      host_, {"/bin/sh", "-c", "echo $$ >" + group_->path() + "/cgroup.procs && exec \"$@\"", "sh",
              temenos_program(), "run", "--no-net", "--platform", GetParam(), "--", "/bin/sh", "-c",
              "echo up; sleep 1000"});
  ASSERT_TRUE(program.wait_for("up\n"));
  ASSERT_EQ(kill(box_processes(program.pid()).sandbox, SIGKILL), 0);
  const auto result = program.finish();
  EXPECT_EQ(result.status, 125);
  EXPECT_THAT(result.err, HasSubstr("was killed by signal 9"));
}

INSTANTIATE_TEST_SUITE_P(On, OutOfMemoryTest, ::testing::ValuesIn(platforms()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace temenos::testing
