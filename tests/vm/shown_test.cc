// What the people of a machine with systemd have of its boxes: they see them with systemd's own
// programs, and get in while bombs explode in them. For root and for an ordinary user.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <iostream>
#include <thread>

#include "tests/limits/limits_test.h"

namespace temenos::testing {
namespace {

using std::chrono::steady_clock;
using namespace std::chrono_literals;
using ::testing::HasSubstr;

using Machine = LimitsTest;

TEST_F(Machine, SystemdsProgramsShowABoxByName) {
  const Box box = start("seen", {});
  const auto all = groups("seen");
  ASSERT_EQ(all.size(), 1u) << audit("seen");
  const std::string path = all[0].substr(0, all[0].rfind('/'));
  const std::string unit = path.substr(path.rfind('/') + 1);
  ASSERT_THAT(unit, ::testing::StartsWith("temenos-seen-"));
  ASSERT_TRUE(unit.ends_with(".scope")) << unit;
  const std::string systemctl = geteuid() == 0 ? "systemctl " : "systemctl --user ";
  const std::string status = host_shell(systemctl + "--no-pager status 'temenos-seen-*' 2>&1");
  EXPECT_THAT(status, HasSubstr(unit + " - temenos box temenos-seen"));
  EXPECT_THAT(status, HasSubstr("Active: active (running)"));
  EXPECT_THAT(status, HasSubstr("temenos-keeper"));
  EXPECT_THAT(status, HasSubstr("sandbox"));
  EXPECT_THAT(host_shell("systemd-cgls --no-pager --full 2>&1"), HasSubstr(unit));
  EXPECT_THAT(host_shell("systemd-cgtop --batch --raw --iterations=1 --depth=9 2>&1"),
              HasSubstr(unit + "/sandbox"));
  // Its own way to end it.
  EXPECT_EQ(host_shell(systemctl + "stop 'temenos-seen-*' 2>&1"), "");
  EXPECT_FALSE(box.is_alive());
  EXPECT_THAT(audit("seen"), HasSubstr("\"reason\":\"stopped\""));
}

// The ordinary user's boxes, and his log-in by ssh: PAM, logind, a session of its own.
TEST_F(Machine, ALogInSucceedsWhileBombsExplode) {
  ASSERT_NE(geteuid(), 0u);
  const std::string key = host_.path() + "/key";
  const std::string home = host_shell("getent passwd $(id -u) | cut -d: -f6 | tr -d '\\n'");
  ASSERT_EQ(host_shell("ssh-keygen -q -t ed25519 -N '' -f " + key + " && mkdir -p -m 0700 " + home +
                       "/.ssh && cp " + key + ".pub " + home + "/.ssh/authorized_keys && echo ok"),
            "ok\n");
  const std::string login =
      "timeout 120 ssh -F none -i " + key +
      " -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o BatchMode=yes "
      "-o LogLevel=ERROR 127.0.0.1 'sh -c \"echo in\" | cat' 2>&1";
  const auto quiet_begin = steady_clock::now();
  EXPECT_EQ(host_shell(login), "in\n");
  const std::chrono::duration<double> quiet = steady_clock::now() - quiet_begin;
  constexpr int kBoxes = 4;  // more take minutes to start here
  std::vector<std::string> names;
  std::vector<Box> boxes;
  for (int n = 0; n < kBoxes; ++n) {
    names.push_back("bomb" + std::to_string(n));
    boxes.push_back(start(names.back(), {.limits = {.memory_mb = 256, .pids = 64}}));
    ASSERT_FALSE(HasFailure());
  }
  // Not before all are there: nobody starts a box among bombs quickly.
  for (auto& box : boxes) {
    auto request = use_up({&box == &boxes.front() ? "bomb-ids" : "bomb"});
    request.timeout = {};
    ASSERT_TRUE(box.start_job(request));
  }
  const auto tasks = [&] {
    long sum = 0;
    for (const auto& name : names) sum += host_tasks(name);
    return sum;
  };
  // A box in which nothing happens has half as many or less.
  const auto exploded = [&] { return tasks() > long{kBoxes} * 64; };
  const auto end = steady_clock::now() + patience(6);
  while (!exploded() && steady_clock::now() < end) std::this_thread::sleep_for(100ms);
  ASSERT_TRUE(exploded()) << tasks();
  const auto begin = steady_clock::now();
  EXPECT_EQ(host_shell(login), "in\n");
  const std::chrono::duration<double> busy = steady_clock::now() - begin;
  RecordProperty("quiet_seconds", std::to_string(quiet.count()));
  RecordProperty("busy_seconds", std::to_string(busy.count()));
  EXPECT_LT(busy, 10 * quiet);
  EXPECT_TRUE(exploded()) << "all bombs were over before the log-in was: " << tasks();
  std::cout << "log-in: " << quiet.count() << " s, " << busy.count() << " s among bombs\n";
  host_shell("rm -f " + home + "/.ssh/authorized_keys");
}

}  // namespace
}  // namespace temenos::testing
