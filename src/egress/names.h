// Which number, and so which synthetic address, each name of a box has: a name that is allowed gets
// one for the box's whole life, and no other name ever has it. It lies in a file of shared memory
// that keeper holds, so that a dialer that was started again goes on with it. Names that are
// refused share a small pool in memory, which is recycled.
//
// The file: a header, then kMaxNames slots of fixed size. A slot is written before the header's
// count covers it, so a dialer that died in between leaves the table as it was before.
//
// Thread-safety: none; one process writes. Ownership: the mapping.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "egress/plan.h"
#include "temenos/error.h"

namespace temenos::egress {

// Some are kept for names that rules write out: names below a wildcard are the box's choice.
inline constexpr std::uint32_t kForExactNames = 8192;

class NameTable {
 public:
  static constexpr std::size_t kSlotBytes = 256;
  static constexpr std::size_t kBytes = kSlotBytes * (kMaxNames + 1);

  // Maps `fd`, a file of kBytes; all zero is an empty table. kProtocol: something else is in it.
  static Result<NameTable> open(int fd);
  NameTable(NameTable&& other) noexcept;
  NameTable& operator=(NameTable&&) = delete;
  ~NameTable();

  // The number that an allowed name has, now if not before; nullopt: there is no room.
  std::optional<std::uint32_t> add(std::string_view name, bool exact);
  // How many of `names` have no number yet, and whether there is room for them.
  bool has_room_for(const std::vector<std::string>& names) const;
  // A number of the pool, which this name has until others need it.
  std::uint32_t add_refused(std::string_view name);
  // Empty: no name has it (any more).
  std::string_view name(std::uint32_t number) const;
  std::uint32_t count() const;

 private:
  struct Header;
  explicit NameTable(std::byte* map) : map_(map) {}
  Header& header() const;
  std::string_view slot(std::uint32_t number) const;
  Result<void> load();

  std::byte* map_;
  std::unordered_map<std::string_view, std::uint32_t> numbers_;  // views into the mapping
  std::vector<std::string> refused_ = std::vector<std::string>(kMaxRefused);
  std::unordered_map<std::string, std::uint32_t> refused_numbers_;
  std::uint32_t next_refused_ = 0;
};

}  // namespace temenos::egress
