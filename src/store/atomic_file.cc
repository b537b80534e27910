#include "store/atomic_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "base/text.h"
#include "base/try.h"
#include "sys/file_sys.h"

namespace temenos::store {

Result<void> write_atomically(int dir_fd, const std::string& name, std::string_view bytes) {
  const std::string temporary = ".new-" + random_hex(8);
  auto written = [&]() -> Result<void> {
    const UniqueFd file =
        TRY(sys::open_beneath(dir_fd, temporary, O_WRONLY | O_CREAT | O_EXCL, 0600));
    TRY(sys::write_all(file.get(), bytes));
    if (fsync(file.get()) != 0) return fail_errno(errno, "writing " + escape(name));
    if (renameat(dir_fd, temporary.c_str(), dir_fd, name.c_str()) != 0) {
      return fail_errno(errno, "replacing " + escape(name));
    }
    const UniqueFd directory = TRY(sys::open_beneath(dir_fd, ".", O_RDONLY | O_DIRECTORY));
    if (fsync(directory.get()) != 0) return fail_errno(errno, "writing the directory");
    return {};
  }();
  if (written) return written;
  unlinkat(dir_fd, temporary.c_str(), 0);
  return tl::make_unexpected(std::move(written).error().with_hint(kDiskHint));
}

}  // namespace temenos::store
