// Files of a box, as its own processes see them. All of it comes from the box: names, sizes and
// targets are what the box says; nothing of it may be followed on the host.
//
// Thread-safety: plain values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace temenos {

enum class FileType : std::uint8_t {
  kOther,
  kRegular,
  kDirectory,
  kSymlink,
  kFifo,
  kSocket,
  kDevice
};

struct FileInfo {
  FileType type = FileType::kOther;
  std::uint32_t mode = 0;          // permission bits with setuid, setgid, sticky
  std::uint32_t uid = 0, gid = 0;  // as the box sees them
  std::uint64_t size = 0;
  std::int64_t mtime_ns = 0;  // since 1970
  std::string target;         // of a symlink
};

struct DirEntry {
  std::string name;  // bytes; one component, never "." or ".."
  FileType type = FileType::kOther;
  std::uint32_t mode = 0;
  std::uint64_t size = 0;
  std::int64_t mtime_ns = 0;
};

struct WriteOptions {
  enum class How : std::uint8_t {
    kReplace,  // whole or not at all: a temporary file in the same directory, then rename
    kCreate,   // the same, but kAlreadyExists when there is one
    kAppend,
  };
  How how = How::kReplace;
  std::optional<std::uint32_t> mode;  // permission bits; unset: those there, else 0644
};

}  // namespace temenos
