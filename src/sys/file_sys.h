// Opening, making and removing files below directories that a hostile party may write in. Nothing
// here ever follows a symlink, and nothing leaves the directory that a descriptor names (openat2(2)
// with RESOLVE_BENEATH, RESOLVE_NO_SYMLINKS, RESOLVE_NO_MAGICLINKS). All descriptors are
// close-on-exec. Thread-safety: as the system calls.
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/unique_fd.h"
#include "temenos/error.h"

namespace temenos::sys {

// Opens `path` (relative) below `dir_fd`; `flags` as open(2).
Result<UniqueFd> open_beneath(int dir_fd, const std::string& path, int flags, mode_t mode = 0);

// Opens an absolute path that has no symlink in it, with O_PATH: what was resolved once stays what
// it is.
Result<UniqueFd> open_canonical(const std::string& path);

// The absolute path with every symlink resolved (realpath(3)).
Result<std::string> resolve(const std::string& path);

// True when both descriptors name the same file (device and inode).
Result<bool> same_file(int a, int b);
Result<struct stat> stat_fd(int fd);

// Makes the directory `path` (relative, several levels) below `dir_fd` with `mode` where missing
// and returns it (O_PATH). A level that exists must be a directory.
Result<UniqueFd> make_directories(int dir_fd, const std::string& path, mode_t mode);

// As make_directories for an absolute path from "/"; symlinks in existing levels are refused.
Result<UniqueFd> make_directories(const std::string& absolute, mode_t mode);

// Writes a new file (O_EXCL) below `dir_fd`.
Result<void> write_new_file(int dir_fd, const std::string& path, std::string_view bytes,
                            mode_t mode);

// Writes all bytes, over short writes and EINTR.
Result<void> write_all(int fd, std::string_view bytes);

// The whole file, at most `limit` bytes (more is Code::kExhausted).
Result<std::string> read_all(int fd, std::size_t limit);
Result<std::string> read_path(const std::string& path, std::size_t limit);

// Names in a directory, without "." and "..", sorted; at most `limit` (more is Code::kExhausted).
Result<std::vector<std::string>> list_names(int dir_fd, std::size_t limit);

// Removes `name` below `dir_fd` with all in it. The content may be hostile: any depth, any number
// of entries; memory and descriptors stay bounded. Modes are not touched: for what a box made, call
// it as root of the box's user namespace (CAP_DAC_OVERRIDE). A missing `name` is no error.
Result<void> remove_tree(int dir_fd, const std::string& name);

// An anonymous file with `bytes`, sealed against change, at offset 0.
Result<UniqueFd> sealed_memory(const char* name, std::string_view bytes);

}  // namespace temenos::sys
