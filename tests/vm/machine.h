// The test machine's own root: it is changed, and put back.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "testing/cli.h"

namespace temenos::testing {

// Nothing here waits for more than starts, stops and systemd: who needs longer hangs.
inline constexpr int kHangs = 120;

// In the machine's own mounts: this process is in others (Leftovers), and sees nothing of what
// systemd mounts meanwhile.
inline std::string shell(const std::string& script) {
  return host_shell("nsenter --mount=/proc/1/ns/mnt sh 2>&1 <<'EOT'\n" + script + "\nEOT");
}

// A script of root's that must succeed; what it printed.
inline std::string as_root(const std::string& script) {
  std::string out = shell("(set -e; " + script + "\n) || echo FAILED");
  EXPECT_THAT(out, ::testing::Not(::testing::HasSubstr("FAILED"))) << script;
  return out;
}

// Once a second is often enough: each look is some processes of an emulated machine.
inline bool comes_true(const std::string& condition, int seconds = kHangs) {
  return shell("for n in $(seq " + std::to_string(seconds) + "); do if " + condition +
               "; then echo yes; break; fi; sleep 1; done 2>/dev/null") == "yes\n";
}

}  // namespace temenos::testing
