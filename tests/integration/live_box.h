// A box of the library in the test's own process, without a project and, by default, a network.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <utility>

#include "box/box_handle.h"
#include "box/host_probe.h"
#include "temenos/policy_builder.h"
#include "tests/integration/program.h"

namespace temenos::testing {

// The parameter is the platform.
class LiveBoxTest : public IntegrationTest, public ::testing::WithParamInterface<std::string> {
 protected:
  void SetUp() override {
    for (const auto& variable : host_.environment()) {
      const auto equals = variable.find('=');
      setenv(variable.substr(0, equals).c_str(), variable.substr(equals + 1).c_str(), 1);
    }
    const auto made = start();
    ASSERT_TRUE(made) << made.error().to_string();
  }
  void TearDown() override {
    if (box_) {
      const auto end = box_->stop();
      EXPECT_TRUE(end) << end.error().to_string();
    }
    IntegrationTest::TearDown();
  }

  virtual NetworkMode network() const { return NetworkMode::kNone; }
  SessionClient& session() { return box_->session(); }
  ExecRequest command(std::vector<std::string> argv) const {
    ExecRequest request;
    request.argv = std::move(argv);
    request.env = box_->environment({{"TERM", "xterm"}, {"PS1", "$ "}});
    request.timeout = std::chrono::minutes(2);
    return request;
  }
  // What a script printed; a failure when it was not well.
  std::string output_of(const std::string& script) {
    const auto result = session().exec(command({"/bin/bash", "-c", script}));
    EXPECT_TRUE(result && result->exit_code == 0)
        << (result ? result->stderr_data : result.error().to_string());
    return result ? result->stdout_data : "";
  }

  std::unique_ptr<box::BoxHandle> box_;

 private:
  Result<void> start() {
    const auto dirs = box::host_dirs();
    if (!dirs) return tl::make_unexpected(dirs.error());
    const auto probe = box::probe_runsc(*dirs);
    if (!probe) return tl::make_unexpected(probe.error());
    const auto policy = Policy::Builder().network(network()).build();
    box::StartOptions options;
    options.runsc = probe->runsc.path;
    options.platform = GetParam();
    auto started = box::BoxHandle::start(*policy, *dirs, options);
    if (!started) return tl::make_unexpected(started.error());
    box_ = std::make_unique<box::BoxHandle>(std::move(*started));
    return {};
  }
};

}  // namespace temenos::testing
