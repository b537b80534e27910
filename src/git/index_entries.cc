#include "git/index_entries.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/try.h"

namespace temenos::git {
namespace {

constexpr std::size_t kHeader = 12;
constexpr std::size_t kMaxName = 4096;  // PATH_MAX: no longer name can be checked out
constexpr unsigned kExtended = 0x4000;
constexpr unsigned kNameMask = 0x0fff;
constexpr unsigned kTypeMask = 0170000;
constexpr unsigned kDirectory = 0040000;  // a directory of a sparse index
constexpr unsigned kSymlink = 0120000;
constexpr std::size_t kStatBytes = 40;  // ten numbers, the seventh of them the mode
constexpr std::size_t kModeAt = 24;

char lower(char c) {
#ifdef TEMENOS_PLANT_GIT_INDEX
  return c;
#else
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 'a' - 'A') : c;
#endif
}

tl::unexpected<Error> malformed(const char* what) {
  return fail(Code::kProtocol, std::string("not an index that git writes: ") + what);
}

// What NTFS takes for `name`: it ends at ':' (a stream), and trailing dots and blanks go.
std::string_view ntfs_name(std::string_view component) {
  component = component.substr(0, component.find(':'));
  const auto last = component.find_last_not_of(". ");
  return component.substr(0, last == component.npos ? 0 : last + 1);
}

// HFS+ ignores these code points: U+200C to U+200F, U+202A to U+202E, U+206A to U+206F, U+FEFF.
std::string hfs_name(std::string_view component) {
  std::string out;
  while (!component.empty()) {
    if (component.size() >= 3) {
      const auto last = static_cast<unsigned char>(component[2]);
      const auto two = component.substr(0, 2);
      if ((two == "\xe2\x80" &&
           ((last >= 0x8c && last <= 0x8f) || (last >= 0xaa && last <= 0xae))) ||
          (two == "\xe2\x81" && last >= 0xaa && last <= 0xaf) ||
          (two == "\xef\xbb" && last == 0xbf)) {
        component.remove_prefix(3);
        continue;
      }
    }
    out += component[0];
    component.remove_prefix(1);
  }
  return out;
}

bool folds_to(std::string_view name, std::string_view wanted) {
  if (name.size() != wanted.size()) return false;
  for (std::size_t i = 0; i < name.size(); ++i) {
    if (lower(name[i]) != wanted[i]) return false;
  }
  return true;
}

bool is_bad_component(std::string_view component, unsigned mode) {
  if (component.empty() || component == "." || component == "..") return true;
  if ((mode & kTypeMask) == kSymlink && (folds_to(ntfs_name(component), ".gitmodules") ||
                                         folds_to(hfs_name(component), ".gitmodules"))) {
    return true;
  }
  // A backslash separates on NTFS.
  for (auto at = component.find('\\'); at != component.npos; at = component.find('\\')) {
    if (is_dot_git(component.substr(0, at))) return true;
    component.remove_prefix(at + 1);
  }
  return is_dot_git(component);
}

bool is_bad_name(std::string_view name, unsigned mode) {
  // In the index of a split one, an entry that replaces one of the shared index has no name.
  if (name.empty()) return false;
  if (name.ends_with('/') && (mode & kTypeMask) == kDirectory) name.remove_suffix(1);
  for (;;) {
    const auto slash = name.find('/');
    if (is_bad_component(name.substr(0, slash), mode)) return true;
    if (slash == name.npos) return false;
    name.remove_prefix(slash + 1);
  }
}

class IndexReader {
 public:
  IndexReader(std::string_view index, HashSize hash)
      : index_(index), hash_(static_cast<std::size_t>(hash)) {}

  Result<std::optional<std::string>> run() {
    if (index_.size() > kMaxIndexBytes) return malformed("it is too large");
    if (index_.size() < kHeader + hash_ || !index_.starts_with("DIRC")) {
      return malformed("no header");
    }
    version_ = number(4);
    if (version_ < 2 || version_ > 4) return malformed("an unknown version");
    end_ = index_.size() - hash_;
    at_ = kHeader;
    for (std::uint32_t left = number(8); left > 0; --left) {
      TRY(read_entry());
      if (bad_) return std::optional<std::string>(name_);
    }
    TRY(check_tables());
    return std::optional<std::string>();
  }

 private:
  std::uint32_t number(std::size_t at) const {
    std::uint32_t out = 0;
    for (std::size_t i = 0; i < 4; ++i) out = out << 8 | static_cast<unsigned char>(index_[at + i]);
    return out;
  }

