#include "egress/resolver.h"

#include <ares.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <unordered_map>

#include "egress/nat64.h"
#include "egress/socket_address.h"

namespace temenos::egress {
namespace {

constexpr std::size_t kMaxInFlight = 256;
constexpr std::size_t kMaxCached = 1024;
constexpr std::int64_t kMinTtl = 1;
constexpr std::int64_t kMaxTtl = 60;
constexpr std::int64_t kNegativeTtl = 2;
// The library sends all questions that are under way from one port, so one that nobody answers
// would keep that port, for who sends forged answers, as long as the box likes. Each channel has
// new questions for a while only, and is emptied before its turn comes again, when nobody waits for
// what is left in it.
constexpr std::size_t kChannels = 5;
constexpr std::int64_t kTurnMs = 2000;
constexpr int kTryMs = 2000;
constexpr int kTries = 2;

struct Answer {
  LookUpStatus status = LookUpStatus::kNoAnswer;
  std::vector<AddressBlock> addresses;
};

struct Waiter {
  std::uint64_t ticket = 0;
  std::int64_t until = 0;
};

// IPv6 and IPv4 in turn, IPv6 first (RFC 8305 section 4); within each as the server had them.
std::vector<AddressBlock> in_turn(const std::vector<AddressBlock>& all) {
  std::vector<AddressBlock> v6;
  std::vector<AddressBlock> v4;
  for (const auto& address : all) {
    auto& of = address.v4 ? v4 : v6;
    if (std::find(of.begin(), of.end(), address) == of.end()) of.push_back(address);
  }
  std::vector<AddressBlock> out;
  for (std::size_t i = 0; i < std::max(v4.size(), v6.size()); ++i) {
    if (i < v6.size()) out.push_back(v6[i]);
    if (i < v4.size()) out.push_back(v4[i]);
  }
  if (out.size() > kMaxAddresses) out.resize(kMaxAddresses);
  return out;
}

}  // namespace

struct Resolver::State {
  struct Cached {
    Answer answer;
    std::int64_t until = 0;
  };
  struct Query {
    State* state;
    std::string name;
    std::uint64_t generation;
  };

  Calls calls;
  Options options;
  std::array<ares_channel, kChannels> channels{};
  std::size_t turn = 0;  // the channel that new questions go to
  std::int64_t turn_at = 0;
  std::vector<AddressBlock> servers;
  std::unordered_map<std::string, std::vector<AddressBlock>> hosts;
  bool has_config = false;
  std::int64_t config_at = 0;
  std::int64_t asked_at = 0;
  bool asked = false;
  std::uint64_t generation = 1;
  std::int64_t now = 0;  // of the call that is being served
  bool closing = false;

  std::unordered_map<std::string, Cached> cache;
  std::unordered_map<std::string, std::vector<Waiter>> in_flight;
  std::vector<std::pair<std::string, Waiter>> for_config;  // `until`: then without it

  const std::string nat64_name = std::string(kNat64Name);
  bool nat64_known = false;
  std::int64_t nat64_next = 0;   // when they are to be asked for
  std::int64_t nat64_began = 0;  // when they were
  std::vector<std::pair<Waiter, Answer>> for_nat64;

