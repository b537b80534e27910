// The host directories and files that a box is made of, as detached mounts.
//
// Each is cloned from a descriptor whose identity was checked, and gets its attributes (read-only,
// nosuid, nodev, id map) in the host kernel before anything in the box can see it. Who clones: as
// root the keeper, because only it may make idmapped mounts; as an ordinary user the helper,
// because only it has a mount namespace of its own.
#pragma once

#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "keeper/id_plan.h"
#include "keeper/launch_spec.h"
#include "temenos/error.h"

namespace temenos::keeper {

struct EtcMount {
  std::string name;  // below /etc
  UniqueFd mount;
  bool directory = false;
};
struct EtcFile {
  std::string name;     // below /etc
  std::string content;  // or the target of a symlink
  bool symlink = false;
};

struct Sources {
  UniqueFd usr;
  std::vector<std::pair<std::string, std::string>> root_links;  // "bin" → "usr/bin"
  std::vector<EtcMount> etc_mounts;  // directories of the host's /etc that programs need
  std::vector<EtcFile> etc_files;    // generated, or copied from the host
  UniqueFd data;                     // the box's own directory: base, upper, work
  UniqueFd runsc;
  UniqueFd init;
  std::vector<std::pair<std::string, UniqueFd>> devices;  // "null", ... for runsc
  std::vector<UniqueFd> binds;                            // as in the spec, in order
};

Result<Sources> clone_sources(const Launch& launch, const IdPlan& plan);

}  // namespace temenos::keeper
