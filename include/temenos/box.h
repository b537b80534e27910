// A box: the place where untrusted code runs (ARCHITECTURE.md). The object is a handle; a box with
// a name may have many, in many processes.
//
// Boxes come from a BoxManager (box_manager.h). One with a name lives until it is stopped and its
// files until it is removed. One without lives as long as its handle: when that is destroyed, or
// its process dies, the box ends and leaves nothing.
//
// Nothing that comes out of a box is trusted here, and nothing of it should be by the caller:
// output, names and contents are hostile bytes. Files are read and written by the box itself, with
// its own rights: no path of these calls means anything on the host.
//
// A call that needs the box starts it when it has a name and does not live. When the box ends
// during a call, the Error is kBoxDied and says why. What is done is written to the box's audit log
// (audit.jsonl in its data dir; only of boxes with names).
//
// Thread-safety: none; one thread at a time a handle. For several at once, a handle each
// (BoxManager::find); cancel_fd of an exec may be made readable by any thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "temenos/error.h"
#include "temenos/exec.h"
#include "temenos/exec_result.h"
#include "temenos/files.h"

namespace temenos {

// Files that host programs run by themselves and that appeared while a box could write there.
struct NewAutoexec {
  std::string path;  // on the host; escape before printing
  std::string reason;
};

// What a box left in writable directories of the host that a host program would obey by itself.
// To be shown to the person who works there.
struct BoxEnd {
  std::vector<NewAutoexec> made;     // or changed
  std::vector<std::string> indexes;  // git indexes not to be used, a sentence each: why, what to do
  // What could not be looked at, or was not protected to the end; a sentence each.
  std::vector<std::string> unseen;
  bool empty() const { return made.empty() && indexes.empty() && unseen.empty(); }
};

// A box belongs to a project or, with an empty scope, to the user.
struct BoxName {
  std::string scope;  // the project's directory: absolute, no symlink in it
  std::string name;   // 1 to 63 letters, digits, '.', '_', '-'; a letter or digit first
  bool operator==(const BoxName&) const = default;
};

class Box {
 public:
  struct Impl;  // the library's own
  explicit Box(std::unique_ptr<Impl> impl);
  Box(Box&&) noexcept;
  Box& operator=(Box&&) noexcept;
  ~Box();

  // ---- life
  // With a name: starts it unless it lives, and connects. Of two handles that do so at once, one
  // starts it.
  Result<void> start();
  // Ends it, waits until its last process is gone, and looks at what it wrote. Its files stay, if
  // it has a name. One that had ended before is looked at all the same, unless somebody has.
  Result<BoxEnd> stop();
  // Somebody keeps it alive. It may end at any moment.
  bool is_alive() const;
  // The look at an earlier life that ended without stop(), made when this handle started the box.
  const BoxEnd& found_at_start() const;
  // Why it ended, as far as a call of this handle has found out: a sentence and what to do, and the
  // same as one word for programs ("out_of_memory"; docs/cli.md has them all).
  const std::optional<Error>& ended() const;
  std::string_view end_reason() const;
  // To be shown to the person who started it, a line each.
  const std::vector<std::string>& warnings() const;

  // ---- commands
  // Returns when the exec is over, even with an open stdin. A stdout or stderr that is closed by
  // its reader ends the exec, as SIGPIPE would; one that fails otherwise (a full disk) ends it and
  // is an error. A command that was ended because its box ran out of memory has a result: SIGKILL,
  // `oom`, and what was captured until then.
  Result<ExecResult> exec(const ExecRequest& request, const ExecIo& io = {});
  // The environment of a command: the box's defaults, then the policy's, then `extra`; "K=V".
  std::vector<std::string> environment(const std::map<std::string, std::string>& extra = {}) const;
  // Where a command starts that names no directory.
  const std::string& default_directory() const;

  // ---- files
  // At most `max` bytes from `offset`, of a regular file.
  Result<std::string> read_file(std::string_view path, std::uint64_t max, std::uint64_t offset = 0);
  Result<void> write_file(std::string_view path, std::string_view data,
                          const WriteOptions& options = {});
  // At most `max_entries`, in no order; more is an error.
  Result<std::vector<DirEntry>> list(std::string_view path, std::size_t max_entries = 100'000);
  Result<FileInfo> stat(std::string_view path, bool follow = false);
  // The content of directory `path`, or the file `path`, as a tar archive (needs `tar` in the box).
  // Blocks until all is written to `fd`.
  Result<void> tar_out(std::string_view path, int fd);
  // Extracts the archive read from `fd` into directory `path`; what is made belongs to the box's
  // root.
  Result<void> tar_in(std::string_view path, int fd);

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace temenos
