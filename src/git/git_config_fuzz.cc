// Whatever the text, the words stay within their bounds and can travel in an answer.
#include <cstdint>
#include <cstdlib>

#include "git/answer.h"

namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace temenos::git;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto words = config_words(text);
  for (const auto& [key, word] : words.words) {
    require(!key.empty() && key.find('\0') == key.npos);
    require(!word.empty() && word.size() <= kMaxWord && word.find('\0') == word.npos);
  }
  const auto bytes = answer(FileKind::kConfig, text);
  require(bytes.size() <= kMaxAnswer);
  const auto again = decode_answer(FileKind::kConfig, bytes);
  require(again && again->complete == words.complete &&
          again->strings.size() == 2 * words.words.size());
  for (std::size_t i = 0; i < words.words.size(); ++i) {
    require(again->strings[2 * i] == words.words[i].key);
    require(again->strings[2 * i + 1] == words.words[i].word);
  }
  return 0;
}
