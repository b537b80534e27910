// The boxes of the calling user: making, finding, listing and removing them. Boxes with names are
// directories below $XDG_DATA_HOME/temenos; there is no other register, so nothing can disagree
// with what is there, and no daemon is needed.
//
// Thread-safety: none; any number of managers in any number of processes may work on the same
// boxes.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "temenos/box.h"
#include "temenos/error.h"
#include "temenos/policy.h"

namespace temenos {

struct BoxInfo {
  BoxName name;
  std::string id;
  std::string project_dir;
  std::string created;  // RFC 3339, UTC
  bool alive = false;
  std::string trouble;  // not empty: its record cannot be read, and why
};

struct BoxManagerOptions {
  // Called with a line when something takes long: gVisor is tried on this host, once per boot.
  std::function<void(std::string_view)> progress;
  // Where temenos-keeper and the rest are; empty: ../libexec/temenos beside the running program.
  std::string libexec;
  int cancel_fd = -1;  // borrowed; once it is readable, starts are given up
};

class BoxManager {
 public:
  // Finds temenos' own directories and programs, and removes what killed processes left half-made.
  static Result<BoxManager> open(BoxManagerOptions options = {});
  struct Impl;  // the library's own
  explicit BoxManager(std::shared_ptr<Impl> impl);
  BoxManager(BoxManager&&) noexcept;
  ~BoxManager();

  // A box without a name, started. `project_dir`: mounted at its own path as the policy says;
  // absolute, no symlink in it; empty: none. `directory`: where its commands start; empty: the
  // project.
  Result<Box> run(const Policy& policy, const std::string& project_dir = {},
                  const std::string& directory = {});

  // A new one; kAlreadyExists when there is one of this name. Nothing is started.
  Result<Box> create(const BoxName& name, const Policy& policy,
                     const std::string& project_dir = {});
  // kNotFound: no such box.
  Result<Box> find(const BoxName& name);
  // By scope and name.
  Result<std::vector<BoxInfo>> list() const;
  // Stops it and removes it with all its files; also one whose record cannot be read.
  Result<BoxEnd> remove(const BoxName& name);

 private:
  std::shared_ptr<Impl> impl_;
};

}  // namespace temenos
