#include "base/time.h"

#include <cstdio>
#include <ctime>

namespace temenos {

std::string utc_text(std::chrono::system_clock::time_point moment) {
  const std::time_t seconds = std::chrono::system_clock::to_time_t(moment);
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  char text[64];
  return {text, std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc)};
}

std::string utc_now() { return utc_text(std::chrono::system_clock::now()); }

std::string utc_now_ms() {
  const auto now = std::chrono::system_clock::now();
  const auto ms =
      std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch()).count() % 1000;
  std::string text = utc_text(now);
  text.pop_back();
  char fraction[8];
  std::snprintf(fraction, sizeof fraction, ".%03dZ", static_cast<int>(ms));
  return text + fraction;
}

}  // namespace temenos
