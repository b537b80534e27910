#include "disk/budget.h"

#include <gtest/gtest.h>

namespace temenos::disk {
namespace {

using namespace std::chrono_literals;
using Look = Budget::Look;
using Verdict = Budget::Verdict;

constexpr std::uint64_t kMiB = 1 << 20;
constexpr Limit kLimit{100 * kMiB, 10'000};

class BudgetTest : public ::testing::Test {
 protected:
  Look look(std::uint64_t free_mb) {
    space_.free_bytes = free_mb * kMiB;
    return budget_.look(space_, now_);
  }
  // So long after the last one that nobody can be said to be fast.
  Look look_later(std::uint64_t free_mb) {
    pass(1h);
    return look(free_mb);
  }
  Verdict counted(std::uint64_t mb, bool still, std::uint64_t files = 100) {
    return budget_.counted({mb * kMiB, files}, still, now_, now_ + 1ms);
  }
  // As it begins: what is there is counted before the sandbox is.
  void begin(std::uint64_t free_mb, std::uint64_t used_mb = 10) {
    look(free_mb);
    EXPECT_EQ(counted(used_mb, true), Verdict::kGood);
    pass(6s);
    EXPECT_EQ(look(free_mb), Look::kNone);
  }
  void pass(std::chrono::milliseconds time) { now_ += time; }

  Space space_{0, 1'000'000, 100'000 * kMiB, 2'000'000, true};
  Budget::Clock::time_point now_ = Budget::Clock::now();
  Budget budget_{kLimit};
};

TEST_F(BudgetTest, NothingIsCountedWhileNothingIsUsedUp) {
  begin(50'000);
  for (int n = 0; n < 100; ++n) {
    EXPECT_EQ(look(50'000), Look::kNone);
    pass(1s);
  }
}

TEST_F(BudgetTest, ItStandsStillWhenItMayHaveUsedUpItsRoom) {
  begin(50'000);
  EXPECT_NE(look_later(50'000 - 89), Look::kStill);
  EXPECT_EQ(look_later(50'000 - 90), Look::kStill);
}

// It takes a moment until it does.
TEST_F(BudgetTest, AFastOneStandsStillSooner) {
  begin(50'000);
  pass(10ms);
  EXPECT_NE(look(50'000 - 10), Look::kStill) << "so much it has in 10 ms, and 25 more in 25";
  pass(10ms);
  EXPECT_NE(look(50'000 - 60), Look::kNone);
  pass(10ms);
  EXPECT_EQ(look(50'000 - 70), Look::kStill);
  EXPECT_EQ(counted(80, true), Verdict::kGood);
  pass(200ms);
  EXPECT_EQ(look(50'000 - 75), Look::kNone) << "it is not fast any more";
}

TEST_F(BudgetTest, SoManyFilesMatterAsWell) {
  begin(50'000);
  space_.free_files -= 9'899;
  EXPECT_NE(look_later(50'000), Look::kStill);
  space_.free_files -= 1;
  EXPECT_EQ(look_later(50'000), Look::kStill);
  EXPECT_EQ(counted(10, true, kLimit.files + 1), Verdict::kOverLimit);
}

// Freed by others, so the sum of what fell counts and not the difference.
TEST_F(BudgetTest, WhatOthersFreeHidesNothing) {
  begin(50'000);
  Look last = Look::kNone;
  for (int n = 0; n < 10 && last != Look::kStill; ++n) {
    look(50'000);
    last = look(50'000 - 9);
    pass(10ms);
  }
  EXPECT_EQ(last, Look::kStill);
}

TEST_F(BudgetTest, WhatOthersWriteIsCountedAndForgiven) {
  begin(50'000);
  EXPECT_EQ(look(49'000), Look::kStill);
  EXPECT_EQ(counted(10, true), Verdict::kGood);
  EXPECT_NE(look_later(49'000 - 50), Look::kStill);
}

// The nearer, the sooner; but not for each byte.
TEST_F(BudgetTest, NearTheLimitLessHasToFall) {
  begin(50'000, 99);
  EXPECT_NE(look_later(49'999), Look::kStill);
  EXPECT_EQ(look_later(49'998), Look::kStill);
}

TEST_F(BudgetTest, ABoxThatRunsMayHideFilesSoOnlyAStandingOneIsJudged) {
  begin(50'000);
  EXPECT_EQ(look_later(50'000 - 50), Look::kLive);
  EXPECT_EQ(counted(200, false), Verdict::kGood);
  pass(20ms);
  EXPECT_EQ(look(50'000 - 50), Look::kStill);
  EXPECT_EQ(counted(200, true), Verdict::kOverLimit);
}

// It has at least half of the time, however much others write.
TEST_F(BudgetTest, LongCountsAreNotMadeOneAfterAnother) {
  begin(50'000);
  ASSERT_EQ(look(40'000), Look::kStill);
  EXPECT_EQ(budget_.counted({10 * kMiB, 100}, true, now_, now_ + 500ms), Verdict::kGood);
  pass(500ms);
  EXPECT_EQ(look(30'000), Look::kNone);
  pass(499ms);
  EXPECT_EQ(look(20'000), Look::kNone);
  pass(1ms);
  EXPECT_EQ(look(20'000), Look::kStill);
}

TEST_F(BudgetTest, WhatFallsWhileItIsCountedIsNotLost) {
  begin(50'000);
  ASSERT_EQ(look(50'000 - 90), Look::kStill);
  EXPECT_EQ(counted(10, true), Verdict::kGood);
  EXPECT_NE(look_later(50'000 - 175), Look::kStill);
  EXPECT_EQ(look_later(50'000 - 180), Look::kStill);
}

TEST_F(BudgetTest, AHostThatIsNearlyFullEndsWhoGoesOnToWrite) {
  begin(50'000);
  EXPECT_EQ(look(255), Look::kStill);
  EXPECT_EQ(counted(10, true), Verdict::kGood) << "it may be others that fill the disk";
  pass(1s);
  EXPECT_EQ(look(254), Look::kStill);
  EXPECT_EQ(counted(10, true), Verdict::kGood);
  pass(1s);
  EXPECT_EQ(look(253), Look::kStill);
  EXPECT_EQ(counted(11, true), Verdict::kHostFull);
}

// While it runs it can have its files counted twice, and then it would have that much to write.
TEST_F(BudgetTest, WhatACountOfARunningBoxSaidIsNoExcuse) {
  begin(50'000);
  look_later(49'999);
  EXPECT_EQ(counted(90, false), Verdict::kGood);
  EXPECT_EQ(look_later(255), Look::kStill);
  EXPECT_EQ(counted(12, true), Verdict::kGood);
  EXPECT_EQ(look_later(254), Look::kStill);
  EXPECT_EQ(counted(13, true), Verdict::kHostFull);
}

TEST_F(BudgetTest, OfASmallFileSystemAPartIsEnough) {
  space_.total_bytes = 200 * kMiB;
  begin(180);
  EXPECT_EQ(look(11), Look::kStill);  // for the room, which is as much
  EXPECT_EQ(counted(12, true), Verdict::kGood);
  pass(1s);
  EXPECT_EQ(look(9), Look::kStill);
  EXPECT_EQ(counted(14, true), Verdict::kHostFull);
}

TEST_F(BudgetTest, AHostWithRoomAgainIsNoReasonAnyMore) {
  begin(50'000);
  ASSERT_EQ(look(255), Look::kStill);
  EXPECT_EQ(counted(10, true), Verdict::kGood);
  pass(1s);
  look(40'000);
  EXPECT_EQ(counted(50, false), Verdict::kGood);
  pass(10s);
  EXPECT_EQ(look(255), Look::kStill);
  EXPECT_EQ(counted(50, true), Verdict::kGood) << "a new beginning";
}

// There the free space says nothing in time.
TEST_F(BudgetTest, WhereSpaceIsToldLateItIsCountedAllTheTime) {
  space_.is_prompt = false;
  look(50'000);
  EXPECT_EQ(counted(10, true), Verdict::kGood);
  EXPECT_EQ(look(50'000), Look::kNone);
  pass(101ms);
  EXPECT_EQ(look(50'000), Look::kLive);
  EXPECT_EQ(budget_.counted({10 * kMiB, 100}, false, now_, now_ + 100ms), Verdict::kGood);
  pass(1s);
  EXPECT_EQ(look(50'000), Look::kNone) << "a twentieth of the time at most";
  pass(2s);
  EXPECT_EQ(look(50'000), Look::kLive);
}

TEST_F(BudgetTest, TheNearerTheOftener) {
  Budget large{{std::uint64_t{50} << 30, 10'000'000}};
  space_.free_bytes = 50'000 * kMiB;
  large.look(space_, now_);
  EXPECT_EQ(large.interval(), 500ms);
  begin(50'000);
  look(50'000);
  EXPECT_EQ(budget_.interval(), 30ms) << "nothing for six seconds";
  pass(1s);
  look(50'000 - 20);
  EXPECT_EQ(budget_.interval(), 17ms) << "of 70 MiB";
  pass(10ms);
  look(50'000 - 60);
  EXPECT_EQ(budget_.interval(), 5ms) << "at 4 GiB a second";
}

// A box that does nothing wakes nobody often, however near to its limit it is; a small one may not
// get far beyond it in an instant.
TEST_F(BudgetTest, WhoDoesNothingIsLookedAtSeldom) {
  Budget large{{std::uint64_t{10} << 30, 10'000'000}};
  space_.free_bytes = 50'000 * kMiB;
  large.look(space_, now_);
  large.counted({std::uint64_t{10} << 30, 100}, true, now_, now_ + 1ms);
  EXPECT_EQ(large.interval(), 39ms) << "half of what a 64th of it takes";
  pass(2s);
  large.look(space_, now_);
  EXPECT_EQ(large.interval(), 351ms);
  begin(50'000, 100);
  look(49'999);
  EXPECT_EQ(budget_.interval(), 5ms);
  pass(2s);
  look(49'999);
  EXPECT_EQ(budget_.interval(), 20ms);
  pass(20s);
  look(49'999);
  EXPECT_EQ(budget_.interval(), 50ms);
}

TEST(SpaceTest, OfThisFileSystem) {
  const auto space = space_of(0);
  ASSERT_TRUE(space);
  EXPECT_FALSE(space_of(-1));
}

}  // namespace
}  // namespace temenos::disk
