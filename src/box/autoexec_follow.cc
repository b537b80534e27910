#include "box/autoexec_follow.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <set>

#include "base/text.h"
#include "base/try.h"
#include "box/dir_entries.h"
#include "box/git_worktree.h"
#include "box/host_dirs.h"
#include "box/link_walk.h"
#include "sys/file_sys.h"

namespace temenos::box {
namespace {

// Of one look at one tree. An ordinary repository takes some hundred steps and ten names.
constexpr std::size_t kMaxSteps = 200'000;
constexpr std::size_t kMaxNames = 10'000;  // in protected directories
constexpr std::size_t kMaxAdded = 1'000;   // each becomes a mount or two
constexpr std::size_t kMaxConfigs = 1'000;
constexpr std::size_t kMaxInside = 8;     // levels of a protected directory
constexpr std::size_t kMaxIncludes = 10;  // as git's own
constexpr std::size_t kMaxTrouble = 20;
constexpr std::size_t kMaxPathFile = 8192;  // a ".git" file
constexpr std::size_t kMaxHooks = 200;      // of a repository around the tree

std::string base_name(const std::string& path) { return path.substr(path.rfind('/') + 1); }

// What git has to write in its own directory is never made read-only: nobody keeps programs there.
bool git_writes(const std::string& name) {
  static const std::set<std::string> names = {
      "objects", "refs",     "logs",      "packed-refs", "modules", "worktrees",  "lfs",
      "shallow", "rr-cache", "sequencer", "annex",       "svn",     "description"};
  return names.contains(name) || name.starts_with("index") || name.starts_with("sharedindex") ||
         name.starts_with("rebase-") ||
         name.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ_") == std::string::npos;
}

class Follower {
 public:
  Follower(AutoexecScan& scan, int root, const std::string& source, FileReader& reader)
      : scan_(scan), root_(root), source_(source), reader_(reader), home_(home_directory()) {}

  void run() {
    for (const auto& path : scan_.closed) trouble(shown(path) + " cannot be read");
    const auto by_rule = scan_.found;
    // All share the bounds: the tree's own, what is around it and the user's come before all that a
    // box may have added deeper.
    for (const auto& [path, found] : by_rule) {
      if (is_own(path)) follow_rule(path, found);
    }
    follow_own_repository();
    follow_repositories_around();
    follow_configurations_of_user();
    for (const auto& [path, found] : by_rule) {
      if (!is_own(path)) follow_rule(path, found);
    }
    std::vector<std::string> others(scan_.git_directories.begin(), scan_.git_directories.end());
    std::sort(others.begin(), others.end(), [](const auto& left, const auto& right) {
      return std::pair(std::count(left.begin(), left.end(), '/'), left) <
             std::pair(std::count(right.begin(), right.end(), '/'), right);
    });
    for (const auto& git : others) follow_configurations(git, worktrees_of(git));
  }

 private:
  struct Configuration {
    std::string path;                // below the root, or absolute
    std::string git;                 // its git directory, likewise; empty: the user's
    std::vector<std::string> bases;  // where relative words start
    std::size_t depth = 0;           // of includes
    std::string real = {};           // where `path` leads
  };

  // Directly in the tree or in its ".git".
  static bool is_own(const std::string& path) {
    return path.find('/', path.starts_with(".git/") ? 5 : 0) == path.npos;
  }

  void follow_rule(const std::string& path, const AutoexecScan::Found& found) {
    if (found.only_reported) return;
    if (found.symlink) {
      lead(path, found.reason, path, true);
    } else {
      look_for_other_name(path);
      follow_inside(path, found.reason);
    }
  }

  void trouble(const std::string& text) {
    if (said_.size() > kMaxTrouble || !said_.insert(text).second) return;
    scan_.trouble.push_back(said_.size() <= kMaxTrouble
                                ? text
                                : escape(source_) + " has more that cannot be looked at");
  }
  std::string shown(const std::string& path) const {
    return escape(path.starts_with('/') ? path : source_ + "/" + path);
  }

  // Where `path` leads: what is met and reached on the way joins what was found.
  LinkWalk lead(const std::string& path, const std::string& reason, const std::string& by,
                bool directories) {
    LinkWalk walk = walk_links(root_, source_, path, steps_);
    for (const auto& [link, text] : walk.links) {
      if (link == path || is_covered(link)) continue;
      scan_.found.emplace(
          link, AutoexecScan::Found{
                    .reason = reason, .symlink = true, .link_target = text, .named_by = by});
    }
    switch (walk.end) {
      case LinkWalk::End::kFile:
        protect(walk.path, reason, by);
        break;
      case LinkWalk::End::kDirectory:
        if (directories && protect(walk.path, reason, by)) follow_inside(walk.path, reason);
        break;
      case LinkWalk::End::kUnknown:
        trouble(steps_ == 0 ? "symlinks and git configurations in " + escape(source_) +
                                  " lead to more than can be followed"
                            : shown(path) + " leads further than can be followed");
        break;
      case LinkWalk::End::kOther:
      case LinkWalk::End::kMissing:
      case LinkWalk::End::kOutside:
        break;
    }
    return walk;
  }

