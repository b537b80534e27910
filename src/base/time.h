// Moments as text: RFC 3339 in UTC, whole seconds ("2026-11-30T12:00:00Z").
//
// Thread-safety: pure functions.
#pragma once

#include <chrono>
#include <string>

namespace temenos {

std::string utc_text(std::chrono::system_clock::time_point moment);
std::string utc_now();
// With milliseconds: "2026-11-30T12:00:00.123Z".
std::string utc_now_ms();

}  // namespace temenos
