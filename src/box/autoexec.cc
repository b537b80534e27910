#include "box/autoexec.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <deque>
#include <set>

#include "base/text.h"
#include "base/try.h"
#include "box/dir_entries.h"
#include "box/link_walk.h"
#include "sys/file_sys.h"

asm(".section .rodata\n"
    ".global temenos_autoexec_list\n"
    "temenos_autoexec_list:\n"
    ".incbin \"" TEMENOS_AUTOEXEC_LIST
    "\"\n"
    ".byte 0\n"
    ".previous\n");
extern "C" const char temenos_autoexec_list[];

namespace temenos::box {
namespace {

// 200,000 names take about 0.1 s; a tree beyond that is said to have been looked at in part.
constexpr std::size_t kMaxNames = 200'000;
constexpr std::size_t kMaxDepth = 24;
constexpr std::size_t kMaxStateNames = 1000;
// Trees of tools' own that can hold very many files. They are looked at last, so that a bound that
// they exceed cuts nothing else off.
const std::set<std::string> kLast = {"node_modules", ".venv", "__pycache__", "target"};

// Where git would take a directory for a repository (gitrepository-layout(5)): a HEAD, and either
// its own objects and refs or the name of a directory that has them.
bool is_git_directory(const std::vector<DirEntry>& entries) {
  bool head = false;
  bool objects = false;
  bool refs = false;
  bool common = false;
  for (const auto& entry : entries) {
    head |= entry.name == "HEAD";
    objects |= entry.name == "objects";
    refs |= entry.name == "refs";
    common |= entry.name == "commondir";
  }
  return head && ((objects && refs) || common);
}

std::string read_link(int root, const std::string& path) {
  const auto link = sys::open_beneath(root, path, O_PATH | O_NOFOLLOW);
  if (!link) return "";
  char target[PATH_MAX];
  const ssize_t n = readlinkat(link->get(), "", target, sizeof target);
  return n > 0 ? std::string(target, static_cast<std::size_t>(n)) : "";
}

// Changes when a file in `path` (or the file `path`) is made, written or replaced: the kernel keeps
// the time of change, and nobody can set it.
std::string state_of(int root, const std::string& path, unsigned char type) {
  std::vector<std::string> paths{path};
  if (type == DT_DIR) {
    const auto entries = read_entries(root, path, kMaxStateNames);
    if (!entries) return "";
    for (const auto& entry : *entries) paths.push_back(join_path(path, entry.name));
  }
  std::set<std::string> states;  // sorted
  for (const auto& one : paths) {
    const auto fd = sys::open_beneath(root, one, O_PATH | O_NOFOLLOW);
    struct stat st{};
    if (!fd || fstat(fd->get(), &st) != 0) continue;
    states.insert(one + " " + std::to_string(st.st_ino) + " " + std::to_string(st.st_ctim.tv_sec) +
                  "." + std::to_string(st.st_ctim.tv_nsec));
  }
  std::string out;
  for (const auto& state : states) out += state + "\n";
  return out;
}

void match(int root, const std::string& directory, const std::vector<DirEntry>& entries,
           AutoexecScan& scan) {
  const bool named_git = directory == ".git" || directory.ends_with("/.git");
  const bool git = named_git || is_git_directory(entries);
  if (git) scan.git_directories.insert(directory);
  for (const auto& entry : entries) {
    if (entry.name == ".git") scan.worktrees.insert(directory);
    for (const auto& rule : autoexec_rules()) {
      if (rule.name != entry.name || (rule.in_git_directory && !git)) continue;
      // A .git directory is judged by what is in it; a .git file (or link) names another one.
      if (rule.name == ".git" && entry.type == DT_DIR) continue;
      const std::string path = join_path(directory, entry.name);
      AutoexecScan::Found found{.reason = rule.reason, .only_reported = rule.only_reported};
      if (rule.only_reported) {
        found.state = state_of(root, path, entry.type);
      } else if (entry.type == DT_LNK) {
        found.symlink = true;
        found.link_target = read_link(root, path);
      }
      scan.found.emplace(path, std::move(found));
      break;
    }
  }
}

// git takes no path with ".git" in it for a submodule's, so nothing that it obeys lies in there.
bool is_object_store(const std::string& directory, const std::string& name) {
  return name == "objects" &&
         (directory == ".git" || directory.starts_with(".git/") || directory.ends_with("/.git") ||
          directory.find("/.git/") != directory.npos);
}

}  // namespace

const std::vector<AutoexecRule>& autoexec_rules() {
  static const std::vector<AutoexecRule> rules = [] {
    std::vector<AutoexecRule> out;
    for (const auto& line : split(temenos_autoexec_list, '\n')) {
      if (line.empty() || line[0] == '#') continue;
      auto word_end = line.find(' ');
      const std::string kind = line.substr(0, word_end);
      const auto name_at = line.find_first_not_of(' ', word_end);
      word_end = line.find(' ', name_at);
      const auto reason_at = line.find_first_not_of(' ', word_end);
      out.push_back({kind != "any", kind == "gitstate", line.substr(name_at, word_end - name_at),
                     line.substr(reason_at)});
    }
    return out;
  }();
  return rules;
}

namespace {

// What the rules name directly in `directory`, looked up by name: a box can put so many others
// beside them that no listing ends.
std::vector<DirEntry> named_entries(int root, const std::string& directory) {
  std::vector<DirEntry> out;
  for (const auto& rule : autoexec_rules()) {
    const auto fd = sys::open_beneath(root, join_path(directory, rule.name), O_PATH | O_NOFOLLOW);
    struct stat st{};
    if (!fd || fstat(fd->get(), &st) != 0) continue;
    const unsigned char type = S_ISDIR(st.st_mode) ? DT_DIR : S_ISLNK(st.st_mode) ? DT_LNK : DT_REG;
    out.push_back({rule.name, type});
  }
  return out;
}

class Walk {
 public:
  Walk(int root, AutoexecScan& scan) : root_(root), scan_(scan) {}

