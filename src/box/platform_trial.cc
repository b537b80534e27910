#include "box/platform_trial.h"

#include <poll.h>

#include <chrono>

#include "base/try.h"
#include "box/box_handle.h"
#include "temenos/policy_builder.h"

namespace temenos::box {
namespace {

constexpr char kTrialScript[] =
    "i=0; while [ $i -lt 50 ]; do /bin/true || exit 1; i=$((i+1)); done; head -c 262144 /dev/zero";
constexpr std::size_t kTrialBytes = 262144;
// kvm may be there and hang. The others do not, and may have a slow machine: an emulated one, say.
constexpr unsigned kStartSecondsOfKvm = 6;
constexpr int kSecondsOfKvm = 15;
constexpr unsigned kStartSeconds = 15;
constexpr int kSeconds = 90;

}  // namespace

PlatformTrial try_platform(const HostDirs& dirs, const gvisor::Runsc& runsc,
                           const std::string& name, Scratch scratch, int cancel_fd) {
  PlatformTrial trial;
  trial.name = name;
  const auto begin = std::chrono::steady_clock::now();
  auto attempt = [&]() -> Result<void> {
    const auto policy = TRY(Policy::Builder().network(NetworkMode::kNone).scratch(scratch).build());
    StartOptions options;
    options.runsc = runsc.path;
    options.platform = name;
    options.start_timeout_s = name == "kvm" ? kStartSecondsOfKvm : kStartSeconds;
    options.cancel_fd = cancel_fd;
    auto box = TRY(BoxHandle::start(policy, dirs, options));
    ExecRequest request;
    request.argv = {"/bin/sh", "-c", kTrialScript};
    request.env = box.environment();
    request.timeout = std::chrono::seconds(name == "kvm" ? kSecondsOfKvm : kSeconds);
    ExecIo io;
    io.cancel_fd = cancel_fd;
    const auto result = box.session().exec(request, io);
    if (!result) return tl::make_unexpected(box.explain(result.error()));
    if (result->timed_out) return fail(Code::kTimedOut, "the workload did not end in time");
    if (result->exit_code != 0 || result->stdout_data.size() != kTrialBytes) {
      return fail(Code::kBoxDied, "the workload failed: " + result->stderr_data);
    }
    TRY(box.stop());
    return {};
  };
  const auto done = attempt();
  const auto spent = std::chrono::steady_clock::now() - begin;
  trial.ms = static_cast<int>(std::chrono::duration_cast<std::chrono::milliseconds>(spent).count());
  trial.ok = done.has_value();
  if (!done) trial.why = done.error().to_string();
  pollfd cancel{cancel_fd, POLLIN, 0};
  trial.given_up = poll(&cancel, 1, 0) > 0;
  return trial;
}

}  // namespace temenos::box
