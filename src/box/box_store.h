// Boxes with names: made, found, listed and removed. Each is a data dir (store/data_dir.h) with a
// record; there is no other register, so nothing can disagree with what is there.
//
// Thread-safety: none; any number of managers in any number of processes may work on the same
// boxes.
#pragma once

#include <string>
#include <vector>

#include "box/box_handle.h"
#include "box/box_record.h"
#include "box/host_dirs.h"
#include "temenos/box_manager.h"
#include "temenos/error.h"

namespace temenos::box {

class BoxStore {
 public:
  explicit BoxStore(HostDirs dirs) : dirs_(std::move(dirs)) {}

  // A new one; kAlreadyExists when there is one of this name. Nothing is started.
  Result<BoxHandle> create(const BoxName& name, const std::string& project_dir,
                           const Policy& policy);
  // kNotFound: no such box.
  Result<BoxHandle> find(const BoxName& name) const;
  // All of this user's, by scope and name.
  Result<std::vector<BoxInfo>> list() const;
  // Stops it and removes it with all its files. With `end` what BoxHandle::stop() says.
  Result<BoxEnd> remove(const BoxName& name);

 private:
  Result<store::DataDir> open_dir(const BoxName& name) const;
  HostDirs dirs_;
};

}  // namespace temenos::box
