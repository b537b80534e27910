#include "base/time.h"

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

}  // namespace temenos