  Result<void> read_entry() {
    const std::size_t begin = at_;
    std::size_t fixed = kStatBytes + hash_ + 2;
    if (end_ - at_ < fixed) return malformed("an entry is cut short");
    const unsigned mode = number(begin + kModeAt);
    const unsigned flags = number(begin + fixed - 4) & 0xffff;
    if ((flags & kExtended) != 0) {
      if (version_ < 3) return malformed("flags of a later version");
      fixed += 2;
      if (end_ - at_ < fixed) return malformed("an entry is cut short");
    }
    at_ += fixed;
    bool starts_anew = true;
    if (version_ == 4) {
      const std::size_t strip = TRY(read_offset());
      if (strip > name_.size()) return malformed("a name that is shorter than nothing");
      starts_anew = strip == name_.size();
      name_.resize(name_.size() - strip);
    } else {
      name_.clear();
    }
    const auto suffix_end = index_.substr(0, end_).find('\0', at_);
    if (suffix_end == index_.npos) return malformed("a name without an end");
    if (name_.size() + (suffix_end - at_) > kMaxName) {
      return malformed("a name longer than a path can be");
    }
    name_ += index_.substr(at_, suffix_end - at_);
    if ((flags & kNameMask) != std::min<std::size_t>(name_.size(), kNameMask)) {
      return malformed("a name with two lengths");
    }
    at_ = suffix_end + 1;
    if (version_ != 4) {
      const std::size_t padded = (fixed + name_.size() + 8) & ~std::size_t{7};
      if (end_ - begin < padded) return malformed("an entry is cut short");
      at_ = begin + padded;
    }
    entries_.push_back({begin, starts_anew});
    bad_ = is_bad_name(name_, mode);
    return {};
  }

  // git's variable width encoding of version 4.
  Result<std::size_t> read_offset() {
    std::size_t value = 0;
    for (int bytes = 0;; ++bytes) {
      if (at_ >= end_ || bytes == 4) return malformed("a bad number");
      const auto c = static_cast<unsigned char>(index_[at_++]);
      value = bytes == 0 ? c & 127u : ((value + 1) << 7 | (c & 127u));
      if ((c & 128) == 0) return value;
    }
  }

  // git may read the entries in several threads, by offsets that these extensions give.
  Result<void> check_tables() {
    constexpr std::size_t kEndTable = 8 + 4 + 20;  // "EOIE": header, offset, SHA-1
    if (end_ - at_ >= kEndTable) {
      const std::size_t table = end_ - kEndTable;
      if (index_.substr(table, 4) == "EOIE" && number(table + 8) != at_) {
        return malformed("its end is in two places");
      }
    }
    std::size_t at = at_;
    while (end_ - at >= 8) {
      const std::size_t size = number(at + 4);
      if (end_ - at - 8 < size) return malformed("an extension is cut short");
      if (index_.substr(at, 4) == "IEOT") TRY(check_offsets(at + 8, size));
      at += 8 + size;
    }
    return {};
  }

  Result<void> check_offsets(std::size_t at, std::size_t size) {
    if (size < 4 || (size - 4) % 8 != 0) return malformed("a bad table of offsets");
    std::size_t entry = 0;
    for (std::size_t block = at + 4; block < at + size; block += 8) {
      if (entry >= entries_.size() || entries_[entry].at != number(block) ||
          !entries_[entry].starts_anew) {
        return malformed("a table of offsets that its entries contradict");
      }
      entry += number(block + 4);
    }
    if (entry != entries_.size()) return malformed("a table of offsets that leaves entries out");
    return {};
  }

  struct EntryPlace {
    std::size_t at;
    bool starts_anew;  // its name owes nothing to the one before
  };

  std::string_view index_;
  std::size_t hash_;
  std::uint32_t version_ = 0;
  std::size_t at_ = 0;
  std::size_t end_ = 0;  // where the trailing hash begins
  std::string name_;
  bool bad_ = false;
  std::vector<EntryPlace> entries_;
};

}  // namespace

bool is_dot_git(std::string_view component) {
  const auto ntfs = ntfs_name(component);
  return folds_to(ntfs, ".git") || folds_to(ntfs, "git~1") || folds_to(hfs_name(component), ".git");
}

Result<std::optional<std::string>> bad_index_entry(std::string_view index, HashSize hash) {
  return IndexReader(index, hash).run();
}

}  // namespace temenos::git
