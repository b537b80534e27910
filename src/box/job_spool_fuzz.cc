// Two segments as a session that was taken over may write them. Whatever they hold: a reader gets
// no more than it asked for, always gets on, and small reads give what one large read gives.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string>

#include "base/unique_fd.h"
#include "box/job_spool.h"

namespace {

using namespace temenos;
using namespace temenos::box;

void require(bool condition);

struct Directory {
  Directory() {
    char pattern[] = "/tmp/temenos-fuzz-XXXXXX";
    require(mkdtemp(pattern) != nullptr);
    dir.reset(open(pattern, O_PATH | O_DIRECTORY | O_CLOEXEC));
    for (const int i : {0, 1}) {
      const std::string name = "log." + std::to_string(i);
      files[i].reset(openat(dir.get(), name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
      require(static_cast<bool>(files[i]));
    }
    path = pattern;
  }
  ~Directory() { remove(); }
  void remove() const {
    for (const char* name : {"/log.0", "/log.1"}) unlink((path + name).c_str());
    rmdir(path.c_str());
  }
  void put(int which, const std::uint8_t* data, std::size_t size) const {
    require(ftruncate(files[which].get(), 0) == 0);
    require(pwrite(files[which].get(), data, size, 0) == static_cast<ssize_t>(size));
  }
  std::string path;
  UniqueFd dir;
  UniqueFd files[2];
};

const Directory& directory() {
  static const Directory one;
  return one;
}

void require(bool condition) {
  if (condition) return;
  directory().remove();  // the planted defect comes here each time
  abort();
}

std::string take(const SpoolRead& read, std::size_t max) {
  std::string all;
  for (std::size_t i = 0; i < read.chunks.size(); ++i) {
    require(!read.chunks[i].bytes.empty());
    require(i == 0 || read.chunks[i].stream != read.chunks[i - 1].stream);
    all += read.chunks[i].bytes;
  }
  require(all.size() <= max);
  return all;
}

}  // namespace

// u16 cursor, u8 bytes a read, u16 size of the first segment, the segments.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const int dir = directory().dir.get();
  if (size < 5) return 0;
  const std::uint64_t cursor = data[0] | data[1] << 8;
  const std::size_t max = std::max<std::size_t>(data[2], 1);
  const std::size_t first = std::min<std::size_t>(data[3] | data[4] << 8, size - 5);
  directory().put(0, data + 5, first);
  directory().put(1, data + 5 + first, size - 5 - first);
  auto large = read_spool(dir, cursor, 1u << 20);
  auto small = read_spool(dir, cursor, max);
  require(large.has_value() == small.has_value());
  if (!large) return 0;
  require(large->end.has_value() == small->end.has_value());
  std::string by_large = take(*large, 1u << 20);
  std::string by_small = take(*small, max);
  std::uint64_t dropped = large->dropped;
  while (!large->whole) {  // only where something is missing between two segments
    const std::uint64_t before = large->next;
    large = read_spool(dir, before, 1u << 20);
    require(large && large->next > before);
    by_large += take(*large, 1u << 20);
    dropped += large->dropped;
  }
  std::uint64_t dropped_small = small->dropped;
  while (!small->whole) {
    const std::uint64_t before = small->next;
    small = read_spool(dir, before, max);
    require(small && small->next > before);
    by_small += take(*small, max);
    dropped_small += small->dropped;
  }
  require(by_large == by_small && dropped == dropped_small && large->next == small->next);
  const auto end = read_spool(dir, kSpoolEnd, 0);
  require(end && end->whole && end->chunks.empty() && end->next <= large->next);
  return 0;
}
