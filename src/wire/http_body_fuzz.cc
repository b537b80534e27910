// A body ends at the same byte however it arrives, and skipping what is opaque changes nothing.
// What is taken as chunks is what a decoder that sees all of it at once takes.
#include <algorithm>
#include <charconv>
#include <cstdlib>

#include "wire/http_body.h"

namespace {

using namespace temenos::wire;

void require(bool holds) {
  if (!holds) std::abort();
}

// The end of the chunks at the front of `text`; npos for none.
std::size_t end_of_chunks(std::string_view text) {
  for (std::size_t at = 0;;) {
    const std::size_t line = text.find("\r\n", at);
    if (line == text.npos || line == at || line - at > 8) return text.npos;
    std::uint64_t size = 0;
    const auto [stop, ec] = std::from_chars(text.data() + at, text.data() + line, size, 16);
    if (ec != std::errc() || stop != text.data() + line || text[at] == '-') return text.npos;
    at = line + 2 + size;
    if (size > 0x7fffffff || at + 2 > text.size() || text.substr(at, 2) != "\r\n") return text.npos;
    at += 2;
    if (size == 0) return at;
  }
}

struct Outcome {
  Progress progress = Progress::kNeedMore;
  std::size_t taken = 0;
  bool operator==(const Outcome&) const = default;
};

Outcome follow(const HttpHead& head, Bytes all, std::size_t piece, bool skips) {
  HttpBodyReader reader(head);
  Outcome out;
  while (true) {
    if (skips) {
      const auto data = std::min<std::uint64_t>(reader.opaque(), all.size() - out.taken);
      reader.skip(data);
      out.taken += static_cast<std::size_t>(data);
    }
    const Bytes rest = all.subspan(out.taken);
    const auto step = reader.feed(rest.first(std::min(piece, rest.size())));
    out.progress = step.progress;
    out.taken += step.taken;
    require((step.progress == Progress::kGood) == reader.is_done());
    if (step.progress == Progress::kMalformed) require(!reader.reason().empty());
    if (step.progress != Progress::kNeedMore || out.taken == all.size()) return out;
  }
}

}  // namespace

// Chunks; and the same bytes as a body of a length that their size gives.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const Bytes all(data, size);
  for (const HttpHead& head :
       {HttpHead{.body = HttpBody::kChunked},
        HttpHead{.body = HttpBody::kLength, .content_length = size / 2 + size % 7}}) {
    const Outcome whole = follow(head, all, size + 1, false);
    require(whole.taken <= size);
    require(follow(head, all, 1 + size % 13, false) == whole);
    require(follow(head, all, 1 + size % 5, true) == whole);
    if (head.body == HttpBody::kLength) {
      const bool is_whole = head.content_length <= size;
      require(whole.taken == std::min<std::uint64_t>(head.content_length, size));
      require((whole.progress == Progress::kGood) == is_whole);
      continue;
    }
    const std::size_t end = end_of_chunks({reinterpret_cast<const char*>(data), size});
    require((whole.progress == Progress::kGood) == (end != std::string_view::npos));
    if (whole.progress == Progress::kGood) require(whole.taken == end);
  }
  return 0;
}
