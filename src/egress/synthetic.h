// The addresses that a box sees instead of names' real ones, as numbers (egress/plan.h).
//
// Thread-safety: pure functions.
#pragma once

#include <cstdint>
#include <optional>

#include "temenos/network.h"

namespace temenos::egress {

AddressBlock synthetic4(std::uint32_t number);
AddressBlock synthetic6(std::uint32_t number);
// In the ranges that only boxes see, whether some name has it or not.
bool is_boxes_own(const AddressBlock& address);
// nullopt: no name's address.
std::optional<std::uint32_t> number_of(const AddressBlock& address);

}  // namespace temenos::egress