  bool open();
  void next_turn();
  void begin(const std::string& name, Waiter waiter);
  void send(const std::string& name);
  void finish(const std::string& name, const Answer& answer, std::int64_t ttl);
  void flush_for_config();
  void keep(const std::string& name, const Answer& answer, std::int64_t ttl);
  std::int64_t next_time() const;
  void ask_nat64();
  void take_nat64(const Answer& answer);
  void flush_for_nat64();
  void done(const Waiter& waiter, const Answer& answer);
  static void on_answer(void* argument, int status, int timeouts, ares_addrinfo* result);
};

bool Resolver::State::open() {
  if (ares_library_init(ARES_LIB_INIT_ALL) != ARES_SUCCESS) return false;
  // Each of these that is left out makes the library read a file for it.
  ares_options ares{};
  static char lookups[] = "b";  // name servers only; the hosts file is read by us
  ares.flags = ARES_FLAG_NOSEARCH | ARES_FLAG_NOALIASES;
  ares.timeout = kTryMs;
  ares.tries = kTries;
  ares.ndots = 1;
  ares.lookups = lookups;
  ares.sock_state_cb = [](void* state, ares_socket_t fd, int readable, int writable) {
    auto* const self = static_cast<State*>(state);
    if (!self->closing) self->calls.watch(fd, readable != 0, writable != 0);
  };
  ares.sock_state_cb_data = this;
  const int mask = ARES_OPT_FLAGS | ARES_OPT_TIMEOUTMS | ARES_OPT_TRIES | ARES_OPT_NDOTS |
                   ARES_OPT_SERVERS | ARES_OPT_DOMAINS | ARES_OPT_LOOKUPS | ARES_OPT_SORTLIST |
                   ARES_OPT_SOCK_STATE_CB;
  for (ares_channel& channel : channels) {
    if (ares_init_options(&channel, &ares, mask) == ARES_SUCCESS) continue;
    channel = nullptr;
    return false;
  }
  return true;
}

void Resolver::State::next_turn() {
  if (now - turn_at < kTurnMs) return;
  turn_at = now;
  turn = (turn + 1) % kChannels;
  ares_cancel(channels[turn]);
}

Resolver::Resolver(Calls calls, const Options& options) : state_(std::make_unique<State>()) {
  state_->calls = std::move(calls);
  state_->options = options;
  is_open_ = state_->open();
}

Resolver::~Resolver() {
  state_->closing = true;
  state_->in_flight.clear();
  for (const ares_channel channel : state_->channels) {
    if (channel != nullptr) ares_destroy(channel);
  }
}

void Resolver::set_config(std::string_view resolv_conf, std::string_view hosts, std::int64_t now) {
  State& s = *state_;
  s.now = now;
  s.has_config = true;
  s.asked = false;
  s.config_at = now;
  s.hosts.clear();
  for (auto& [name, address] : hosts_entries(hosts)) s.hosts[name].push_back(address);
  auto servers = name_servers(resolv_conf);
  if (servers != s.servers) {
    s.servers = std::move(servers);
    s.cache.clear();
    s.nat64_known = false;
    s.nat64_next = s.nat64_began = now;
    // Queries to the old ones are over; their names are asked of the new ones.
    ++s.generation;
    for (const ares_channel channel : s.channels) ares_cancel(channel);
    std::vector<ares_addr_port_node> nodes(s.servers.size());
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      ares_addr_port_node& node = nodes[i];
      node.next = i + 1 < nodes.size() ? &nodes[i + 1] : nullptr;
      node.family = s.servers[i].v4 ? AF_INET : AF_INET6;
      std::memcpy(&node.addr, s.servers[i].bytes.data(), s.servers[i].v4 ? 4 : 16);
      node.udp_port = node.tcp_port = s.options.port;
    }
    for (const ares_channel channel : s.channels) {
      if (ares_set_servers_ports(channel, nodes.data()) != ARES_SUCCESS) s.servers.clear();
    }
    std::vector<std::string> names;
    for (const auto& [name, waiters] : s.in_flight) names.push_back(name);
    for (const auto& name : names) s.send(name);
  }
  s.flush_for_config();
}

void Resolver::look_up(std::uint64_t ticket, const std::string& name, std::int64_t now) {
  State& s = *state_;
  s.now = now;
  const bool fresh = s.has_config && now - s.config_at < s.options.config_ms;
  if (fresh) return s.begin(name, {ticket, now + s.options.deadline_ms});
  if (s.for_config.size() >= kMaxOutstanding) {
    return s.calls.done(ticket, LookUpStatus::kTooMany, {});
  }
  if (!s.asked || now - s.asked_at >= s.options.config_ms) {
    s.asked = true;
    s.asked_at = now;
    s.calls.wants_config();
  }
  const std::int64_t wait = s.has_config ? s.options.config_wait_ms : s.options.first_wait_ms;
  s.for_config.emplace_back(name, Waiter{ticket, s.asked_at + wait});
  if (s.asked_at + wait <= now) s.flush_for_config();
}

