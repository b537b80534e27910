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
#include <deque>
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

  // One that lives for `long_life` has not died of its start; one that owes an answer for
  // `hang_time` hangs.
  explicit EgressWatch(std::chrono::milliseconds long_life = std::chrono::seconds(10),
                       std::chrono::milliseconds hang_time = std::chrono::seconds(60))
      : long_life_(long_life), hang_time_(hang_time) {}

  // Starts dialer with the box's rules. Before keeper gives up its rights.
  Result<void> begin(const LaunchSpec& spec, int data_dir);
  // From helper, in the order of egress::Listener. Starts front.
  Result<void> take_listeners(netns::Listeners listeners);
  bool has_listeners() const { return has_listeners_; }

  // A refused request of the box has arrived, and dialer has the rules; true for a box without a
  // filtered network.
  bool is_proven() const { return !is_on_ || (proven_ && has_rules_); }

  std::array<pollfd, kPolls> polls() const;
  int timeout_ms() const;  // -1: nothing to wait for
  // After a poll, or when the time-out is over.
  void check(std::span<const pollfd> polls);
  // What has happened to them since, for the audit log and people; then forgotten.
  std::vector<std::string> take_news() { return std::exchange(news_, {}); }

  // A sealed file with one rule a line. They hold when this returns; an error: the old ones do. For
  // that a dialer that does not say which is ended, and the next one has the old ones.
  Result<void> replace_rules(UniqueFd rules);
  // What the box has asked for by now is in the log when this returns: a number that grows with the
  // connections that were refused, and with each death of dialer, who may have seen more of them.
  // Asks front for a sign of life as well, and does not wait for it: one that hangs is replaced.
  Result<std::uint32_t> flush_log();

  // Kills and reaps both.
  void end();

 private:
  using Clock = std::chrono::steady_clock;
  struct Child {
    sys::Process process;
    UniqueFd control;
    bool jailed = false;  // has said so
    int deaths = 0;       // in a row
    Clock::time_point born;
    std::optional<Clock::time_point> again;       // when it is started again
    std::optional<Clock::time_point> owes_since;  // an answer
  };
  Result<void> start(Child& child, const std::string& program, std::span<const int> more);
  Result<void> start_dialer();
  Result<void> start_front();
  Result<void> join_them();
  void note_death(Child& child, const char* name, const char* how = "has died");
  void check_hang(Child& child, const char* name);
  bool hear(Child& child);
  bool on_dialer(const egress::Control& message);
  bool on_answer(const egress::Control& message);
  Result<void> tell_dialer(egress::ControlType type, std::span<const int> fds);
  Result<egress::Control> ask_dialer(egress::ControlType type, std::span<const int> fds);
  Result<void> tell_resolver();

  std::chrono::milliseconds long_life_;
  std::chrono::milliseconds hang_time_;
  bool is_on_ = false;
  bool proven_ = false;
  bool has_rules_ = false;  // the dialer that lives
  std::string dialer_program_;
  std::string front_program_;
  Child dialer_;
  Child front_;
  netns::Listeners listeners_;  // of the router, which is there as long as one of them is open
  bool has_listeners_ = false;
  std::array<UniqueFd, 2> log_;
  UniqueFd names_;
  UniqueFd rules_;
  // What dialer was asked and has not answered yet; it answers in this order.
  std::deque<egress::ControlType> asked_;
  egress::Control answer_;            // the last one
  std::uint32_t refused_ = 0;         // as this dialer counts
  std::uint32_t refused_before_ = 0;  // by those that have died
  std::vector<std::string> news_;
};

}  // namespace temenos::keeper
