// The two processes of a filtered network, as its keeper keeps them: dialer, which is in the host's
// network and has the allowlist, and front, which reads what the box sends. Keeper holds what has
// to outlive them: the listeners (and with them the router's network namespace), the table of
// names and the log. One that dies is started again with these; meanwhile the box has no network,
// since what it connects to waits in a queue that nobody empties.
//
// Thread-safety: none.
#pragma once

#include <poll.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/unique_fd.h"
#include "egress/control.h"
#include "egress/netns_answer.h"
#include "keeper/launch_spec.h"
#include "sys/process_sys.h"
#include "temenos/error.h"

namespace temenos::keeper {

class EgressWatch {
 public:
  static constexpr std::size_t kPolls = 2;

  // Starts dialer with the box's rules. Before keeper gives up its rights.
  Result<void> begin(const LaunchSpec& spec, int data_dir);
  // From helper, in the order of egress::Listener. Starts front.
  Result<void> take_listeners(netns::Listeners listeners);
  bool has_listeners() const { return has_listeners_; }

  // A refused request of the box has arrived; true for a box without a filtered network.
  bool is_proven() const { return !is_on_ || proven_; }

  std::array<pollfd, kPolls> polls() const;
  int timeout_ms() const;  // -1: nothing to wait for
  // After a poll, or when the time-out is over.
  void check(std::span<const pollfd> polls);
  // What has happened to them since, for the audit log and people; then forgotten.
  std::vector<std::string> take_news() { return std::exchange(news_, {}); }

  // The last of these, and how many there were; empty: none in this life of the box.
  const std::string& trouble() const { return trouble_; }

  // A sealed file with one rule a line. They hold when this returns; an error: the old ones do.
  // `narrowed`: some are left out. Then what is open and not allowed any more has ended, or front
  // has, with all that was open, since it did not say so.
  Result<void> replace_rules(UniqueFd rules, bool narrowed);
  // What the box has asked for by now is in the log when this returns: how many of its connections
  // and look-ups were refused so far.
  Result<std::uint32_t> flush_log();

  // Kills and reaps both.
  void end();

 private:
  using Clock = std::chrono::steady_clock;
  struct Child {
    sys::Process process;
    UniqueFd control;
    int deaths = 0;  // in a row
    Clock::time_point born;
    std::optional<Clock::time_point> again;  // when it is started again
  };
  Result<void> start(Child& child, const std::string& program, std::span<const int> more);
  Result<void> start_dialer();
  Result<void> start_front();
  Result<void> join_them();
  void note_death(Child& child, const std::string& news);
  bool hear(Child& child);
  void on_dialer(const egress::Control& message);
  Result<egress::Control> ask_dialer(egress::ControlType type, std::span<const int> fds,
                                     std::uint32_t value = 0);
  void end_refused();
  Result<void> tell_resolver();

  bool is_on_ = false;
  bool proven_ = false;
  std::string dialer_program_;
  std::string front_program_;
  Child dialer_;
  Child front_;
  netns::Listeners listeners_;  // of the router, which is there as long as one of them is open
  bool has_listeners_ = false;
  bool front_has_older_ = false;  // connections that this life of dialer knows nothing of
  std::uint32_t ends_ = 0;        // that were asked for
  std::array<UniqueFd, 2> log_;
  UniqueFd names_;
  UniqueFd rules_;
  std::optional<egress::Control> answer_;  // dialer's last one
  std::vector<std::string> news_;
  std::string trouble_;
  int deaths_ = 0;
};

}  // namespace temenos::keeper
