#include "git/answer.h"

#include <cstring>

#include "base/text.h"
#include "base/try.h"
#include "git/index_entries.h"

namespace temenos::git {
namespace {

enum Status : char { kWhole = 'w', kPart = 'p', kFailed = 'f' };
constexpr std::size_t kMaxErrorText = 1000;

Result<std::string> read(FileKind kind, std::string_view bytes) {
  std::string out(1, kWhole);
  if (kind == FileKind::kConfig) {
    const auto words = config_words(bytes);
    if (!words.complete) out[0] = kPart;
    for (const auto& word : words.words) {
      out.append(word.key).push_back('\0');
      out.append(word.word).push_back('\0');
    }
    return out;
  }
  const auto bad = TRY(
      bad_index_entry(bytes, kind == FileKind::kIndexSha256 ? HashSize::kSha256 : HashSize::kSha1));
  if (bad) out.append(*bad).push_back('\0');
  return out;
}

}  // namespace

std::string encode(const Question& question) {
  std::string out(1, static_cast<char>(question.kind));
  char size[sizeof question.size];
  std::memcpy(size, &question.size, sizeof size);
  return out.append(size, sizeof size);
}

Result<Question> decode_question(std::string_view bytes) {
  Question question;
  if (bytes.size() != 1 + sizeof question.size || bytes[0] < 0 ||
      bytes[0] > static_cast<char>(FileKind::kIndexSha256)) {
    return fail(Code::kProtocol, "no question");
  }
  question.kind = static_cast<FileKind>(bytes[0]);
  std::memcpy(&question.size, bytes.data() + 1, sizeof question.size);
  return question;
}

std::size_t max_file_bytes(FileKind kind) {
  return kind == FileKind::kConfig ? kMaxConfigBytes : kMaxIndexBytes;
}

std::string answer(FileKind kind, std::string_view bytes) {
  const auto out = read(kind, bytes);
  return out ? *out : answer_error(out.error());
}

std::string answer_error(const Error& error) {
  return std::string(1, kFailed) + error.to_string().substr(0, kMaxErrorText);
}

Result<Answer> decode_answer(FileKind kind, std::string_view bytes) {
  const auto no_answer = [] { return fail(Code::kProtocol, "its reader gave no answer"); };
  if (bytes.empty() || bytes.size() > kMaxAnswer) return no_answer();
  const char status = bytes[0];
  bytes.remove_prefix(1);
  if (status == kFailed) {
    return fail(Code::kProtocol, escape(bytes.substr(0, kMaxErrorText)));
  }
  if (status != kWhole && status != kPart) return no_answer();
  Answer out;
  out.complete = status == kWhole;
  while (!bytes.empty()) {
    const auto end = bytes.find('\0');
    if (end == bytes.npos || end == 0) return no_answer();
    out.strings.emplace_back(bytes.substr(0, end));
    bytes.remove_prefix(end + 1);
  }
  const bool fits =
      kind == FileKind::kConfig ? out.strings.size() % 2 == 0 : out.strings.size() <= 1;
  if (!fits) return no_answer();
  return out;
}

}  // namespace temenos::git
