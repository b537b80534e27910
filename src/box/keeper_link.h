// The connection of one caller to the keeper of a live box: how a box is started, how another
// process comes to one that lives, how it is stopped, and why it ended.
//
// Thread-safety: none; one thread at a time.
#pragma once

#include <array>
#include <optional>
#include <string>

#include "base/unique_fd.h"
#include "keeper/end_reason.h"
#include "keeper/launch_spec.h"
#include "keeper/messages.h"
#include "store/data_dir.h"
#include "sys/process_sys.h"
#include "temenos/error.h"

namespace temenos::box {

class KeeperLink {
 public:
  // Starts a keeper (`program`: its path) and waits until the box is ready or has failed. A durable
  // one is nobody's child afterwards. `cancel_fd`: once readable, the start is given up.
  static Result<KeeperLink> launch(const std::string& program, keeper::Launch launch,
                                   int cancel_fd);
  // Starts a keeper without a box: a proxy alone (keeper/proxy_main.h).
  struct ProxyStart {
    std::string dialer;  // paths of the programs
    std::string front;
    UniqueFd rules;               // a sealed file with one a line
    std::array<UniqueFd, 2> log;  // open for appending
  };
  static Result<KeeperLink> launch_proxy(const std::string& program, const ProxyStart& start);
  // To a keeper that listens in the data dir; kNotFound when none does.
  static Result<KeeperLink> connect(const store::DataDir& dir);
  // A socket for launch.listener, bound in the data dir.
  static Result<UniqueFd> listen(const store::DataDir& dir);

  // A new connection to the session.
  Result<UniqueFd> attach();
  // A kOk with the box's numbers.
  Result<keeper::Message> stats();
  // What the keeper said when the box was ready; of launch() only.
  const keeper::Message& ready() const { return ready_; }
  // Makes a job known to the session.
  Result<void> add_job(std::uint32_t number, std::uint32_t segment_limit,
                       const std::array<UniqueFd, 2>& segments);
  // The rules of a filtered network, one a line; they hold when this returns, or the old ones do.
  // `narrowed`: some are left out; what is open and not allowed any more is over when this returns.
  Result<void> set_rules(int sealed_file, bool narrowed);
  struct NetworkNews {
    std::uint32_t refused = 0;  // grows with each connection and look-up that is refused
    std::string trouble;        // what has died of it, in this life of the box; or empty
  };
  // What the box has asked its network for by now is in the log.
  Result<NetworkNews> flush_network_log();
  // Where its proxy is; port 0 when it is none.
  Result<keeper::ProxyAddress> proxy();
  // The keeper answers, so the box lives. While it ends the box, this waits for its last word.
  bool alive();
  // Ends the box and waits until nothing of it runs any more.
  Result<void> stop();
  // Waits until the box has ended and says why; nothing when it still lives after `wait_ms`.
  std::optional<Error> why_ended(int wait_ms);
  // That reason as a value; empty where there is none (a start that failed, say).
  std::optional<keeper::EndReason> end_reason() const { return reason_; }
  // Of an end for want of memory: which of the kernel's counters says so.
  const std::string& evidence() const { return evidence_; }

 private:
  Result<keeper::Message> request(const keeper::Message& message, std::span<const int> fds);
  Result<void> wait_until_ready(int cancel_fd);

  UniqueFd socket_;
  sys::Process keeper_;  // of a box that ends with us
  void heard(const Result<keeper::Message>& last);

  keeper::Message ready_;
  std::optional<Error> ended_;  // the last word
  std::optional<keeper::EndReason> reason_;
  std::string evidence_;
};

}  // namespace temenos::box
