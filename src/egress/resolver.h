// Real look-ups of allowed names, with the host's name servers and its hosts file, whose texts
// keeper hands over: nothing is opened here. A and AAAA, CNAMEs followed by the library, no search
// domains. Answers are what a hostile server may have written: who uses them checks each address.
//
// With the first look-up the servers are asked for the prefixes of a NAT64 as well
// (egress/nat64.h), and its answer waits for theirs. While these cannot be told an answer has no
// IPv6 addresses: none could be judged.
//
// Bounded: names in flight, answers kept (by their TTL, 1 to 60 s), addresses of a name, time of a
// look-up, time for which questions are sent from one port. Equal look-ups are one.
//
// The constructor reads the kernel's random numbers through a file; after it the system calls are
// those of UDP and TCP sockets. Thread-safety: none. `now` is a steady clock in milliseconds.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "egress/engine.h"
#include "temenos/network.h"

namespace temenos::egress {

class Resolver {
 public:
  struct Options {
    std::uint16_t port = 53;               // of the name servers
    std::int64_t deadline_ms = 8000;       // of a look-up
    std::int64_t config_ms = 5000;         // then keeper is asked for the host's files again
    std::int64_t config_wait_ms = 300;     // and a look-up waits for the answer this long
    std::int64_t first_wait_ms = 5000;     // or this long when there was none before
    std::int64_t nat64_ms = 600'000;       // then the prefixes are asked for again
    std::int64_t nat64_again_ms = 10'000;  // or so long after a try that told nothing
    std::int64_t nat64_wait_ms = 3000;     // and an answer waits for them this long
  };
  struct Calls {
    std::function<void(std::uint64_t ticket, LookUpStatus, std::span<const AddressBlock>)> done;
    std::function<void()> wants_config;
    // Before the answers that are to be judged with them.
    std::function<void(std::vector<AddressBlock> prefixes)> nat64;
    // What to wait for on a socket; neither: it is about to be closed.
    std::function<void(int fd, bool readable, bool writable)> watch;
  };
  Resolver(Calls calls, const Options& options);
  ~Resolver();
  // False: the library could not be set up.
  explicit operator bool() const { return is_open_; }

  // The host's resolv.conf and hosts.
  void set_config(std::string_view resolv_conf, std::string_view hosts, std::int64_t now);
  void look_up(std::uint64_t ticket, const std::string& name, std::int64_t now);
  void on_event(int fd, bool readable, bool writable, std::int64_t now);
  // -1 or when to call it again.
  std::int64_t tick(std::int64_t now);
  // Forgets who waits.
  void forget_all();

 private:
  struct State;
  std::unique_ptr<State> state_;
  bool is_open_ = false;
};

// Bounded readers of the two files. Lines that are none are left out.
std::vector<AddressBlock> name_servers(std::string_view resolv_conf);
std::vector<std::pair<std::string, AddressBlock>> hosts_entries(std::string_view hosts);

inline constexpr std::size_t kMaxResolvConf = std::size_t{64} << 10;
inline constexpr std::size_t kMaxHosts = std::size_t{1} << 20;

}  // namespace temenos::egress
