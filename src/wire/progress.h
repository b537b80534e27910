// What a parser of bytes that are still coming says.
#pragma once

#include <cstdint>

namespace temenos::wire {

enum class Progress : std::uint8_t {
  kNeedMore,   // so far it can become something good
  kGood,       // it is whole
  kMalformed,  // whatever may follow; a reason is beside it
};

// Whether bytes begin a message of some protocol, decided on as few of them as possible.
enum class Start : std::uint8_t { kNo, kMaybe, kYes };

}  // namespace temenos::wire