void Resolver::State::flush_for_config() {
  for (auto& [name, waiter] : std::exchange(for_config, {})) {
    if (has_config) {
      begin(name, {waiter.ticket, now + options.deadline_ms});
    } else {
      calls.done(waiter.ticket, LookUpStatus::kNoAnswer, {});
    }
  }
}

void Resolver::State::begin(const std::string& name, Waiter waiter) {
  if (const auto own = hosts.find(name); own != hosts.end()) {
    const auto addresses = in_turn(own->second);
    return calls.done(waiter.ticket, LookUpStatus::kFound, addresses);
  }
  if (const auto found = cache.find(name); found != cache.end() && now < found->second.until) {
    const Answer answer = found->second.answer;
    return done(waiter, answer);
  }
  if (const auto found = in_flight.find(name); found != in_flight.end()) {
    found->second.push_back(waiter);
    return;
  }
  if (in_flight.size() >= kMaxInFlight + in_flight.count(nat64_name)) {
    return calls.done(waiter.ticket, LookUpStatus::kTooMany, {});
  }
  in_flight[name].push_back(waiter);
  ask_nat64();
  send(name);
}

void Resolver::State::ask_nat64() {
  if (now < nat64_next || in_flight.contains(nat64_name)) return;
  nat64_began = now;
  in_flight[nat64_name];
  send(nat64_name);
}

void Resolver::State::take_nat64(const Answer& answer) {
  const bool told =
      answer.status == LookUpStatus::kFound || answer.status == LookUpStatus::kNoSuchName;
  nat64_next = now + (told ? options.nat64_ms : options.nat64_again_ms);
  // What was found before is better than nothing.
  nat64_known = nat64_known || told;
  if (told) calls.nat64(nat64_prefixes(answer.addresses));
}

void Resolver::State::flush_for_nat64() {
  for (auto& [waiter, answer] : std::exchange(for_nat64, {})) done(waiter, answer);
}

void Resolver::State::done(const Waiter& waiter, const Answer& answer) {
  if (nat64_known) return calls.done(waiter.ticket, answer.status, answer.addresses);
  if (in_flight.contains(nat64_name) && now - nat64_began < options.nat64_wait_ms) {
    for_nat64.emplace_back(waiter, answer);
    return;
  }
  std::vector<AddressBlock> v4 = answer.addresses;
  std::erase_if(v4, [](const AddressBlock& address) { return !address.v4; });
  const bool none = v4.empty() && !answer.addresses.empty();
  calls.done(waiter.ticket, none ? LookUpStatus::kNoAnswer : answer.status, v4);
}

void Resolver::State::send(const std::string& name) {
  if (servers.empty()) return finish(name, {}, 0);
  ares_addrinfo_hints hints{};
  // Of the one name the others are known, and could hide that these could not be had.
  hints.ai_family = name == nat64_name ? AF_INET6 : AF_UNSPEC;
  hints.ai_flags = ARES_AI_NOSORT;
  hints.ai_socktype = SOCK_STREAM;
  auto query = std::make_unique<Query>(Query{this, name, generation});
  // As a whole name: a dot at its end keeps any search list out.
  const std::string whole = name + ".";
  ares_getaddrinfo(channels[turn], whole.c_str(), nullptr, &hints, &State::on_answer,
                   query.release());
}

