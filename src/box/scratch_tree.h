// For tests: a directory as a project would be, with one above it that is no box's, and a real git.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "base/unique_fd.h"
#include "sys/file_sys.h"

namespace temenos::box {

class ScratchTree {
 public:
  ScratchTree() {
    above_ = sys::resolve(std::filesystem::temp_directory_path()).value_or("/tmp") +
             "/temenos-tree-XXXXXX";
    require(mkdtemp(above_.data()) != nullptr, above_);
    std::filesystem::create_directories(path());
    std::filesystem::create_directories(home());
    // The configuration of whoever runs the test must not matter.
    setenv("HOME", home().c_str(), 1);
    unsetenv("XDG_CONFIG_HOME");
    fd_ = UniqueFd(open(path().c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  }
  ~ScratchTree() {
    std::error_code error;
    std::filesystem::remove_all(above_, error);
  }
  ScratchTree(const ScratchTree&) = delete;
  ScratchTree& operator=(const ScratchTree&) = delete;

  int fd() const { return fd_.get(); }
  std::string path() const { return above_ + "/bind"; }
  const std::string& above() const { return above_; }
  std::string home() const { return above_ + "/home"; }

  // Below path(), with what is above them made.
  void file(const std::string& name, const std::string& text = "") const {
    make_above(path() + "/" + name);
    std::filesystem::remove(path() + "/" + name);
    require(sys::write_new_file(fd(), name, text, 0644).has_value(), name);
  }
  void link(const std::string& name, const std::string& text) const {
    make_above(path() + "/" + name);
    require(symlink(text.c_str(), (path() + "/" + name).c_str()) == 0, name);
  }
  void outside_link(const std::string& name, const std::string& text) const {
    require(symlink(text.c_str(), (above_ + "/" + name).c_str()) == 0, name);
  }
  // In path(), in a shell.
  void shell(const std::string& script) const {
    const std::string command = "cd '" + path() + "' && { " + script + "; } >/dev/null 2>&1";
    require(std::system(command.c_str()) == 0, script);
  }

 private:
  static void require(bool done, const std::string& what) {
    if (done) return;
    std::fprintf(stderr, "cannot prepare the test: %s\n", what.c_str());
    abort();
  }
  static void make_above(const std::string& path) {
    std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  }
  std::string above_;
  UniqueFd fd_;
};

}  // namespace temenos::box
