// Where temenos keeps what is its own on the host (XDG Base Directory Specification), and where its
// programs lie. All of it is hidden from every box, whatever is mounted.
#pragma once

#include <string>
#include <vector>

#include "temenos/error.h"

namespace temenos::box {

struct HostDirs {
  std::string data;     // boxes: $XDG_DATA_HOME/temenos
  std::string config;   // $XDG_CONFIG_HOME/temenos
  std::string cache;    // what can be found out again: $XDG_CACHE_HOME/temenos
  std::string runtime;  // sockets: $XDG_RUNTIME_DIR/temenos; empty when that cannot be had
  std::vector<std::string>
      usual;            // where data, config and cache are when no variable says otherwise
  std::string libexec;  // temenos-keeper and the rest, beside the running program
  std::string program;  // the running program itself

  std::vector<std::string> own() const;  // those directories that a box must never see
};

// For the calling user; makes data, config and cache (0700) where missing. Paths have no symlink in
// them.
Result<HostDirs> host_dirs();

// Where temenos' own programs are: ../libexec/temenos beside the running one.
Result<std::string> libexec_beside_program();

// The path of one of temenos' own programs in libexec; an error when it is not there or cannot be
// run.
Result<std::string> program(const HostDirs& dirs, const char* name);

// The user's home: $HOME, else the one in passwd. Empty when there is none.
std::string home_directory();

}  // namespace temenos::box