  // False: it is protected already, or must not be.
  bool protect(const std::string& path, const std::string& reason, const std::string& by) {
    if (scan_.found.contains(path) || is_covered(path) || is_written_by_git(path)) return false;
    if (path == "." || holds_git_directory(path)) {
      trouble(shown(by) + " leads to all of " + shown(path) + " (" + escape(reason) + ")");
      return false;
    }
    if (++added_ > kMaxAdded) {
      trouble("more than " + std::to_string(kMaxAdded) + " files in " + escape(source_) +
              " are named by git configurations or led to by symlinks");
      return false;
    }
    scan_.found.emplace(path, AutoexecScan::Found{.reason = reason, .named_by = by});
    look_for_other_name(path);
    return true;
  }

  // A mount protects one name of a file; a box may have given it another in an earlier run.
  void look_for_other_name(const std::string& path) {
    const auto fd = sys::open_beneath(root_, path, O_PATH | O_NOFOLLOW);
    struct stat st{};
    if (!fd || fstat(fd->get(), &st) != 0 || !S_ISREG(st.st_mode) || st.st_nlink < 2) return;
    trouble(shown(path) + " has another name (a hard link), by which it can be written");
  }

  bool is_covered(const std::string& path) const {
    for (auto at = path.find('/'); at != path.npos; at = path.find('/', at + 1)) {
      const auto above = scan_.found.find(path.substr(0, at));
      if (above != scan_.found.end() && above->second.is_protected()) return true;
    }
    return false;
  }

  bool is_written_by_git(const std::string& path) const {
    for (std::string directory = path; directory != ".";) {
      const std::string child = directory;
      directory = directory_of(directory);
      if (scan_.git_directories.contains(directory)) return git_writes(base_name(child));
    }
    return false;
  }

  bool holds_git_directory(const std::string& path) const {
    const auto next = scan_.git_directories.lower_bound(path);
    if (next != scan_.git_directories.end() && *next == path) return true;
    const auto below = scan_.git_directories.lower_bound(path + "/");
    return below != scan_.git_directories.end() && below->starts_with(path + "/");
  }

  // The symlinks in a protected directory; a file protects nothing but itself.
  void follow_inside(const std::string& directory, const std::string& reason,
                     std::size_t level = 0) {
    const auto entries = read_entries(root_, directory, names_);
    if (!entries) {
      const int err = entries.error().sys_errno;
      if (err != ENOTDIR && err != ENOENT) {
        trouble("the symlinks in " + shown(directory) + " cannot be read");
      }
      return;
    }
    if (entries->size() > names_ || level == kMaxInside) {
      trouble(shown(directory) + " is too large or deep to look for symlinks in it");
      return;
    }
    names_ -= entries->size();
    for (const auto& entry : *entries) {
      const std::string path = join_path(directory, entry.name);
      if (entry.type == DT_LNK) lead(path, reason, path, true);
      if (entry.type == DT_DIR) follow_inside(path, reason, level + 1);
      if (entry.type == DT_REG) look_for_other_name(path);
    }
  }

  // Where git runs what the configuration of `git` names.
  std::vector<std::string> worktrees_of(const std::string& git) const {
    std::vector<std::string> out{base_name(git) == ".git" ? directory_of(git) : git};
    // One of another name belongs to a ".git" file somewhere; which one only that would say. (Those
    // in a ".git", of submodules, name their working tree themselves.)
    if (base_name(git) != ".git" && git.find(".git/") == git.npos) {
      out.insert(out.end(), scan_.worktrees.begin(), scan_.worktrees.end());
    }
    // Which linked worktree belongs to it only their files would say; all are taken.
    const auto linked = scan_.git_directories.lower_bound(git + "/worktrees/");
    const bool has_linked =
        linked != scan_.git_directories.end() && linked->starts_with(git + "/worktrees/");
    if (has_linked || git.find("/worktrees/") != git.npos) {
      out.insert(out.end(), scan_.worktrees.begin(), scan_.worktrees.end());
    }
    return out;
  }

  void follow_configurations(const std::string& git, const std::vector<std::string>& bases) {
    for (const char* name : {"config", "config.worktree"}) {
      follow_configuration({join_path(git, name), git, bases});
    }
  }

