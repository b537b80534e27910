// Keeps the first and the last bytes of a stream of any length and counts what lay between.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

#include "temenos/exec_result.h"

namespace temenos {

class HeadTail {
 public:
  HeadTail(std::size_t head, std::size_t tail) : head_limit_(head), tail_limit_(tail) {}

  void add(std::string_view bytes) {
    const std::size_t to_head = std::min(bytes.size(), head_limit_ - head_.size());
    head_.append(bytes.substr(0, to_head));
    bytes.remove_prefix(to_head);
    past_head_ += bytes.size();
    if (bytes.size() > tail_limit_) bytes.remove_prefix(bytes.size() - tail_limit_);
    // A ring: `at_` is where its oldest byte lies once it is full.
    const std::size_t to_grow = std::min(bytes.size(), tail_limit_ - tail_.size());
    tail_.append(bytes.substr(0, to_grow));
    bytes.remove_prefix(to_grow);
    while (!bytes.empty()) {
      const std::size_t part = std::min(bytes.size(), tail_limit_ - at_);
      tail_.replace(at_, part, bytes.substr(0, part));
      at_ = (at_ + part) % tail_limit_;
      bytes.remove_prefix(part);
    }
  }

  Omitted omitted() const { return {head_.size(), past_head_ - tail_.size()}; }
  // Leaves the object empty.
  std::string take() {
    std::rotate(tail_.begin(), tail_.begin() + static_cast<std::ptrdiff_t>(at_), tail_.end());
    head_ += tail_;
    return std::move(head_);
  }

 private:
  std::size_t head_limit_;
  std::size_t tail_limit_;
  std::string head_;
  std::string tail_;
  std::size_t at_ = 0;
  std::uint64_t past_head_ = 0;
};

}  // namespace temenos
