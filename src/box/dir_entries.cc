#include "box/dir_entries.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <memory>

#include "base/text.h"
#include "base/try.h"
#include "sys/file_sys.h"

namespace temenos::box {
namespace {

struct DirCloser {
  void operator()(DIR* dir) const { closedir(dir); }
};

}  // namespace

Result<std::vector<DirEntry>> read_entries(int root, const std::string& path, std::size_t limit) {
  UniqueFd fd = TRY(sys::open_beneath(root, path, O_RDONLY | O_DIRECTORY));
  const std::unique_ptr<DIR, DirCloser> dir(fdopendir(fd.get()));
  if (!dir) return fail_errno(errno, "reading " + escape(path));
  const int dir_fd = fd.release();
  std::vector<DirEntry> entries;
  while (const dirent* entry = readdir(dir.get())) {
    const std::string name = entry->d_name;
    if (name == "." || name == "..") continue;
    if (entries.size() > limit) break;
    unsigned char type = entry->d_type;
    struct stat st{};
    // Not every file system says.
    if (type == DT_UNKNOWN && fstatat(dir_fd, name.c_str(), &st, AT_SYMLINK_NOFOLLOW) == 0) {
      type = static_cast<unsigned char>(IFTODT(st.st_mode));
    }
    entries.push_back({name, type});
  }
  return entries;
}

}  // namespace temenos::box
