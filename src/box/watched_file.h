// What host programs obey in the directories that a box may write, as it was before the box
// started: kept in the data dir (file "watched") while the box may run, so that whoever finds the
// box ended, also after a crash, can say what the box has made. Otherwise a box that ends itself
// would get its files taken for the user's own at the next start.
//
// Thread-safety: plain functions.
#pragma once

#include <string>
#include <vector>

#include "box/autoexec.h"
#include "box/autoexec_report.h"
#include "box/host_dirs.h"
#include "box/mounts.h"
#include "store/data_dir.h"

namespace temenos::box {

struct Watched {
  std::string source;
  AutoexecScan before;
};

std::string watched_to_json(const std::vector<WatchedBind>& binds);
Result<std::vector<Watched>> watched_from_json(std::string_view text);

// Before the box starts.
Result<void> keep_watched(const store::DataDir& dir, const std::vector<WatchedBind>& binds);

// What the box made since then. The box has ended (or lives: what it makes later is not in it).
// Nothing when nothing was kept. What cannot be looked at is said in `unseen`.
BoxEnd look_at_watched(const store::DataDir& dir, const HostDirs& dirs);

// It was said.
void forget_watched(const store::DataDir& dir);

}  // namespace temenos::box
