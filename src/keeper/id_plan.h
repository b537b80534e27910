// Which host ids a box's ids are (DESIGN: box root is never host root).
//   root:            0 → kBoxIdBase, 65,536 ids; host directories are bound with idmapped
//   mounts ordinary user:   0 → that user; with newuidmap and a range in /etc/subuid the other ids
//   map there,
//                    without it there are no others
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "sys/process_sys.h"
#include "temenos/error.h"

namespace temenos::keeper {

struct IdPlan {
  bool as_root = false;
  bool range = false;  // more than one id
  std::string why;     // when there is no range: why not
  std::vector<sys::IdMapLine> uids;
  std::vector<sys::IdMapLine> gids;
};

// For the calling user; reads /etc/subuid and /etc/subgid (subuid(5)).
IdPlan plan_ids();

// The first range of `name` or `uid` in a subuid(5) text, count 0 when there is none. For tests
// too.
sys::IdMapLine subordinate_range(std::string_view text, std::string_view name, unsigned uid);

// Gives the namespace of `pid` its maps: by /proc, or by newuidmap and newgidmap.
Result<void> apply_ids(const IdPlan& plan, pid_t pid);

}  // namespace temenos::keeper
