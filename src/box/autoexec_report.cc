#include "box/autoexec_report.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>

#include "base/text.h"
#include "box/autoexec_follow.h"
#include "box/dir_entries.h"
#include "box/link_walk.h"
#include "sys/file_sys.h"

namespace temenos::box {
namespace {

constexpr std::size_t kMaxNames = 10'000;  // directly in a git directory
constexpr std::size_t kMaxIndexes = 1'000;

class IndexCheck {
 public:
  IndexCheck(int root, const std::string& source, const AutoexecScan& scan, FileReader& reader,
             BoxEnd& end)
      : root_(root), source_(source), scan_(scan), reader_(reader), end_(end) {}

  void run() {
    for (const auto& git : scan_.git_directories) {
      const auto entries = read_entries(root_, git, kMaxNames);
      if (!entries && entries.error().sys_errno == ENOENT) continue;
      if (!entries || entries->size() > kMaxNames) {
        report(git, "it cannot be listed");
        continue;
      }
      for (const auto& entry : *entries) {
        const bool index = entry.name == "index" || entry.name.starts_with("sharedindex.");
        if (index) check(git, join_path(git, entry.name));
      }
    }
  }

 private:
  git::FileKind kind(const std::string& git) const {
    // A linked worktree's is that of its repository, "" the one around the tree.
    const auto worktrees = git.rfind("/worktrees/");
    for (const auto& other : scan_.sha256) {
      const bool same =
          other == git || (worktrees != git.npos && other == git.substr(0, worktrees));
      if (same || (git == "." && other.starts_with('/'))) return git::FileKind::kIndexSha256;
    }
    return git::FileKind::kIndexSha1;
  }

  void check(const std::string& git, const std::string& path) {
    if (++checked_ > kMaxIndexes) {
      if (checked_ == kMaxIndexes + 1) report(path, "there are too many");
      return;
    }
    const auto file = sys::open_beneath(root_, path, O_RDONLY | O_NONBLOCK);
    if (!file && file.error().sys_errno == ENOENT) return;
    const auto answer = file ? reader_.read(kind(git), file->get())
                             : Result<git::Answer>(tl::make_unexpected(file.error()));
    if (!answer) {
      report(path, answer.error().to_string());
    } else if (!answer->strings.empty()) {
      add(path, "holds the name '" + escape(answer->strings[0]) +
                    "', which git never puts there and 'git restore' would write");
    }
  }

  void report(const std::string& path, const std::string& why) {
    add(path, "cannot be judged (" + why + ")");
  }

  void add(const std::string& path, const std::string& what) {
    const std::string git = shown(directory_of(path));
    end_.indexes.push_back("the git index " + shown(path) + " " + what + ": run 'rm -f " + git +
                           "/index " + git +
                           "/sharedindex.*' and 'git reset' before any other git command there");
  }

  std::string shown(const std::string& path) const { return escape(join_path(source_, path)); }
  const int root_;
  const std::string& source_;
  const AutoexecScan& scan_;
  FileReader& reader_;
  BoxEnd& end_;
  std::size_t checked_ = 0;
};

}  // namespace

void report_autoexec(int directory, const std::string& source, const AutoexecScan& before,
                     const std::string& libexec, BoxEnd& end) {
  FileReader reader(libexec);
  const auto after = look_for_autoexec(directory, source, reader, &before);
  if (!after) {
    end.unseen.push_back("could not look into " + escape(source) + ": " +
                         after.error().to_string());
    return;
  }
  if (!after->complete && before.complete) {
    end.unseen.push_back(escape(source) + " has become too large to look at whole");
  }
  for (const auto& text : after->trouble) {
    // What was said before the box started is not said again.
    const auto& old = before.trouble;
    if (std::find(old.begin(), old.end(), text) == old.end()) end.unseen.push_back(text);
  }
  for (const auto& [path, found] : new_autoexec(before, *after)) {
    const auto old = before.found.find(path);
    if (old != before.found.end() && old->second.is_protected() && found.is_protected()) {
      end.unseen.push_back(
          escape(source + "/" + path) +
          " was replaced by a program on the host while the box ran, and from then "
          "on the box could write it (" +
          found.reason + ")");
    } else {
      end.made.push_back({source + "/" + path, found.reason});
    }
  }
  IndexCheck(directory, source, *after, reader, end).run();
}

}  // namespace temenos::box
