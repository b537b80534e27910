// What tests of front share: it runs as a process, and its dialer does as the test says. Nothing of
// a connection may be left when a test ends.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <utility>

#include "testing/front_bed.h"
#include "testing/tcp.h"

namespace temenos::testing {

inline FrontBed::Options quick() {
  FrontBed::Options out;
  out.times = {
      .head = 400, .dialer = 600, .idle = 2'000, .peek = 100, .quiet = 50, .farewell = 500};
  return out;
}

inline std::string get(std::string_view host, std::string_view path = "/") {
  return "GET " + std::string(path) + " HTTP/1.1\r\nHost: " + std::string(host) + "\r\n\r\n";
}

class FrontTest : public ::testing::Test {
 protected:
  explicit FrontTest(const FrontBed::Options& options = {}) : bed(options) {}
  ~FrontTest() override {
    EXPECT_TRUE(bed.back_to_its_start()) << bed.open_fds();
    EXPECT_EQ(bed.end(), 0);
  }
  // Connections through the router go to `name`, whose server is `server`.
  void route(egress::Verdict verdict, std::string name = "a.test") {
    bed.dialer().rule(bed.transparent(),
                      {.verdict = verdict, .name = std::move(name), .server = server.port});
  }
  LoopbackListener server;
  FrontBed bed;
};
class QuickFrontTest : public FrontTest {
 protected:
  QuickFrontTest() : FrontTest(quick()) {}
};

}  // namespace temenos::testing
