// Asks temenos-reader, a process in the session's jail, what a file that a box may have written
// says. The program is started by the first question and answers all that follow.
//
// No byte of such a file is looked at in this process. A reader that dies, or takes longer than all
// questions together may, answers nothing more: each question is an Error then. Not thread-safe.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "base/unique_fd.h"
#include "git/answer.h"
#include "sys/process_sys.h"

namespace temenos::box {

class FileReader {
 public:
  // `libexec`: where temenos-reader lies.
  explicit FileReader(std::string libexec) : libexec_(std::move(libexec)) {}
  ~FileReader();
  FileReader(const FileReader&) = delete;
  FileReader& operator=(const FileReader&) = delete;

  // `file`: open for reading, at its start. What is no regular file is refused. Code::kNotFound
  // never comes from here.
  Result<git::Answer> read(git::FileKind kind, int file);

 private:
  Result<void> start();
  Result<std::string> ask(const git::Question& question, int file);

  std::string libexec_;
  UniqueFd socket_;
  sys::Process process_;
  std::optional<Error> failed_;
  std::chrono::steady_clock::time_point deadline_;
};

}  // namespace temenos::box
