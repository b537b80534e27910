// The two processes of a filtered network, as its keeper keeps them: dialer, which is in the host's
// network and has the allowlist, and front, which reads what the box sends. Keeper holds what has
// to outlive them: the listeners (and with them the router's network namespace), the table of
// names and the log. One that dies is started again with these; meanwhile the box has no network,
// since what it connects to waits in a queue that nobody empties.
//
// Or the same two as an explicit proxy on the host's loopback, which holds nobody who goes past it:
// of a box with cooperative enforcement, or alone (proxy_main.h).
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
#include "keeper/messages.h"
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

  struct Parts {
    std::string dialer;  // paths of the programs
    std::string front;
    UniqueFd rules;               // a sealed file with one a line
    std::array<UniqueFd, 2> log;  // open for appending
  };
  // Starts dialer. Before keeper gives up its rights.
  Result<void> begin(Parts parts);
  // The same for a box, whose log is in its data dir; nothing for one without such a network.
  Result<void> begin(const LaunchSpec& spec, int data_dir);
  // From helper, in the order of egress::Listener. Starts front.
  Result<void> take_listeners(netns::Listeners listeners);
  bool has_listeners() const { return has_listeners_; }
  // In place of listeners of a router. Starts front.
  Result<void> be_proxy(bool of_box);
  // Port 0 where it is none.
  ProxyAddress proxy() const { return proxy_; }

  // A refused request of the box has arrived, or a proxy's two are locked down, and dialer has the
  // rules; true for a box without either.
  bool is_proven() const;

  std::array<pollfd, kPolls> polls() const;
  int timeout_ms() const;  // -1: nothing to wait for
  // After a poll, or when the time-out is over.
  void check(std::span<const pollfd> polls);
  // What has happened to them since, for the audit log and people; then forgotten.
  std::vector<std::string> take_news() { return std::exchange(news_, {}); }

  // Set when a part has ended while the network was not proven. During a start that is its end:
  // most often the part cannot run at all, and whoever waits need not wait for more of the same.
  const std::optional<Error>& start_failure() const { return start_failure_; }
  // The last of these, and how many there were; empty: none in this life of the box.
  const std::string& trouble() const { return trouble_; }

  // A sealed file with one rule a line. They hold when this returns; an error: the old ones do. For
  // that a dialer that does not say which is ended, and the next one has the old ones.
  // `narrowed`: some are left out. Then what is open and not allowed any more has ended, or front
  // has, with all that was open, since it did not say so; and the next dialer has the new ones.
  Result<void> replace_rules(UniqueFd rules, bool narrowed);
  // What the box has asked for by now is in the log when this returns: a number that grows with the
  // connections and look-ups that were refused, and with each death of dialer, who may have seen
  // more of them. Asks front for a sign of life as well, and does not wait for it: one that hangs
  // is replaced.
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
  Result<void> start(Child& child, const std::string& program, std::span<const int> more,
                     const char* word = "");
  Result<void> start_dialer();
  Result<void> start_front();
  Result<void> join_them();
  void note_death(Child& child, const std::string& news);
  void note_start_failure(const Child& child, std::optional<sys::ExitStatus> status);
  void check_hang(Child& child, const char* news);
  bool hear(Child& child);
  bool on_dialer(const egress::Control& message);
  bool on_answer(const egress::Control& message);
  Result<void> tell_dialer(egress::ControlType type, std::span<const int> fds);
  template <typename Done>
  Result<void> hear_dialer(Done done, bool must_answer);
  Result<egress::Control> ask_dialer(egress::ControlType type, std::span<const int> fds);
  void end_refused();
  Result<void> tell_resolver();

  std::chrono::milliseconds long_life_;
  std::chrono::milliseconds hang_time_;
  bool is_on_ = false;
  bool proven_ = false;
  bool has_rules_ = false;  // the dialer that lives
  Parts parts_;
  Child dialer_;
  Child front_;
  netns::Listeners listeners_;  // of the router, which is there as long as one of them is open
  bool has_listeners_ = false;
  UniqueFd proxy_listener_;
  ProxyAddress proxy_;
  bool of_box_ = true;
  bool front_has_older_ = false;        // connections that this life of dialer knows nothing of
  std::uint32_t ends_ = 0;              // how often front was to end what is refused
  std::optional<std::uint32_t> ended_;  // what dialer has said of that
  UniqueFd names_;
  // What dialer was asked and has not answered yet; it answers in this order.
  std::deque<egress::ControlType> asked_;
  egress::Control answer_;            // the last one
  std::uint32_t refused_ = 0;         // as this dialer counts
  std::uint32_t refused_before_ = 0;  // by those that have died
  std::vector<std::string> news_;
  std::string trouble_;
  std::optional<Error> start_failure_;
  int deaths_ = 0;
};

}  // namespace temenos::keeper
