// For tests: an index as git writes it, with whatever entries.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "git/index_entries.h"

namespace temenos::git {

struct IndexEntry {
  std::string name;
  unsigned mode = 0100644;
};

inline void put(std::string& out, std::uint32_t value) {
  for (int shift = 24; shift >= 0; shift -= 8) out += static_cast<char>(value >> shift & 255);
}

// Version 4 shares what two neighbours begin with; 3 has the extended flags.
inline std::string index_text(unsigned version, const std::vector<IndexEntry>& entries,
                              HashSize hash = HashSize::kSha1, const std::string& extensions = "") {
  std::string out = "DIRC";
  put(out, version);
  put(out, static_cast<std::uint32_t>(entries.size()));
  std::string previous;
  for (const auto& entry : entries) {
    const std::size_t begin = out.size();
    for (int i = 0; i < 6; ++i) put(out, 0);
    put(out, entry.mode);
    for (int i = 0; i < 3; ++i) put(out, 0);
    out.append(static_cast<std::size_t>(hash), 'h');
    const std::size_t length = entry.name.size() < 0xfff ? entry.name.size() : 0xfff;
    const std::size_t flags = length | (version == 3 ? 0x4000 : 0);
    out += static_cast<char>(flags >> 8);
    out += static_cast<char>(flags & 255);
    if (version == 3) out.append(2, '\0');
    if (version == 4) {
      std::size_t common = 0;
      while (common < previous.size() && common < entry.name.size() &&
             previous[common] == entry.name[common]) {
        ++common;
      }
      std::size_t strip = previous.size() - common;
      std::string number(1, static_cast<char>(strip & 127));
      while ((strip >>= 7) != 0) {
        number.insert(number.begin(), static_cast<char>(128 | (--strip & 127)));
      }
      out += number + entry.name.substr(common) + '\0';
      previous = entry.name;
    } else {
      out += entry.name;
      out.append(8 - (out.size() - begin) % 8, '\0');
    }
  }
  return out + extensions + std::string(static_cast<std::size_t>(hash), 'H');
}

}  // namespace temenos::git
