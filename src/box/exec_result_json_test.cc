#include "box/exec_result_json.h"

#include <gtest/gtest.h>

#include "codec/json.h"

namespace temenos {
namespace {

TEST(ExecResultJson, HasEveryFieldOfTheContract) {
  ExecResult result;
  result.exit_code = 3;
  result.duration = std::chrono::milliseconds(12);
  result.stdout_data = "ünï\n";
  result.stderr_data = "\xff\xfe";
  result.stderr_omitted = {1, 7};
  result.truncated = true;
  result.left_running = {4, 5};
  result.denials.push_back(
      {"egress", "bad\xff.example:443", "default", "temenos net allow", "2026-01-02T03:04:05Z"});
  EXPECT_EQ(serialize_json(to_json(result)),
            R"({"exit_code":3,"signal":null,"timed_out":false,"oom":false,"truncated":true,)"
            R"("duration_ms":12,"stdout":"ünï\n","stderr_base64":"//4=",)"
            R"("stderr_omitted":{"at":1,"bytes":7},)"
            R"("denials":[{"kind":"egress","target":"bad\\xff.example:443","rule":"default",)"
            R"("hint":"temenos net allow","time":"2026-01-02T03:04:05Z"}],"left_running":[4,5]})");
}

TEST(ExecResultJson, WantOfMemoryHasItsEvidence) {
  ExecResult result;
  EXPECT_FALSE(to_json(result).contains("oom_evidence"));
  result.oom = true;
  result.oom_evidence = "oom_kill rose";
  EXPECT_EQ(to_json(result).at("oom_evidence").as_string(), "oom_kill rose");
}

TEST(ExecResultJson, SignalAndJob) {
  ExecResult result;
  result.signal = "SIGKILL";
  result.timed_out = true;
  result.job = "j1";
  const auto json = to_json(result);
  EXPECT_TRUE(json.at("exit_code").is_null());
  EXPECT_EQ(json.at("signal").as_string(), "SIGKILL");
  EXPECT_EQ(json.at("job").as_string(), "j1");
  EXPECT_TRUE(json.at("timed_out").as_bool());
}

}  // namespace
}  // namespace temenos
