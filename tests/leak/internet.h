// An internet of the test's own: a network namespace that stands for the host, joined by a veth
// pair with one that has all other addresses, servers that greet with the address and port they
// were reached at, and a name server that says what a hostile one would. Every connection that
// arrives is recorded. It needs no rights: an ordinary user gets a user namespace.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/unique_fd.h"

namespace temenos::testing {

inline constexpr const char* kNameServer = "203.0.113.1";
inline constexpr const char* kOwnAddress = "203.0.113.2";  // of the namespace that is the host

// What the name server says of NAME (without its last dot). Names that are not here do not exist;
// "flip.*" answers from its list in turn, with no time to live.
struct NetName {
  std::string name;
  std::vector<std::string> addresses;
};

class Internet {
 public:
  // "ADDRESS PORT" of the connections that have arrived so far, at the other addresses or, with
  // "host " before it, at the host's own.
  std::vector<std::string> arrived();

 private:
  friend std::string in_internet(const std::vector<std::string>&, const std::vector<NetName>&,
                                 const std::function<std::string(Internet&)>&);
  explicit Internet(UniqueFd events) : events_(std::move(events)) {}
  UniqueFd events_;
  std::string text_;
};

// Runs `body` in a process of its own, in the namespace that is the host; its result, or what went
// wrong before. `addresses` are those of the internet. A text that begins
// with "SKIP" says what this machine cannot do.
std::string in_internet(const std::vector<std::string>& addresses,
                        const std::vector<NetName>& names,
                        const std::function<std::string(Internet&)>& body);

// A command for sh, in the namespace of the caller; false when it fails.
bool shell(const std::string& command);

}  // namespace temenos::testing
