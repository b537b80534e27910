// A proxy with an allowlist on the host's loopback, for any program of the host that heeds
// HTTP_PROXY and the like: without a box, and without any rights. It speaks HTTP (CONNECT and
// absolute-form) and SOCKS 5 on one port, decides by the engine that decides for boxes, and refuses
// in words that a person can read. docs/network.md says what an entry of the list means.
//
// It holds nobody who goes past it: cooperative, not a boundary. For code that is not trusted there
// are boxes (box.h), whose network is held whatever they do.
//
// Every user of the host can connect to a port of loopback. So each proxy has a password of its
// own, which is in the variables of environment() and nowhere else (no command line, no log, no
// error); who does not say it gets 407 and reaches nothing. Who may read the environment of a
// program that has it (the same user, root) may use the proxy. A port of loopback does not tell
// users apart before they have said it: another one can take its 1,024 connections, for 10 s each.
//
// It is three processes, which end with the object or with the program that has it: one that
// watches, and the two that serve, in jails of their own. If one of those dies it is started again
// with the same port, password and rules; connections that went through it are gone.
//
// Thread-safety: none; one thread at a time.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "temenos/error.h"
#include "temenos/network.h"

namespace temenos {

struct EgressProxyOptions {
  // Where temenos-keeper and the rest are; empty: ../libexec/temenos beside the running program.
  std::string libexec;
};

// What the proxy was asked for. `count` is more than 1 where equal ones were counted together.
struct EgressEvent {
  std::string time;  // RFC 3339, UTC, with milliseconds
  // "connect": refused, failed, or made. "end": one that was made is over.
  std::string event;
  std::string host;  // a name in canonical form, or an address
  std::uint16_t port = 0;
  std::string address;   // that was connected to
  std::string protocol;  // "tls", "http", "other", or nothing
  std::string verdict;   // "allowed", "refused", "failed"
  std::string rule;      // that decided
  std::string why;       // a word, of what is not allowed
  std::uint64_t up = 0;  // "end": bytes to the server, and from it
  std::uint64_t down = 0;
  std::uint64_t ms = 0;
  std::uint64_t count = 1;
};

class EgressProxy {
 public:
  // Serves when this returns. An empty list reaches nothing. kUnsupported: this host has no user
  // namespaces, which the two processes lock themselves into.
  static Result<EgressProxy> start(std::span<const HostRule> rules,
                                   const EgressProxyOptions& options = {});
  EgressProxy(EgressProxy&&) noexcept;
  EgressProxy& operator=(EgressProxy&&) noexcept;
  ~EgressProxy();  // ends it, with all connections through it

  std::uint16_t port() const;  // of 127.0.0.1
  // HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and the same in lower case, for the programs that it is for.
  // There is deliberately no NO_PROXY: the list says what of loopback may be reached, too. A
  // program that inherits one from elsewhere goes past the proxy: take NO_PROXY and no_proxy away.
  std::map<std::string, std::string> environment() const;

  // Whether something else than the programs themselves holds them to the list. Of this class
  // never.
  bool enforced() const { return false; }
  std::string_view enforcement_reason() const;

  // Replaces the list as a whole. An error: the old one holds. When it returns, what was open and
  // is not in the list has ended; the rest stays.
  Result<void> set_rules(std::span<const HostRule> rules);
  // The newest events, oldest first; at most some 4 MiB of them are kept, in memory. What was asked
  // for before the call is among them.
  Result<std::vector<EgressEvent>> log();

 private:
  struct Impl;
  explicit EgressProxy(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace temenos
