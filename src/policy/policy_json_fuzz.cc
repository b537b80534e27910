#include <cstdint>

#include "policy/policy_fuzz_common.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  temenos::require_sound(temenos::Policy::from_json({reinterpret_cast<const char*>(data), size}));
  return 0;
}
