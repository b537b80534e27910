// What the network rows connect to, as processes of their own: the server, and a forwarder that
// only moves bytes, to compare temenos' own with.
//
// A connection's first byte says what the server does with it. None of these is the beginning of a
// protocol that anybody knows.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <utility>

#include "base/unique_fd.h"
#include "temenos/error.h"

namespace temenos::bench {

inline constexpr char kStream = 1;  // a StreamOrder; a byte back, and after one more the stream
inline constexpr char kEcho = 2;    // each byte comes back
inline constexpr char kShort = 3;   // kShortAnswer and the end; so does a GET, with a head before
inline constexpr char kShortAnswer[] = "served";

struct StreamOrder {
  std::uint64_t what;  // kStream in the first byte
  std::uint64_t bytes;
};

struct Listening {
  UniqueFd fd;
  std::uint16_t port = 0;
};
// In the calling thread's network namespace.
Result<Listening> listen_at(const char* address);

// A process that is killed when this is dropped, or with the benchmark.
class Child {
 public:
  explicit Child(pid_t pid) : pid_(pid) {}
  Child(Child&& other) noexcept : pid_(std::exchange(other.pid_, -1)) {}
  Child& operator=(Child&&) = delete;
  ~Child();

 private:
  pid_t pid_;
};

// Serves on both.
Result<Child> start_server(int listener, int other);
// Forwards what comes to `listener` to `port` of loopback, by splice(2), one loop for all, and
// decides nothing.
Result<Child> start_forwarder(int listener, std::uint16_t port);

}  // namespace temenos::bench