  // Breadth first from `start`: what lies near it is seen even when the tree is beyond the bound.
  Result<void> from(const std::string& start) {
    names_ = 0;
    std::deque<Pending> pending{{start, 0}};
    std::deque<Pending> last;
    while (!pending.empty()) {
      const Pending next = std::move(pending.front());
      pending.pop_front();
      const auto entries = read_entries(root_, next.path, kMaxNames - names_);
      if (entries) {
        enter(next, *entries, pending, last);
        if (names_ > kMaxNames) {
          scan_.complete = false;
          return {};
        }
      } else if (next.path == ".") {
        return tl::make_unexpected(entries.error());
      } else {
        const int err = entries.error().sys_errno;
        // Gone meanwhile, or something else now: the box did that, and the last look sees it.
        if (err != ENOENT && err != ENOTDIR && err != ELOOP) scan_.closed.insert(next.path);
      }
      if (pending.empty()) std::swap(pending, last);
    }
    return {};
  }

 private:
  struct Pending {
    std::string path;
    std::size_t depth;
  };

  void enter(const Pending& at, const std::vector<DirEntry>& entries, std::deque<Pending>& pending,
             std::deque<Pending>& last) {
    names_ += entries.size();
    match(root_, at.path, entries, scan_);
    for (const auto& entry : entries) {
      if (entry.type != DT_DIR || is_object_store(at.path, entry.name)) continue;
      if (at.path == "." && entry.name == ".git") continue;  // it had its own turn
      if (at.depth == kMaxDepth) {
        scan_.complete = false;
        continue;
      }
      (kLast.contains(entry.name) ? last : pending)
          .push_back({join_path(at.path, entry.name), at.depth + 1});
    }
  }

  int root_;
  AutoexecScan& scan_;
  std::size_t names_ = 0;
};

}  // namespace

Result<AutoexecScan> scan_autoexec(int directory) {
  AutoexecScan scan;
  // The tree's own names and its repository's first, each whatever else a box has put there.
  match(directory, ".", named_entries(directory, "."), scan);
  Walk walk(directory, scan);
  const auto git = sys::open_beneath(directory, ".git", O_PATH | O_DIRECTORY | O_NOFOLLOW);
  if (git) {
    match(directory, ".git", named_entries(directory, ".git"), scan);
    TRY(walk.from(".git"));
  }
  TRY(walk.from("."));
  return scan;
}

std::map<std::string, AutoexecScan::Found> new_autoexec(const AutoexecScan& before,
                                                        const AutoexecScan& after) {
  std::map<std::string, AutoexecScan::Found> changed;
  for (const auto& [path, found] : after.found) {
    const auto old = before.found.find(path);
    const bool same = old != before.found.end() && old->second.symlink == found.symlink &&
                      old->second.link_target == found.link_target &&
                      old->second.state == found.state;
    if (!same) changed.emplace(path, found);
  }
  std::map<std::string, AutoexecScan::Found> out;
  for (const auto& [path, found] : changed) {
    // What lies in a directory that is new itself, or that was protected whole, needs no line of
    // its own, and neither does what something new names.
    bool covered = !found.named_by.empty() && changed.contains(found.named_by);
    for (auto at = path.find('/'); at != std::string::npos; at = path.find('/', at + 1)) {
      const std::string above = path.substr(0, at);
      const auto old = before.found.find(above);
      covered |=
          changed.contains(above) || (old != before.found.end() && old->second.is_protected());
    }
    if (!covered) out.emplace(path, found);
  }
  return out;
}

}  // namespace temenos::box
