// What the program temenos-reader is asked and answers. It alone parses these files, in the jail of
// the session process; who asks sees only an answer: bounded, and still hostile, because an exploit
// in a parser speaks in its place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "git/config_words.h"
#include "temenos/error.h"

namespace temenos::git {

enum class FileKind : std::uint8_t { kConfig, kIndexSha1, kIndexSha256 };

// One datagram with one descriptor, open for reading at its start.
struct Question {
  FileKind kind = FileKind::kConfig;
  std::uint64_t size = 0;  // of the file, as it was when it was opened
};
std::string encode(const Question& question);
Result<Question> decode_question(std::string_view bytes);
std::size_t max_file_bytes(FileKind kind);

// In the reader: the datagram that answers for a file's bytes. Never longer than kMaxAnswer.
inline constexpr std::size_t kMaxAnswer = kMaxWordBytes + 1;
std::string answer(FileKind kind, std::string_view bytes);
std::string answer_error(const Error& error);

// Of a configuration, pairs of key and word; of an index, nothing or the one bad name.
struct Answer {
  bool complete = true;
  std::vector<std::string> strings;
};
// An Error is the reader's, or says that this is no answer.
Result<Answer> decode_answer(FileKind kind, std::string_view bytes);

}  // namespace temenos::git
