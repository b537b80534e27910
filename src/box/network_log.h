// What the network of a box has refused, from its log, for who waits for a command.
//
// Thread-safety: as the system calls.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "box/keeper_link.h"
#include "egress/log.h"
#include "temenos/exec_result.h"

namespace temenos::box {

// What is refused in `records`, after the time `from` (RFC 3339): each destination once, and
// names that were only looked up.
std::vector<Denial> denials_of(const std::vector<egress::LogRecord>& records,
                               std::string_view from);

class RefusalWatch {
 public:
  // Notes how far it is. `data_dir`: of the box; borrowed, both.
  static RefusalWatch begin(KeeperLink& keeper, int data_dir);
  // What was refused since, whoever asked for it: at most kMax, the first ones.
  std::vector<Denial> end();
  // What has died of the network, as keeper said last.
  std::string trouble() const { return last_ ? last_->trouble : ""; }

  static constexpr std::size_t kMax = 100;

 private:
  RefusalWatch(KeeperLink& keeper, int data_dir) : keeper_(&keeper), data_dir_(data_dir) {}
  KeeperLink* keeper_;
  int data_dir_;
  std::optional<KeeperLink::NetworkNews> last_;
  std::string from_;  // RFC 3339, as the log has it
};

}  // namespace temenos::box
