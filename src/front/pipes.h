// The pipes that splice(2) moves bytes through. A direction has one only while bytes of it are on
// their way, so idle connections have none, and one pipe serves many busy ones in turn.
//
// Thread-safety: none. Ownership: owns its pipes; a Pipe that is not given back is closed.
#pragma once

#include <cstddef>
#include <vector>

#include "base/unique_fd.h"

namespace temenos::front {

struct Pipe {
  UniqueFd reader;
  UniqueFd writer;
  std::size_t size = 0;  // bytes that it holds at most
  explicit operator bool() const { return static_cast<bool>(reader); }
};

class Pipes {
 public:
  // Large while few are out. The kernel lets a user have 64 MiB in pipes without privileges and
  // makes smaller ones from then on, for all of that user's processes.
  static constexpr std::size_t kLarge = 256 * 1024;
  static constexpr std::size_t kMaxLarge = 64;
  static constexpr std::size_t kMaxSpare = 8;

  // An empty pipe; none when there are no descriptors left for it.
  Pipe take();
  // `pipe` must be empty.
  void give_back(Pipe pipe);
  std::size_t out() const { return out_; }
  std::size_t spare() const { return spare_.size(); }
  // One that held bytes nobody wants any more.
  void drop(Pipe pipe);

 private:
  std::vector<Pipe> spare_;
  std::size_t out_ = 0;
};

}  // namespace temenos::front
