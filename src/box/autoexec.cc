#include "box/autoexec.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <deque>
#include <memory>
#include <set>

#include "base/text.h"
#include "base/try.h"
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
// Trees of tools' own that hold very many files; a nested repository in them is seen by nobody's
// prompt.
const std::set<std::string> kNotEntered = {"node_modules", "objects", ".venv", "__pycache__",
                                           "target"};

struct Entry {
  std::string name;
  unsigned char type;
};

struct DirCloser {
  void operator()(DIR* dir) const { closedir(dir); }
};

Result<std::vector<Entry>> read_entries(int root, const std::string& path, std::size_t limit) {
  UniqueFd fd = TRY(sys::open_beneath(root, path, O_RDONLY | O_DIRECTORY));
  const std::unique_ptr<DIR, DirCloser> dir(fdopendir(fd.get()));
  if (!dir) return fail_errno(errno, "reading " + escape(path));
  fd.release();
  std::vector<Entry> entries;
  while (const dirent* entry = readdir(dir.get())) {
    const std::string name = entry->d_name;
    if (name == "." || name == "..") continue;
    if (entries.size() > limit) break;
    entries.push_back({name, entry->d_type});
  }
  return entries;
}

// Where git would take a directory for a repository (gitrepository-layout(5)): a HEAD, and either
// its own objects and refs or the name of a directory that has them.
bool is_git_directory(const std::vector<Entry>& entries) {
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
  const auto slash = path.rfind('/');
  const auto parent = sys::open_beneath(
      root, slash == std::string::npos ? "." : path.substr(0, slash), O_PATH | O_DIRECTORY);
  if (!parent) return "";
  char target[PATH_MAX];
  const ssize_t n =
      readlinkat(parent->get(), path.substr(slash == std::string::npos ? 0 : slash + 1).c_str(),
                 target, sizeof target);
  return n > 0 ? std::string(target, static_cast<std::size_t>(n)) : "";
}

void match(int root, const std::string& directory, const std::vector<Entry>& entries,
           AutoexecScan& scan) {
  const bool git = is_git_directory(entries);
  const bool named_git = directory == ".git" || directory.ends_with("/.git");
  for (const auto& entry : entries) {
    for (const auto& rule : autoexec_rules()) {
      if (rule.name != entry.name || (rule.in_git_directory && !git && !named_git)) continue;
      // A .git directory is judged by what is in it; a .git file (or link) names another one.
      if (rule.name == ".git" && entry.type == DT_DIR) continue;
      const std::string path = directory == "." ? entry.name : directory + "/" + entry.name;
      AutoexecScan::Found found{rule.reason, entry.type == DT_LNK, ""};
      if (found.symlink) found.link_target = read_link(root, path);
      scan.found.emplace(path, std::move(found));
      break;
    }
  }
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
      out.push_back(
          {kind == "gitdir", line.substr(name_at, word_end - name_at), line.substr(reason_at)});
    }
    return out;
  }();
  return rules;
}

Result<AutoexecScan> scan_autoexec(int directory) {
  AutoexecScan scan;
  struct Pending {
    std::string path;
    std::size_t depth;
  };
  // Breadth first: what lies near the root is seen even when the tree is beyond the bound.
  std::deque<Pending> pending{{".", 0}};
  std::size_t names = 0;
  while (!pending.empty()) {
    const Pending next = std::move(pending.front());
    pending.pop_front();
    const auto entries = read_entries(directory, next.path, kMaxNames - names);
    if (!entries) {
      // Gone meanwhile, or closed to us; the root itself must be readable.
      if (next.path == ".") return tl::make_unexpected(entries.error());
      continue;
    }
    names += entries->size();
    match(directory, next.path, *entries, scan);
    if (names > kMaxNames) {
      scan.complete = false;
      return scan;
    }
    for (const auto& entry : *entries) {
      if (entry.type != DT_DIR || kNotEntered.contains(entry.name)) continue;
      if (next.depth == kMaxDepth) {
        scan.complete = false;
        continue;
      }
      pending.push_back(
          {next.path == "." ? entry.name : next.path + "/" + entry.name, next.depth + 1});
    }
  }
  return scan;
}

std::map<std::string, AutoexecScan::Found> new_autoexec(const AutoexecScan& before,
                                                        const AutoexecScan& after) {
  std::map<std::string, AutoexecScan::Found> out;
  for (const auto& [path, found] : after.found) {
    const auto old = before.found.find(path);
    if (old != before.found.end() && old->second == found) continue;
    // What lies in a directory that is new itself, or that was protected whole, needs no line of
    // its own.
    bool covered = false;
    for (auto at = path.find('/'); at != std::string::npos; at = path.find('/', at + 1)) {
      covered |= after.found.contains(path.substr(0, at));
    }
    if (!covered) out.emplace(path, found);
  }
  return out;
}

}  // namespace temenos::box
