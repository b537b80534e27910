// Whether this host lets boxes of the calling user have a filtered network that is enforced: found
// out by making one, in namespaces that are thrown away. Boxes do not ask for it, since each makes
// its own or does not start; doctor does.
#pragma once

#include <string>

#include "box/host_dirs.h"

namespace temenos::box {

struct NetworkTrial {
  bool enforced = false;
  // As far as it came: the two namespaces, the rules, the way to the proxy.
  bool netns = false;
  bool nft = false;
  bool tproxy = false;
  // Where it is not: the proxy of cooperative enforcement starts. It is not a boundary.
  bool cooperative = false;
  std::string why;  // not enforced, and what would help
  std::string fix;
};

NetworkTrial try_network(const HostDirs& dirs);

}  // namespace temenos::box
