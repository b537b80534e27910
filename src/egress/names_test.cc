#include "egress/names.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <set>

#include "base/unique_fd.h"
#include "codec/address.h"
#include "egress/synthetic.h"

namespace temenos::egress {
namespace {

UniqueFd table_file(std::size_t size = NameTable::kBytes) {
  UniqueFd fd(memfd_create("names", MFD_CLOEXEC));
  EXPECT_EQ(ftruncate(fd.get(), static_cast<off_t>(size)), 0);
  return fd;
}

TEST(Names, ANumberIsANamesForEver) {
  const UniqueFd file = table_file();
  {
    auto table = *NameTable::open(file.get());
    EXPECT_EQ(table.add("a.net", true), 0u);
    EXPECT_EQ(table.add("b.net", false), 1u);
    EXPECT_EQ(table.add("a.net", false), 0u);
    EXPECT_EQ(table.name(1), "b.net");
    EXPECT_EQ(table.name(2), "");
  }
  // Another dialer goes on with it.
  auto again = *NameTable::open(file.get());
  EXPECT_EQ(again.count(), 2u);
  EXPECT_EQ(again.add("b.net", false), 1u);
  EXPECT_EQ(again.add("c.net", false), 2u);
  EXPECT_EQ(again.name(0), "a.net");
}

TEST(Names, ADialerThatDiedInAWriteLeavesAWholeTable) {
  const UniqueFd file = table_file();
  {
    (void)*NameTable::open(file.get())->add("a.net", true);
  }
  // Half a slot was written, and not counted.
  ASSERT_EQ(pwrite(file.get(), "\x20half", 5, NameTable::kSlotBytes * 2), 5);
  auto table = *NameTable::open(file.get());
  EXPECT_EQ(table.count(), 1u);
  EXPECT_EQ(table.name(1), "");
  EXPECT_EQ(table.add("b.net", true), 1u);
  EXPECT_EQ(table.name(1), "b.net");
}

TEST(Names, WhatIsNoTableIsRefused) {
  EXPECT_FALSE(NameTable::open(table_file(4096).get()));
  const UniqueFd other = table_file();
  ASSERT_EQ(pwrite(other.get(), "somethin", 8, 0), 8);
  EXPECT_FALSE(NameTable::open(other.get()));
  const UniqueFd twice = table_file();
  {
    auto table = *NameTable::open(twice.get());
    (void)table.add("aa.net", true);
    (void)table.add("ab.net", true);
  }
  ASSERT_EQ(pwrite(twice.get(), "a", 1, NameTable::kSlotBytes * 2 + 2), 1);
  EXPECT_FALSE(NameTable::open(twice.get()));  // two numbers of one name
}

TEST(Names, WildcardsLeaveRoomForWrittenNames) {
  const UniqueFd file = table_file();
  auto table = *NameTable::open(file.get());
  for (std::uint32_t i = 0; i < kMaxNames - kForExactNames; ++i) {
    ASSERT_TRUE(table.add("w" + std::to_string(i) + ".net", false));
  }
  EXPECT_FALSE(table.add("one.more", false));
  std::vector<std::string> exact;
  for (std::uint32_t i = 0; i < kForExactNames; ++i) exact.push_back("e" + std::to_string(i));
  EXPECT_TRUE(table.has_room_for(exact));
  for (const auto& name : exact) ASSERT_TRUE(table.add(name, true));
  EXPECT_FALSE(table.add("one.more", true));
  EXPECT_FALSE(table.has_room_for({"one.more"}));
  EXPECT_TRUE(table.has_room_for({"e1", "w5.net"}));
  EXPECT_EQ(NameTable::open(file.get())->count(), kMaxNames);
}

TEST(Names, AMillionRefusedNamesMoveNothing) {
  const UniqueFd file = table_file();
  auto table = *NameTable::open(file.get());
  ASSERT_EQ(table.add("allowed.net", true), 0u);
  std::set<std::uint32_t> numbers;
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < 1'000'000; ++i) {
    numbers.insert(table.add_refused("n" + std::to_string(i) + ".evil.net"));
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(30));
  EXPECT_EQ(numbers.size(), kMaxRefused);
  EXPECT_EQ(*numbers.begin(), kFirstRefused);
  EXPECT_EQ(table.name(0), "allowed.net");
  EXPECT_EQ(table.count(), 1u);
  EXPECT_EQ(table.name(table.add_refused("x.net")), "x.net");
  EXPECT_EQ(table.add_refused("x.net"), table.add_refused("x.net"));
}

TEST(Synthetic, NumbersAndAddresses) {
  EXPECT_EQ(format_block(synthetic4(0)), "198.18.1.0");
  EXPECT_EQ(format_block(synthetic6(0)), "fd74:656d:656e:6f73:0:1::");
  EXPECT_EQ(format_block(synthetic4(300)), "198.18.2.44");
  for (const std::uint32_t number :
       {0u, 1u, 255u, kMaxNames - 1, kFirstRefused, kFirstRefused + kMaxRefused - 1}) {
    EXPECT_EQ(number_of(synthetic4(number)), number);
    EXPECT_EQ(number_of(synthetic6(number)), number);
    EXPECT_TRUE(is_boxes_own(synthetic4(number)));
    EXPECT_TRUE(is_boxes_own(synthetic6(number)));
    EXPECT_EQ(classify(synthetic4(number)), AddressClass::kSpecial);
    EXPECT_EQ(classify(synthetic6(number)), AddressClass::kSpecial);
  }
  EXPECT_FALSE(number_of(synthetic4(kMaxNames)));
  EXPECT_FALSE(number_of(synthetic6(kFirstRefused + kMaxRefused)));
  for (const char* address :
       {"198.18.0.1", "198.18.0.5", "198.18.0.255", "198.19.255.255", "fd74:656d:656e:6f73::5",
        "fd74:656d:656e:6f73:1:1:0:0", "8.8.8.8", "fd74:656d:656e:6f74:0:1::"}) {
    EXPECT_FALSE(number_of(*parse_address(address))) << address;
  }
}

}  // namespace
}  // namespace temenos::egress
