// dialer without its sockets: what front asks is judged here, the real world is behind Outside, and
// the answers come back by on_looked_up() and on_connected(). The list may change while a
// connection is being made, so each is judged again before it is handed over.
//
// Every byte of a request is hostile: front may have been taken over by the box. Whatever it sends,
// Outside::connect is called only for addresses that the allowlist opens and address_check.h lets
// through, and what is kept for a front is bounded.
//
// Thread-safety: none. `now` is a steady clock in milliseconds.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/unique_fd.h"
#include "egress/address_check.h"
#include "egress/dial_protocol.h"
#include "egress/judge.h"
#include "egress/log.h"
#include "egress/names.h"

namespace temenos::egress {

inline constexpr std::size_t kMaxOutstanding = 2048;  // requests of a front that wait
inline constexpr std::size_t kMaxTracked = 4096;      // its connections that are known by id
inline constexpr std::size_t kMaxAddresses = 16;      // of a name, that are tried

enum class LookUpStatus { kFound, kNoSuchName, kNoAnswer, kTooMany };

class Outside {
 public:
  virtual ~Outside() = default;
  // Answered later, or at once, by Engine::on_looked_up with the same ticket.
  virtual void look_up(std::uint64_t ticket, const std::string& name) = 0;
  // Answered by on_connected. `addresses` are tried in this order; `own` is true for the host's
  // loopback, which is the host's own address and meant.
  virtual void connect(std::uint64_t ticket, std::vector<AddressBlock> addresses,
                       std::uint16_t port, bool own) = 0;
  virtual void reply(const Reply& reply, UniqueFd connection) = 0;
  virtual void self_tested() = 0;
};

struct Connected {
  UniqueFd fd;  // empty: not connected, and sys_errno says why
  AddressBlock address;
  int sys_errno = 0;
  bool own = false;  // it was the host's own address after all, and is closed again
};

class Engine {
 public:
  Engine(Outside& outside, NameTable& names, Log& log, RouteProbe probe)
      : outside_(outside), names_(names), log_(log), probe_(std::move(probe)) {}

  // Replaces the list as a whole; on an error the old one holds. How many rules it has.
  Result<std::size_t> set_rules(std::string_view lines);

  // One datagram of front; false: it is no request, and front is to be dropped.
  bool on_request(std::span<const std::uint8_t> bytes, std::int64_t now);
  void on_looked_up(std::uint64_t ticket, LookUpStatus status,
                    std::span<const AddressBlock> addresses, std::int64_t now);
  void on_connected(std::uint64_t ticket, Connected connected, std::int64_t now);
  // The prefixes of the host's NAT64, from now on.
  void set_nat64(std::vector<AddressBlock> prefixes) { nat64_ = std::move(prefixes); }
  // front is told to end the connections that the list does not allow any more: to their
  // destination, to the address that it was, or without what has to be seen of them now.
  void end_refused();
  // How many of those it has not reported yet.
  std::size_t ending() const { return ending_; }
  // Every connection that front was given is known here, or was reported. A front that uses an id
  // again, or has more than it may have, makes it false.
  bool knows_all() const { return !has_forgotten_; }
  // front is gone, and all that it waited for; answers that are under way come to nothing.
  void drop_front();
  std::size_t outstanding() const { return pending_.size(); }

 private:
  struct Destination {
    std::string host;      // as it is logged and compared: a name, or an address written out
    bool is_name = false;  // `host` is a name
    AddressBlock address;  // else this
    std::uint16_t port = 0;
    Why why = Why::kNone;  // no destination at all
  };
  struct Pending {
    std::uint64_t id = 0;
    Ask ask = Ask::kDestination;
    Destination to;
    App app = App::kUnknown;
    std::string rule;
    std::int64_t began = 0;
  };
  struct Tracked {
    std::uint64_t order = 0;
    Destination to;
    std::string rule;
    bool connected = false;
    AddressBlock address;     // that it is connected to
    bool seen = false;        // front has seen of it what a rule without a port asks for
    Why ending = Why::kNone;  // why front was told to end it
  };

  Destination destination_of(const Request& request);
  Destination of_address(const AddressBlock& address, std::uint16_t port);
  Decision judge(const Destination& to) const;
  void ask_destination(const Request& request, std::int64_t now);
  void ask_resolve(const Request& request, std::int64_t now);
  void ask_reverse(const Request& request);
  void take_report(const Request& request, std::int64_t now);
  void dial(std::uint64_t ticket, const Destination& to, const Decision& decision,
            std::int64_t now);
  void finish(std::uint64_t ticket, Verdict verdict, Why why, int sys_errno, std::int64_t now);
  void answer(std::uint64_t id, Verdict verdict, Why why, const Destination& to, int sys_errno = 0,
              UniqueFd connection = UniqueFd());
  void note(const Pending& pending, std::string_view verdict, Why why, const std::string& address,
            std::int64_t now);
  void refuse(const Request& request, const Destination& to, Why why, std::int64_t now);
  Tracked& track(std::uint64_t id, const Destination& to, const std::string& rule);
  void untrack(std::uint64_t id);
  void forget(std::uint64_t id);
  Why why_not_any_more(const Tracked& tracked) const;

  Outside& outside_;
  NameTable& names_;
  Log& log_;
  RouteProbe probe_;
  std::vector<AddressBlock> nat64_;
  Judge judge_;
  std::uint64_t next_ticket_ = 1;
  std::unordered_map<std::uint64_t, Pending> pending_;  // by ticket
  std::unordered_map<std::uint64_t, Tracked> tracked_;  // by front's id
  std::map<std::uint64_t, std::uint64_t> tracked_order_;
  std::uint64_t next_order_ = 1;
  std::size_t ending_ = 0;
  bool has_forgotten_ = false;
};

}  // namespace temenos::egress
