#include "egress/engine.h"

#include <cerrno>
#include <cstring>

#include "base/text.h"
#include "base/try.h"
#include "codec/address.h"
#include "egress/plan.h"
#include "egress/socket_address.h"
#include "egress/synthetic.h"
#include "egress/why_names.h"
#include "wire/host_name.h"

namespace temenos::egress {
namespace {

constexpr std::size_t kMaxSeen = 96;  // bytes of what front has seen, in the log
constexpr std::uint64_t kMaxReported = std::uint64_t{1} << 40;

std::string_view name_of(const Request& request) {
  return {request.name, std::min<std::size_t>(request.name_size, sizeof request.name)};
}

std::string_view protocol_of(App app) {
  switch (app) {
    case App::kTls:
      return "tls";
    case App::kHttp:
      return "http";
    case App::kOther:
      return "other";
    case App::kUnknown:
      break;
  }
  return "";
}

bool is_self_test(const AddressBlock& address, std::uint16_t port) {
  static const AddressBlock target = *parse_address(kSelfTest4);
  return port == kSelfTestPort && address == target;
}

// Only what front may have a reason for: the verdicts of look-ups are dialer's own.
Why front_why(Why why) {
  switch (why) {
    case Why::kForeignName:
    case Why::kNotTls:
    case Why::kNotHttp:
    case Why::kSilent:
    case Why::kMalformed:
    case Why::kNested:
    case Why::kBadName:
    case Why::kTooMany:
      return why;
    default:
      return Why::kMalformed;
  }
}

}  // namespace

Result<std::size_t> Engine::set_rules(std::string_view lines) {
  Judge judge = TRY(Judge::parse(lines));
  const auto names = judge.exact_names();
  if (!names_.has_room_for(names)) {
    return fail(Code::kExhausted, "this box has had too many names",
                "end the box and start it again");
  }
  for (const auto& name : names) (void)names_.add(name, true);
  judge_ = std::move(judge);
  return judge_.rules();
}

bool Engine::on_request(std::span<const std::uint8_t> bytes, std::int64_t now) {
  if (bytes.size() != sizeof(Request)) return false;
  Request request;
  std::memcpy(&request, bytes.data(), sizeof request);
  switch (request.ask) {
    case Ask::kDestination:
    case Ask::kConnect:
      ask_destination(request, now);
      return true;
    case Ask::kResolve:
      ask_resolve(request, now);
      return true;
    case Ask::kReverse:
      ask_reverse(request);
      return true;
    case Ask::kReport:
      take_report(request, now);
      return true;
  }
  return false;
}

Engine::Destination Engine::of_address(const AddressBlock& address, std::uint16_t port) {
  Destination to{.host = format_block(address), .address = address, .port = port};
  if (is_self_test(address, port)) {
    to.why = Why::kSelfTest;
    return to;
  }
  if (!is_boxes_own(address)) return to;
  const auto number = number_of(address);
  const std::string_view name = number ? names_.name(*number) : std::string_view();
  if (name.empty()) {
    to.why = Why::kUnknownAddress;
    return to;
  }
  to.host = name;
  to.is_name = true;
  // The pool's addresses go from name to name, so none of them ever leads anywhere.
  if (*number >= kFirstRefused) {
    const Decision decision = judge_.judge_name(name, port);
    to.why = decision.allowed ? Why::kUnknownAddress : decision.why;
  }
  return to;
}

Engine::Destination Engine::destination_of(const Request& request) {
  switch (request.family) {
    case Family::kV4:
      return of_address(address_of_bytes(true, request.address), request.port);
    case Family::kV6:
      return of_address(address_of_bytes(false, request.address), request.port);
    case Family::kName:
      break;
  }
  Destination to{.port = request.port};
  const std::string_view text = name_of(request);
  // Whoever writes an address where a name could stand means the address.
  if (const auto address = parse_address(text)) return of_address(*address, request.port);
  auto name = wire::canonical_name(text);
  if (request.family != Family::kName || !name) {
    to.why = Why::kBadName;
    to.host = escape(text.substr(0, kMaxSeen));
    return to;
  }
  to.host = std::move(*name);
  to.is_name = true;
  return to;
}

Decision Engine::judge(const Destination& to) const {
#ifdef TEMENOS_PLANT_ENGINE
  // The defect: an address is believed to be what some rule names, whatever it is.
  if (!to.is_name && to.port == 8443) return {.allowed = true, .why = Why::kNone};
#endif
  return to.is_name ? judge_.judge_name(to.host, to.port)
                    : judge_.judge_address(to.address, to.port);
}

void Engine::refuse(const Request& request, const Destination& to, Why why, std::int64_t now) {
  Pending pending{.id = request.id, .to = to, .app = request.app};
  if (why == Why::kSelfTest) {
    log_.add({.event = "self_test", .host = to.host, .port = to.port, .verdict = "refused"}, now);
    outside_.self_tested();
  } else {
    note(pending, "refused", why, "", now);
  }
  forget(request.id);
  answer(request.id, Verdict::kRefused, why, to);
}

void Engine::ask_destination(const Request& request, std::int64_t now) {
  const Destination to = destination_of(request);
  if (to.why != Why::kNone) return refuse(request, to, to.why, now);
  if (to.port == 0) return refuse(request, to, Why::kPort, now);
  const Decision decision = judge(to);
  if (!decision.allowed) return refuse(request, to, decision.why, now);
  if (request.ask == Ask::kDestination && decision.need != Need::kAny) {
    (void)track(request.id, to, decision.rule);
    answer(request.id, decision.need == Need::kTls ? Verdict::kNeedsTls : Verdict::kNeedsHttp,
           Why::kNone, to);
    return;
  }
  if (pending_.size() >= kMaxOutstanding) return refuse(request, to, Why::kTooMany, now);
  const std::uint64_t ticket = next_ticket_++;
  pending_.emplace(ticket, Pending{.id = request.id,
                                   .ask = request.ask,
                                   .to = to,
                                   .app = request.app,
                                   .rule = decision.rule,
                                   .began = now});
  dial(ticket, to, decision, now);
}

void Engine::dial(std::uint64_t ticket, const Destination& to, const Decision& decision,
                  std::int64_t now) {
  if (decision.host_loopback) {
    outside_.connect(ticket, {*parse_address("127.0.0.1")}, to.port, true);
  } else if (to.is_name) {
    outside_.look_up(ticket, to.host);
  } else {
    on_looked_up(ticket, LookUpStatus::kFound, {&to.address, 1}, now);
  }
}

void Engine::on_looked_up(std::uint64_t ticket, LookUpStatus status,
                          std::span<const AddressBlock> addresses, std::int64_t now) {
  const auto found = pending_.find(ticket);
  if (found == pending_.end()) return;
  const Destination& to = found->second.to;
  if (status == LookUpStatus::kTooMany) {
    return finish(ticket, Verdict::kRefused, Why::kTooMany, 0, now);
  }
  if (status == LookUpStatus::kNoAnswer) {
    return finish(ticket, Verdict::kFailed, Why::kResolver, 0, now);
  }
  if (status == LookUpStatus::kNoSuchName || addresses.empty()) {
    return finish(ticket, Verdict::kFailed, Why::kNoSuchName, 0, now);
  }
  const Decision decision = judge(to);
  if (!decision.allowed) return finish(ticket, Verdict::kRefused, decision.why, 0, now);
  std::vector<AddressBlock> good;
  AddressVerdict worst;
  for (const AddressBlock& address : addresses.first(std::min(addresses.size(), kMaxAddresses))) {
    const AddressVerdict verdict = check_address(address, decision.allows_private, probe_, nat64_);
    if (verdict.why == Why::kNone) {
      good.push_back(address);
    } else if (worst.why == Why::kNone || worst.why == Why::kUnreachable) {
      worst = verdict;
    }
  }
  if (good.empty()) {
    const bool failed = worst.why == Why::kUnreachable;
    return finish(ticket, failed ? Verdict::kFailed : Verdict::kRefused, worst.why, worst.sys_errno,
                  now);
  }
  outside_.connect(ticket, std::move(good), to.port, false);
}

void Engine::on_connected(std::uint64_t ticket, Connected connected, std::int64_t now) {
  const auto found = pending_.find(ticket);
  if (found == pending_.end()) return;
  if (connected.own) return finish(ticket, Verdict::kRefused, Why::kHostAddress, 0, now);
  if (!connected.fd) {
    const bool too_many = connected.sys_errno == EMFILE || connected.sys_errno == ENFILE;
    return finish(ticket, too_many ? Verdict::kRefused : Verdict::kFailed,
                  too_many ? Why::kTooMany : Why::kUnreachable, connected.sys_errno, now);
  }
  const Decision decision = judge(found->second.to);
  if (!decision.allowed) return finish(ticket, Verdict::kRefused, decision.why, 0, now);
  if (found->second.ask == Ask::kDestination && decision.need != Need::kAny) {
    // The rule that opened it to any protocol has gone in the meantime.
    return finish(ticket, Verdict::kRefused,
                  decision.need == Need::kTls ? Why::kNotTls : Why::kNotHttp, 0, now);
  }
  if (!decision.host_loopback) {
    // The host may have got the address meanwhile, and the rule have lost its `private:`.
    const AddressVerdict verdict =
        check_address(connected.address, decision.allows_private, probe_);
    if (verdict.why != Why::kNone) {
      return finish(ticket, verdict.why == Why::kUnreachable ? Verdict::kFailed : Verdict::kRefused,
                    verdict.why, verdict.sys_errno, now);
    }
  }
  const Pending pending = std::move(found->second);
  pending_.erase(found);
  note(pending, "allowed", Why::kNone, format_block(connected.address), now);
  Tracked& tracked = track(pending.id, pending.to, decision.rule);
  tracked.address = connected.address;
  tracked.seen = pending.ask == Ask::kConnect;
  tracked.connected = true;
  answer(pending.id, pending.ask == Ask::kDestination ? Verdict::kAny : Verdict::kConnected,
         Why::kNone, pending.to, 0, std::move(connected.fd));
}

void Engine::finish(std::uint64_t ticket, Verdict verdict, Why why, int sys_errno,
                    std::int64_t now) {
  const auto found = pending_.find(ticket);
  const Pending pending = std::move(found->second);
  pending_.erase(found);
  note(pending, verdict == Verdict::kFailed ? "failed" : "refused", why, "", now);
  forget(pending.id);
  answer(pending.id, verdict, why, pending.to, sys_errno);
}

void Engine::answer(std::uint64_t id, Verdict verdict, Why why, const Destination& to,
                    int sys_errno, UniqueFd connection) {
  Reply reply{.id = id, .verdict = verdict, .why = why, .sys_errno = sys_errno, .port = to.port};
  const std::size_t size = std::min(to.host.size(), kMaxNameBytes);
  std::memcpy(reply.name, to.host.data(), size);
  reply.name_size = static_cast<std::uint8_t>(size);
  reply.is_address = to.is_name || to.why == Why::kBadName ? 0 : 1;
  outside_.reply(reply, std::move(connection));
}

void Engine::note(const Pending& pending, std::string_view verdict, Why why,
                  const std::string& address, std::int64_t now) {
  log_.add({.event = "connect",
            .host = pending.to.host,
            .address = address,
            .port = pending.to.port,
            .protocol = std::string(protocol_of(pending.app)),
            .verdict = std::string(verdict),
            .rule = pending.rule,
            .why = why == Why::kNone ? "" : std::string(enum_name(why)),
            .ms = pending.began == 0 ? 0 : static_cast<std::uint64_t>(now - pending.began)},
           now);
}

void Engine::ask_resolve(const Request& request, std::int64_t now) {
  const auto name = wire::canonical_name(name_of(request));
  Destination to{.is_name = true};
  if (!name) {
    to.host = escape(name_of(request).substr(0, kMaxSeen));
    log_.add({.event = "resolve", .host = to.host, .verdict = "refused", .why = "bad_name"}, now);
    return answer(request.id, Verdict::kRefused, Why::kBadName, to);
  }
  to.host = *name;
  Reply reply{.id = request.id, .verdict = Verdict::kResolved};
  const bool allowed = judge_.names(*name);
  if (allowed) {
    const auto number = names_.add(*name, false);
    if (!number) {
      log_.add({.event = "resolve", .host = *name, .verdict = "refused", .why = "too_many"}, now);
      return answer(request.id, Verdict::kRefused, Why::kTooMany, to);
    }
    reply.number = *number;
  } else {
    reply.number = names_.add_refused(*name);
    reply.why = Why::kNotAllowed;
  }
  log_.add({.event = "resolve",
            .host = *name,
            .verdict = allowed ? "allowed" : "refused",
            .why = allowed ? "" : "not_allowed"},
           now);
  reply.allowed = allowed ? 1 : 0;
  reply.name_size = static_cast<std::uint8_t>(name->size());
  std::memcpy(reply.name, name->data(), name->size());
  outside_.reply(reply, UniqueFd());
}

void Engine::ask_reverse(const Request& request) {
  Destination to;
  if (request.family != Family::kV4 && request.family != Family::kV6) {
    return answer(request.id, Verdict::kRefused, Why::kBadName, to);
  }
  to = of_address(address_of_bytes(request.family == Family::kV4, request.address), 0);
  const bool has_name = to.is_name && to.why == Why::kNone;
  answer(request.id, has_name ? Verdict::kNamed : Verdict::kRefused,
         has_name ? Why::kNone : Why::kUnknownAddress, to);
}

void Engine::take_report(const Request& request, std::int64_t now) {
  LogRecord record{
      .event = "connect", .protocol = std::string(protocol_of(request.app)), .verdict = "refused"};
  // Others' reasons have hints that name the host.
  bool is_host = true;
  const auto found = tracked_.find(request.id);
  if (found != tracked_.end()) {
    record.host = found->second.to.host;
    record.port = found->second.to.port;
    record.rule = found->second.rule;
    if (found->second.connected) {
      record.event = "end";
      record.address = format_block(found->second.address);
      // Sums of front's numbers stay numbers.
      record.up = std::min(request.up, kMaxReported);
      record.down = std::min(request.down, kMaxReported);
      record.ms = std::min(request.duration_ms, kMaxReported);
      if (found->second.ending != Why::kNone) {
        record.why = enum_name(found->second.ending);
      } else if (request.why == Why::kNone) {
        record.verdict = "allowed";
      }
    } else if (request.why == Why::kNone) {
      return untrack(request.id);  // given up before it was more than a question
    }
  } else {
    // Nothing that was asked for here: what front has refused by itself, as a request that it could
    // not read, is worth a line; of the rest nothing is known.
    if (request.why == Why::kNone) return;
    const Destination to = destination_of(request);
    record.host = to.host;
    record.port = to.port;
    is_host = to.why != Why::kBadName;
  }
  if (request.why != Why::kNone) {
    record.why = enum_name(is_host ? front_why(request.why) : Why::kBadName);
    const std::string_view seen = name_of(request);
    if (found != tracked_.end() && seen != record.host) {
      record.seen = escape(seen.substr(0, kMaxSeen));
    }
  }
  untrack(request.id);
  log_.add(record, now);
}

Engine::Tracked& Engine::track(std::uint64_t id, const Destination& to, const std::string& rule) {
  forget(id);
  if (tracked_.size() >= kMaxTracked) forget(tracked_order_.begin()->second);
  const std::uint64_t order = next_order_++;
  tracked_order_.emplace(order, id);
  return tracked_.emplace(id, Tracked{.order = order, .to = to, .rule = rule}).first->second;
}

void Engine::untrack(std::uint64_t id) {
  const auto found = tracked_.find(id);
  if (found == tracked_.end()) return;
  if (found->second.ending != Why::kNone) --ending_;
  tracked_order_.erase(found->second.order);
  tracked_.erase(found);
}

// Without a report: front may still have it.
void Engine::forget(std::uint64_t id) {
  const auto found = tracked_.find(id);
  if (found != tracked_.end() && found->second.connected) has_forgotten_ = true;
  untrack(id);
}

Why Engine::why_not_any_more(const Tracked& tracked) const {
  const Decision decision = judge(tracked.to);
  if (!decision.allowed) return decision.why;
  if (decision.need != Need::kAny && !tracked.seen) {
    return decision.need == Need::kTls ? Why::kNotTls : Why::kNotHttp;
  }
  if (decision.host_loopback) return Why::kNone;
  // What the host's routes say has not changed by an edit of the list.
  return check_address(tracked.address, decision.allows_private,
                       [](const AddressBlock&) { return Route{}; })
      .why;
}

void Engine::end_refused() {
  for (auto& [id, tracked] : tracked_) {
    if (!tracked.connected || tracked.ending != Why::kNone) continue;
    const Why why = why_not_any_more(tracked);
    if (why == Why::kNone) continue;
    tracked.ending = why;
    ++ending_;
    answer(id, Verdict::kEnd, why, tracked.to);
  }
}

void Engine::drop_front() {
  pending_.clear();
  tracked_.clear();
  tracked_order_.clear();
  ending_ = 0;
  has_forgotten_ = false;
}

}  // namespace temenos::egress
