// The names of a box's network log in its data dir (egress/log.h).
#pragma once

#include <array>

namespace temenos::egress {

inline constexpr std::array kLogFiles = {"egress.0.log", "egress.1.log"};

}  // namespace temenos::egress
