#include "egress/synthetic.h"

#include <gtest/gtest.h>

#include "codec/address.h"
#include "egress/plan.h"

namespace temenos::egress {
namespace {

TEST(Synthetic, EveryNumberHasAnAddressOfEachFamilyThatLeadsBack) {
  for (const std::uint32_t number :
       {0u, 1u, 255u, 256u, kMaxNames - 1, kFirstRefused, kFirstRefused + kMaxRefused - 1}) {
    EXPECT_EQ(number_of(synthetic4(number)), number);
    EXPECT_EQ(number_of(synthetic6(number)), number);
  }
}

TEST(Synthetic, WhatIsNoNamesIsTheBoxesOwnAllTheSame) {
  for (const auto address : {kRouter4, kBox4, kSelfTest4, kRouter6, kBox6}) {
    EXPECT_TRUE(is_boxes_own(*parse_address(address))) << address;
    EXPECT_FALSE(number_of(*parse_address(address))) << address;
  }
  EXPECT_FALSE(number_of(synthetic4(kMaxNames)));
  EXPECT_FALSE(number_of(synthetic6(kFirstRefused + kMaxRefused)));
  for (const char* address : {"198.17.255.255", "198.20.0.0", "fd74:656d:656e:6f72::1:0:0"}) {
    EXPECT_FALSE(is_boxes_own(*parse_address(address))) << address;
  }
}

}  // namespace
}  // namespace temenos::egress
