// What of the host is seen in a box: binds, volumes, secret files; as data. Paths are absolute and
// lexically normal; the box layer resolves symlinks and checks sources again when it mounts.
//
// Thread-safety: plain values.
#pragma once

#include <cstdint>
#include <string>
#include <variant>

namespace temenos {

// Read is kept by the host kernel.
enum class Access { kRead, kWrite };

struct Mount {
  std::string source;  // on the host
  std::string target;  // in the box; empty when given to a Builder: the same as source
  Access access = Access::kRead;
  bool operator==(const Mount&) const = default;
};

struct DiskVolume {
  std::string host_dir;
  bool create = false;       // make host_dir when it is not there
  std::string allowed_root;  // host_dir must lie in it, after symlinks too; empty: anywhere
  bool operator==(const DiskVolume&) const = default;
};

struct MemoryVolume {
  std::int64_t size_mb = 0;  // MiB, from 1
  bool operator==(const MemoryVolume&) const = default;
};

struct VolumeMount {
  std::string target;
  Access access = Access::kRead;
  std::variant<DiskVolume, MemoryVolume> volume;
  bool operator==(const VolumeMount&) const = default;
};

// A file copied into the box's memory, never onto its disk.
struct SecretFile {
  std::string source;
  std::string target;
  bool operator==(const SecretFile&) const = default;
};

}  // namespace temenos
