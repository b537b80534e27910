// A box's two network namespaces without a box: what temenos-netsetup makes, tried by this kernel's
// own network stack, as root of the user namespace that owns both.
#pragma once

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <functional>
#include <string>

#include "base/unique_fd.h"
#include "egress/netns_answer.h"
#include "sys/process_sys.h"
#include "temenos/error.h"

namespace temenos::testing {

class NetnsTest : public ::testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;

  // A fresh box namespace, set up; `prepare` runs before, in it.
  Result<netns::Listeners> start(const std::function<void()>& prepare = {});

  enum class Place { kBox, kRouter };
  // Runs `act` there, in a process of its own that is to end with 0.
  sys::Process go(Place place, const std::function<int()>& act);
  void in(Place place, const std::function<int()>& act);
  static void expect_well(sys::Process process);

  // What has come to a listener, within some seconds.
  static UniqueFd accepted(const UniqueFd& listener);
  static bool readable(int fd, int milliseconds = 10'000);

  netns::Listeners listeners_;

 private:
  sys::Process holder_;
  UniqueFd control_;
  UniqueFd user_ns_, box_ns_;
};

// For processes of in(): says what was wrong, and ends.
void must(bool condition, const std::string& what);

struct Endpoint {
  sockaddr_storage address{};
  socklen_t size = 0;
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address); }
};
// "1.2.3.4" or "2001:db8::1".
Endpoint endpoint(const std::string& host, unsigned port);
std::string text_of(const sockaddr_storage& address);  // host and port with a blank between

}  // namespace temenos::testing
