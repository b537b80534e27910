#include "front/pipes.h"

#include <fcntl.h>
#include <unistd.h>

#include <utility>

namespace temenos::front {
namespace {

constexpr std::size_t kOrdinary = 64 * 1024;

}  // namespace

Pipe Pipes::take() {
  Pipe pipe;
  if (!spare_.empty()) {
    pipe = std::move(spare_.back());
    spare_.pop_back();
  } else {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) return {};
    pipe.reader.reset(ends[0]);
    pipe.writer.reset(ends[1]);
    pipe.size = kOrdinary;
    if (out_ < kMaxLarge) {
      const int size = fcntl(ends[1], F_SETPIPE_SZ, static_cast<int>(kLarge));
      if (size > 0) pipe.size = static_cast<std::size_t>(size);
    }
  }
  ++out_;
  return pipe;
}

void Pipes::give_back(Pipe pipe) {
  --out_;
  if (spare_.size() < kMaxSpare) spare_.push_back(std::move(pipe));
}

void Pipes::drop(Pipe pipe) {
  --out_;
  pipe = {};
}

}  // namespace temenos::front
