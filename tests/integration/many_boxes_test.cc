// Many boxes: one after another, and all alive at the same time. None fails, each gives its own
// output and no other's, none leaves anything.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "tests/integration/program.h"

namespace temenos::testing {
namespace {

const int kInTurn = std::max(30, part_of(100));
constexpr int kAtOnce = 50;

class ManyBoxesTest : public IntegrationTest, public ::testing::WithParamInterface<std::string> {
 protected:
  // What this box alone would print.
  static std::string script(int number, const char* rest) {
    return "echo box " + std::to_string(number) + " $((" + std::to_string(number) + " * 7)); " +
           rest;
  }
  static std::string expected(int number) {
    return "box " + std::to_string(number) + " " + std::to_string(number * 7) + "\n";
  }
};
INSTANTIATE_TEST_SUITE_P(Each, ManyBoxesTest, ::testing::ValuesIn(platforms()),
                         [](const auto& info) { return info.param; });

TEST_P(ManyBoxesTest, OneAfterAnother) {
  for (int i = 0; i < kInTurn; ++i) {
    const auto result = run({"--platform", GetParam()}, script(i, "exit 3"));
    EXPECT_EQ(result.status, 3) << "box " << i << ": " << result.err;
    EXPECT_EQ(result.out, expected(i)) << result.err;
    EXPECT_EQ(result.err, "") << "box " << i;
  }
}

TEST_P(ManyBoxesTest, AllAtOnce) {
  std::vector<std::unique_ptr<Program>> boxes;
  for (int i = 0; i < kAtOnce; ++i) {
    // Each lives until its stdin ends, which is when all are there.
    boxes.push_back(std::make_unique<Program>(
        host_, argv({"--platform", GetParam(), "-i"}, script(i, "cat; echo end; exit 4"))));
  }
  const auto started = std::chrono::steady_clock::now();
  for (int i = 0; i < kAtOnce; ++i) {
    EXPECT_TRUE(boxes[i]->wait_for(expected(i))) << "box " << i << " did not start";
  }
  const auto took = std::chrono::steady_clock::now() - started;
  RecordProperty("seconds", std::to_string(took / std::chrono::seconds(1)));
  for (const auto& box : boxes) box->close_in();
  for (int i = 0; i < kAtOnce; ++i) {
    const auto result = boxes[i]->finish();
    EXPECT_EQ(result.status, 4) << "box " << i << ": " << result.err;
    EXPECT_EQ(result.out, expected(i) + "end\n") << result.err;
    EXPECT_EQ(result.err, "") << "box " << i;
  }
}

}  // namespace
}  // namespace temenos::testing