void Resolver::State::on_answer(void* argument, int status, int, ares_addrinfo* result) {
  const std::unique_ptr<Query> query(static_cast<Query*>(argument));
  const std::unique_ptr<ares_addrinfo, void (*)(ares_addrinfo*)> owner(result, ares_freeaddrinfo);
  State& s = *query->state;
  if (s.closing || query->generation != s.generation) return;
  Answer answer;
  std::int64_t ttl = kNegativeTtl;
  if (status == ARES_SUCCESS && result != nullptr) {
    std::vector<AddressBlock> all;
    ttl = kMaxTtl;
    for (const ares_addrinfo_cname* c = result->cnames; c != nullptr; c = c->next) {
      ttl = std::min<std::int64_t>(ttl, c->ttl);
    }
    for (const ares_addrinfo_node* n = result->nodes; n != nullptr; n = n->ai_next) {
      ttl = std::min<std::int64_t>(ttl, n->ai_ttl);
      if (const auto address = address_of(n->ai_addr)) all.push_back(*address);
      if (all.size() == 64) break;
    }
    ttl = std::max(ttl, kMinTtl);
    answer.addresses = in_turn(all);
    answer.status = all.empty() ? LookUpStatus::kNoSuchName : LookUpStatus::kFound;
  } else if (status == ARES_ENOTFOUND || status == ARES_ENODATA) {
    answer.status = LookUpStatus::kNoSuchName;
  } else {
    ttl = 0;  // another try may go better
  }
  s.finish(query->name, answer, ttl);
}

void Resolver::State::finish(const std::string& name, const Answer& answer, std::int64_t ttl) {
  if (ttl > 0) keep(name, answer, ttl);
  const auto found = in_flight.find(name);
  if (found == in_flight.end()) return;
  const auto waiters = std::move(found->second);
  in_flight.erase(found);
  if (name == nat64_name) take_nat64(answer);
  for (const Waiter& waiter : waiters) done(waiter, answer);
  if (name == nat64_name) flush_for_nat64();
}

void Resolver::State::keep(const std::string& name, const Answer& answer, std::int64_t ttl) {
  if (cache.size() >= kMaxCached) {
    std::erase_if(cache, [this](const auto& entry) { return entry.second.until <= now; });
    if (cache.size() >= kMaxCached) cache.clear();
  }
  cache[name] = {answer, now + ttl * 1000};
}

void Resolver::on_event(int fd, bool readable, bool writable, std::int64_t now) {
  state_->now = now;
  // One that has no such socket leaves it alone.
  for (const ares_channel channel : state_->channels) {
    ares_process_fd(channel, readable ? fd : ARES_SOCKET_BAD, writable ? fd : ARES_SOCKET_BAD);
  }
}

std::int64_t Resolver::State::next_time() const {
  std::int64_t next = -1;
  const auto at = [&next](std::int64_t when) {
    if (next < 0 || when < next) next = when;
  };
  if (!in_flight.empty()) at(turn_at + kTurnMs);
  for (const ares_channel channel : channels) {
    timeval left{};
    if (!in_flight.empty() && ares_timeout(channel, nullptr, &left) != nullptr) {
      at(now + left.tv_sec * 1000 + left.tv_usec / 1000 + 1);
    }
  }
  for (const auto& [name, waiters] : in_flight) {
    if (!waiters.empty()) at(waiters.front().until);  // in order of time
  }
  if (!for_config.empty()) at(for_config.front().second.until);
  if (!for_nat64.empty()) at(nat64_began + options.nat64_wait_ms);
  return next;
}

std::int64_t Resolver::tick(std::int64_t now) {
  State& s = *state_;
  s.now = now;
  for (const ares_channel channel : s.channels) {
    ares_process_fd(channel, ARES_SOCKET_BAD, ARES_SOCKET_BAD);
  }
  s.next_turn();
  if (!s.for_config.empty() && s.for_config.front().second.until <= now) s.flush_for_config();
  std::vector<std::uint64_t> late;
  for (auto& [name, waiters] : s.in_flight) {
    // The query itself ends when the library gives it up; its answer still counts for the cache.
    std::erase_if(waiters, [&](const Waiter& waiter) {
      if (waiter.until > now) return false;
      late.push_back(waiter.ticket);
      return true;
    });
  }
  if (now - s.nat64_began >= s.options.nat64_wait_ms) s.flush_for_nat64();
  for (const std::uint64_t ticket : late) s.calls.done(ticket, LookUpStatus::kNoAnswer, {});
  return s.next_time();
}

void Resolver::forget_all() {
  for (auto& [name, waiters] : state_->in_flight) waiters.clear();
  state_->for_config.clear();
  state_->for_nat64.clear();
}

}  // namespace temenos::egress
