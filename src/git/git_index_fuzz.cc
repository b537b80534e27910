// The first byte says what follows: bytes of an index, or names, from which an index is made. For
// the names an independent judgement of the plain cases must agree with the reader.
#include <algorithm>
#include <cstdint>
#include <cstdlib>

#include "base/text.h"
#include "git/index_text.h"

namespace {

using namespace temenos::git;

void require(bool holds) {
  if (!holds) std::abort();
}

// Some of what is bad, and never what is not.
bool plainly_bad(const std::string& name) {
  for (auto component : temenos::split(name, '/')) {
    std::transform(component.begin(), component.end(), component.begin(),
                   [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
    if (component == "." || component == ".." || component == ".git") return true;
  }
  return false;
}

// Never bad: letters and slashes between them.
bool plainly_good(const std::string& name) {
  return !name.empty() && name.front() != '/' && name.back() != '/' &&
         name.find("//") == name.npos &&
         name.find_first_not_of("abcdefghijklmnopqrstuvwxyz/") == name.npos;
}

void check_made(unsigned version, HashSize hash, std::string_view text) {
  std::vector<IndexEntry> entries;
  bool bad = false;
  bool good = true;
  for (auto& name : temenos::split(text, '\n')) {
    std::erase(name, '\0');
    bad |= plainly_bad(name);
    good &= plainly_good(name);
    entries.push_back({std::move(name)});
  }
  const auto judged = bad_index_entry(index_text(version, entries, hash), hash);
  require(judged.has_value());
  if (bad) require(judged->has_value());
  if (good) require(!judged->has_value());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  const HashSize hash = (data[0] & 8) != 0 ? HashSize::kSha256 : HashSize::kSha1;
  if ((data[0] & 4) != 0) {
    check_made(2 + data[0] % 3, hash, bytes.substr(0, 4000));
    return 0;
  }
  const auto judged = bad_index_entry(bytes, hash);
  if (judged && *judged) require(!(*judged)->empty() && (*judged)->size() <= 4096);
  return 0;
}
