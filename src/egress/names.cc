#include "egress/names.h"

#include <sys/mman.h>
#include <sys/stat.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/try.h"
#include "wire/host_name.h"

namespace temenos::egress {
namespace {

constexpr std::uint64_t kMagic = 0x31736d616e656d74;  // "tmnames1"
static_assert(wire::kMaxHostName < NameTable::kSlotBytes);

}  // namespace

struct NameTable::Header {
  std::uint64_t magic;
  std::atomic<std::uint32_t> count;
};

NameTable::Header& NameTable::header() const {
  static_assert(sizeof(Header) <= kSlotBytes && std::atomic<std::uint32_t>::is_always_lock_free);
  return *reinterpret_cast<Header*>(map_);
}

Result<NameTable> NameTable::open(int fd) {
  struct stat st{};
  if (fstat(fd, &st) != 0) return fail_errno(errno, "the table of names");
  if (st.st_size != static_cast<off_t>(kBytes)) {
    return fail(Code::kProtocol, "the table of names has another size");
  }
  void* const map = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (map == MAP_FAILED) return fail_errno(errno, "mapping the table of names");
  NameTable table(static_cast<std::byte*>(map));
  TRY(table.load());
  return table;
}

NameTable::NameTable(NameTable&& other) noexcept
    : map_(std::exchange(other.map_, nullptr)),
      numbers_(std::move(other.numbers_)),
      refused_(std::move(other.refused_)),
      refused_numbers_(std::move(other.refused_numbers_)),
      next_refused_(other.next_refused_) {}

NameTable::~NameTable() {
  if (map_ != nullptr) munmap(map_, kBytes);
}

// One byte of length, then the name.
std::string_view NameTable::slot(std::uint32_t number) const {
  const auto* const bytes = reinterpret_cast<const char*>(map_ + (number + 1) * kSlotBytes);
  return {bytes + 1, static_cast<std::uint8_t>(bytes[0])};
}

Result<void> NameTable::load() {
  if (header().magic == 0) {
    header().count = 0;
    header().magic = kMagic;
  }
  const std::uint32_t count = header().count.load(std::memory_order_acquire);
  if (header().magic != kMagic || count > kMaxNames) {
    return fail(Code::kProtocol, "the table of names is of another kind");
  }
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::string_view name = slot(i);
    if (wire::canonical_name(name) != name || !numbers_.emplace(name, i).second) {
      return fail(Code::kProtocol, "the table of names is broken");
    }
  }
  return {};
}

std::uint32_t NameTable::count() const { return header().count.load(std::memory_order_relaxed); }

std::optional<std::uint32_t> NameTable::add(std::string_view name, bool exact) {
  if (const auto found = numbers_.find(name); found != numbers_.end()) return found->second;
  const std::uint32_t number = count();
  if (number >= kMaxNames - (exact ? 0 : kForExactNames)) return std::nullopt;
  if (name.empty() || name.size() > wire::kMaxHostName) return std::nullopt;
  auto* const bytes = reinterpret_cast<char*>(map_ + (number + 1) * kSlotBytes);
  bytes[0] = static_cast<char>(name.size());
  std::memcpy(bytes + 1, name.data(), name.size());
  header().count.store(number + 1, std::memory_order_release);
  numbers_.emplace(slot(number), number);
  return number;
}

bool NameTable::has_room_for(const std::vector<std::string>& names) const {
  std::size_t missing = 0;
  for (const auto& name : names) missing += numbers_.count(name) == 0 ? 1 : 0;
  return missing <= kMaxNames - count();
}

std::uint32_t NameTable::add_refused(std::string_view name) {
  std::string own(name);
  if (const auto found = refused_numbers_.find(own); found != refused_numbers_.end()) {
    return found->second;
  }
  const std::uint32_t at = next_refused_++ % kMaxRefused;
  refused_numbers_.erase(refused_[at]);
  refused_[at] = own;
  refused_numbers_.emplace(std::move(own), kFirstRefused + at);
  return kFirstRefused + at;
}

std::string_view NameTable::name(std::uint32_t number) const {
  if (number < count()) return slot(number);
  if (number >= kFirstRefused && number - kFirstRefused < kMaxRefused) {
    return refused_[number - kFirstRefused];
  }
  return {};
}

}  // namespace temenos::egress