  Result<UniqueFd> open_configuration(const LinkWalk& walk) const {
    constexpr int kFlags = O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC;
    if (walk.end != LinkWalk::End::kOutside) return sys::open_beneath(root_, walk.path, kFlags);
    // A box may have named it: looked at before it is opened, because opening a device can do
    // things.
    const UniqueFd pinned(open(walk.path.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
    struct stat st{};
    if (!pinned || fstat(pinned.get(), &st) != 0) return fail_errno(errno, "opening it");
    if (!S_ISREG(st.st_mode)) return fail(Code::kInvalidArgument, "it is no file");
    const std::string again = "/proc/self/fd/" + std::to_string(pinned.get());
    UniqueFd fd(open(again.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
    if (!fd) return fail_errno(errno, "opening it");
    return fd;
  }

  void follow_configuration(Configuration configuration) {
    const auto walk = walk_links(root_, source_, configuration.path, steps_);
    if (walk.end == LinkWalk::End::kMissing || walk.path.empty()) return;
    if (!seen_.insert(walk.path + '\0' + configuration.git).second) return;
    configuration.real = walk.path;
    if (configuration.depth > kMaxIncludes || seen_.size() > kMaxConfigs) {
      trouble("there are more git configurations in " + escape(source_) + " than are read");
      return;
    }
    const auto file = open_configuration(walk);
    auto answer = file ? reader_.read(git::FileKind::kConfig, file->get())
                       : Result<git::Answer>(tl::make_unexpected(file.error()));
    if (!answer) {
      trouble("the git configuration " + shown(configuration.real) + " cannot be read (" +
              answer.error().to_string() + ")");
      return;
    }
    if (!answer->complete) {
      trouble("the git configuration " + shown(configuration.real) +
              " is too large to be read whole");
    }
    const auto& strings = answer->strings;
    for (std::size_t i = 0; i < strings.size(); i += 2) {
      if (strings[i] == "core.worktree") {
        configuration.bases.push_back(strings[i + 1].starts_with('/')
                                          ? strings[i + 1]
                                          : join_path(configuration.git, strings[i + 1]));
      } else if (strings[i] == "extensions.objectformat" && strings[i + 1] == "sha256") {
        scan_.sha256.insert(configuration.git);
      }
    }
    for (std::size_t i = 0; i < strings.size(); i += 2) {
      follow_word(configuration, strings[i], strings[i + 1]);
    }
  }

  // Where git, or the shell that it starts, could look for a word.
  std::set<std::string> places(const Configuration& configuration, const std::string& word,
                               bool include) const {
    if (word.starts_with("~/")) return {home_ + word.substr(1)};
    std::set<std::string> out;
    const bool absolute = word.starts_with('/');
    if (absolute) out.insert(word);
    if (absolute && include) return out;
    std::vector<std::string> bases{directory_of(configuration.path)};
    if (!include) {
      if (!configuration.git.empty()) bases.push_back(configuration.git);
      // "$HOME/x", "$PWD/x" and "$(git rev-parse --show-toplevel)/x" come as "/x".
      if (absolute) bases.push_back(home_);
      bases.insert(bases.end(), configuration.bases.begin(), configuration.bases.end());
    }
    const auto relative = word.find_first_not_of('/');
    if (relative == word.npos) return out;
    for (const auto& base : bases) out.insert(join_path(base, word.substr(relative)));
    return out;
  }

  void follow_word(const Configuration& configuration, const std::string& key,
                   const std::string& word) {
    if (key == "core.worktree" || key == "extensions.objectformat") return;
    const bool include =
        key == "include.path" || (key.starts_with("includeif.") && key.ends_with(".path"));
    const bool directories = key == "core.hookspath" || key == "init.templatedir";
    const std::string reason = "git: named by " + key + " in " + shown(configuration.real);
    for (const auto& place : places(configuration, word, include)) {
      lead(place, reason, configuration.real, directories);
      if (include) {
        follow_configuration(
            {place, configuration.git, configuration.bases, configuration.depth + 1});
      }
    }
  }

  // The git directory of the tree itself: ".git", the tree, or what a ".git" file names (a
  // submodule's, or one of `git init --separate-git-dir`), wherever that lies.
  void follow_own_repository() {
    for (const char* git : {".git", "."}) {
      if (scan_.git_directories.contains(git)) follow_configurations(git, worktrees_of(git));
    }
    const auto file = sys::open_beneath(root_, ".git", O_RDONLY | O_NONBLOCK | O_NOFOLLOW);
    struct stat st{};
    if (!file || fstat(file->get(), &st) != 0 || !S_ISREG(st.st_mode)) return;
    constexpr std::string_view kPrefix = "gitdir: ";
    std::string named = sys::read_all(file->get(), kMaxPathFile).value_or("");
    if (!named.starts_with(kPrefix)) return;
    named.erase(0, kPrefix.size());
    while (!named.empty() && named.back() == '\n') named.pop_back();
    const auto walk = walk_links(root_, source_, named, steps_);
    if (walk.path.starts_with('/')) {
      follow_repository(walk.path, ".");
    } else if (!walk.path.empty()) {
      follow_configurations(walk.path, {"."});
    }
  }

  // The tree may itself be part of a working tree whose repository lies elsewhere.
  void follow_repositories_around() {
    if (const auto linked = find_git_worktree(source_)) follow_repository(linked->common.path, ".");
    // A linked worktree's own git directory: the hashes are those of the repository.
    const auto worktrees = source_.rfind("/worktrees/");
    if (scan_.git_directories.contains(".") && worktrees != source_.npos) {
      follow_repository(source_.substr(0, worktrees), ".");
    }
    for (std::string above = source_; above.size() > 1;) {
      const auto slash = above.rfind('/');
      above = slash == 0 ? "/" : above.substr(0, slash);
      const std::string git = join_absolute(above, ".git");
      struct stat st{};
      if (lstat(git.c_str(), &st) != 0 || !S_ISDIR(st.st_mode)) continue;
      around_.push_back(above);
      follow_repository(git, above);
      const std::string relative = source_.substr(above == "/" ? 1 : above.size() + 1);
      follow_repository(git + "/modules/" + relative, ".");
    }
  }

  static std::string join_absolute(const std::string& directory, const std::string& name) {
    return directory == "/" ? "/" + name : directory + "/" + name;
  }

  void follow_repository(const std::string& git, const std::string& base) {
    follow_configurations(git, {base});
    const auto hooks = sys::open_canonical(git + "/hooks");
    if (!hooks) return;
    const auto entries = read_entries(hooks->get(), ".", kMaxHooks);
    if (!entries || entries->size() > kMaxHooks) {
      trouble("the symlinks in " + escape(git) + "/hooks cannot be read");
      return;
    }
    for (const auto& entry : *entries) {
      const std::string path = git + "/hooks/" + entry.name;
      if (entry.type == DT_LNK) lead(path, "git: " + escape(path) + " leads to it", path, true);
    }
  }

  void follow_configurations_of_user() {
    std::vector<std::string> bases(scan_.worktrees.begin(), scan_.worktrees.end());
    bases.insert(bases.end(), around_.begin(), around_.end());
    if (bases.empty()) return;
    const char* xdg = getenv("XDG_CONFIG_HOME");
    const std::string config = xdg != nullptr && xdg[0] == '/' ? xdg : home_ + "/.config";
    for (const auto& path :
         {std::string("/etc/gitconfig"), home_ + "/.gitconfig", config + "/git/config"}) {
      lead(path, "git: the user's configuration", path, false);
      follow_configuration({path, "", bases});
    }
  }

  AutoexecScan& scan_;
  const int root_;
  const std::string& source_;
  FileReader& reader_;
  const std::string home_;
  std::size_t steps_ = kMaxSteps;
  std::size_t names_ = kMaxNames;
  std::size_t added_ = 0;
  std::set<std::string> seen_;  // configurations, each once for a git directory
  std::set<std::string> said_;
  std::vector<std::string> around_;  // working trees that the tree lies in
};

}  // namespace

namespace {

// Another one when the name was given to another file: a program of the host that saves by renaming
// takes our read-only mount off the name (rename(2) detaches those of other mount namespaces).
// Writing in place does not, and is none of the box's doing. Inode numbers are used again at once;
// together with the time of birth they are not.
std::string identity_of(int root, const std::string& path) {
  const auto fd = sys::open_beneath(root, path, O_PATH | O_NOFOLLOW);
  struct statx st{};
  if (!fd || statx(fd->get(), "", AT_EMPTY_PATH, STATX_INO | STATX_BTIME, &st) != 0) return "";
  std::string born;
  if ((st.stx_mask & STATX_BTIME) != 0) {
    born = std::to_string(st.stx_btime.tv_sec) + "." + std::to_string(st.stx_btime.tv_nsec);
  }
  return std::to_string(st.stx_ino) + " " + born;
}

}  // namespace

Result<AutoexecScan> look_for_autoexec(int directory, const std::string& source, FileReader& reader,
                                       const AutoexecScan* before) {
  auto scan = TRY(scan_autoexec(directory));
  if (before != nullptr) {
    scan.git_directories.insert(before->git_directories.begin(), before->git_directories.end());
    scan.worktrees.insert(before->worktrees.begin(), before->worktrees.end());
  }
  Follower(scan, directory, source, reader).run();
  for (auto& [path, found] : scan.found) {
    if (found.is_protected()) found.state = identity_of(directory, path);
  }
  return scan;
}

}  // namespace temenos::box
