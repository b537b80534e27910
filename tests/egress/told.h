// A box that does what it is told, a line of shell at a time, and the processes of its network.
#pragma once

#include <gtest/gtest.h>
#include <sys/types.h>
#include <unistd.h>

#include <fstream>
#include <memory>
#include <string>
#include <utility>

#include "tests/egress/egress_test.h"

namespace temenos::testing {

class Told {
 public:
  explicit Told(std::unique_ptr<Program> program) : program_(std::move(program)) {}

  // What it printed.
  std::string ask(const std::string& line) {
    if (is_mute_) return "";
    const std::string all = line + "; echo; echo done" + std::to_string(++count_) + ".\n";
    const std::size_t from = program_->output().size();
    const std::string end = "\ndone" + std::to_string(count_) + ".\n";
    if (write(program_->in(), all.data(), all.size()) != static_cast<ssize_t>(all.size()) ||
        !program_->wait_for(end)) {
      ADD_FAILURE() << "no answer to " << line << ": " << program_->output();
      is_mute_ = true;
      return "";
    }
    return program_->output().substr(from, program_->output().size() - from - end.size());
  }
  CliResult finish() {
    program_->close_in();
    return program_->finish(patience(60));
  }
  pid_t pid() const { return program_->pid(); }
  bool is_mute() const { return is_mute_; }

 private:
  std::unique_ptr<Program> program_;
  int count_ = 0;
  bool is_mute_ = false;  // once it has not answered
};

// Of the keeper `parent`: its child of that name, 0 when there is none now.
inline pid_t child_of(pid_t parent, const std::string& name) {
  std::ifstream in("/proc/" + std::to_string(parent) + "/task/" + std::to_string(parent) +
                   "/children");
  for (pid_t pid = 0; in >> pid;) {
    std::string comm;
    std::getline(std::ifstream("/proc/" + std::to_string(pid) + "/comm"), comm);
    if (comm == name) return pid;
  }
  return 0;
}

}  // namespace temenos::testing
