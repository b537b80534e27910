#include "keeper/end_reason.h"

#include <gtest/gtest.h>

#include <csignal>
#include <set>

namespace temenos::keeper {
namespace {

constexpr int exited(int status) { return status << 8; }

TEST(EndReason, EachHasWordsOfItsOwnAndSaysWhatToDo) {
  std::set<std::string_view> names, texts;
  constexpr auto kLast = static_cast<std::uint32_t>(EndReason::kDiskLimit);
  for (std::uint32_t i = 1; i <= kLast; ++i) {
    const auto reason = static_cast<EndReason>(i);
    EXPECT_TRUE(names.insert(end_reason_name(reason)).second) << i;
    EXPECT_TRUE(texts.insert(end_reason_text(reason)).second) << i;
    EXPECT_FALSE(end_reason_hint(reason).empty()) << i;
  }
  // One that a keeper of another version sent.
  EXPECT_EQ(end_reason_name(static_cast<EndReason>(kLast + 1)), "unknown");
}

TEST(EndReason, IsToldFromWhoSaidGoodbye) {
  struct {
    Ending ending;
    EndReason reason;
    const char* text;
  } const cases[] = {
      {{SIGKILL, {}}, EndReason::kRunscDied, "runsc was ended by signal 9"},
      {{exited(128), {}}, EndReason::kRunscDied, "runsc exited with status 128"},
      {{exited(137), {}}, EndReason::kSandboxDied, "sentry) was killed by signal 9"},
      {{exited(159), {}}, EndReason::kSandboxDied, "sentry) was killed by signal 31"},
      {{exited(2), 2}, EndReason::kSandboxCrashed, "sentry) crashed"},
      // The same status of runsc, and what is meant differs.
      {{exited(137), 137}, EndReason::kInitDied, "process 1) ended by signal 9"},
      {{exited(137), 137, false, true},
       EndReason::kGoferDied,
       "the gofer of the sandbox was killed"},
      {{0, {}, false, true, true}, EndReason::kGoferDied, "the gofer of the sandbox was killed"},
      {{exited(128), 128}, EndReason::kSandboxCrashed, "sentry) crashed"},
      {{exited(2), 2, false, false, false, "panic: createStub: failed to get clone"},
       EndReason::kProcessLimit,
       "its limit of processes"},
      // Its words alone say nothing.
      {{exited(137), {}, false, false, false, "panic: createStub: failed to get clone"},
       EndReason::kSandboxDied,
       "sentry) was killed by signal 9"},
      {{exited(0), 0}, EndReason::kInitDied, "process 1) ended with status 0"},
  };
  for (const auto& one : cases) {
    EXPECT_EQ(judge(one.ending), one.reason) << one.text;
    EXPECT_NE(describe(one.ending).find(one.text), std::string::npos) << describe(one.ending);
  }
}

}  // namespace
}  // namespace temenos::keeper
