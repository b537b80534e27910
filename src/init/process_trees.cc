#include "init/process_trees.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>

namespace temenos::init {
namespace {

constexpr int kMaxDepth = 16;  // of groups that a guest may have made below or beside ours
constexpr std::size_t kMaxPids = 65536;

// False: it could not be read although it may be there. What has gone is empty.
bool read_file(int dir, const char* path, std::string& text) {
  text.clear();
  const UniqueFd fd(openat(dir, path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!fd) return errno == ENOENT;
  char part[4096];
  ssize_t count = 0;
  while (text.size() < kMaxPids * 8 && (count = read(fd.get(), part, sizeof part)) > 0) {
    text.append(part, static_cast<std::size_t>(count));
  }
  return count >= 0 || errno == ESRCH || errno == ENODEV;
}

// One pid a line. What is not a pid above 1 is passed over: 0 stands for processes of other
// namespaces.
void parse_pids(const std::string& text, std::vector<pid_t>& pids) {
  const char* at = text.data();
  const char* const end = at + text.size();
  while (at < end && pids.size() < kMaxPids) {
    pid_t pid = 0;
    const auto [next, error] = std::from_chars(at, end, pid);
    if (error == std::errc{} && pid > 1 && pid != getpid()) pids.push_back(pid);
    at = std::find(next, end, '\n');
    if (at < end) ++at;
  }
}

struct ProcessLine {
  pid_t pid = 0;
  pid_t parent = 0;
  pid_t session = 0;
  bool dead = false;  // and waits to be reaped
};

// False: some process may be missing that was there all the time.
bool all_processes(std::vector<ProcessLine>& lines) {
  DIR* proc = opendir("/proc");
  if (proc == nullptr) return false;
  bool complete = true;
  std::string stat;
  while (const dirent* entry = readdir(proc)) {
    ProcessLine line;
    line.pid = static_cast<pid_t>(std::strtol(entry->d_name, nullptr, 10));
    if (line.pid <= 1 || line.pid == getpid()) continue;
    const std::string path = std::string(entry->d_name) + "/stat";
    complete = read_file(dirfd(proc), path.c_str(), stat) && complete;
    // The name in parentheses may hold anything, ')' and spaces included.
    const auto end = stat.rfind(')');
    char state = 0;
    int group = 0;
    if (end == std::string::npos || sscanf(stat.c_str() + end + 1, " %c %d %d %d", &state,
                                           &line.parent, &group, &line.session) != 4) {
      continue;
    }
    line.dead = state == 'Z' || state == 'X';
    lines.push_back(line);
  }
  closedir(proc);
  return complete;
}

bool contains(const std::vector<pid_t>& pids, pid_t pid) {
  return std::find(pids.begin(), pids.end(), pid) != pids.end();
}

void add_descendants(const std::vector<ProcessLine>& lines, std::vector<pid_t>& pids) {
  for (bool grew = true; grew;) {
    grew = false;
    for (const auto& line : lines) {
      if (line.dead || !contains(pids, line.parent) || contains(pids, line.pid)) continue;
      pids.push_back(line.pid);
      grew = true;
    }
  }
}

}  // namespace

ProcessTrees::ProcessTrees(UniqueFd group_root) : root_(std::move(group_root)) {}

UniqueFd ProcessTrees::take_pids_cgroup() {
  // Only in a box: on a host the same paths are the host's own.
  if (getpid() == 1) {
    UniqueFd root(open("/sys/fs/cgroup/pids", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (root && faccessat(root.get(), "cgroup.procs", W_OK, 0) == 0) {
      umount2("/sys/fs/cgroup/pids", MNT_DETACH);
      umount2("/sys/fs/cgroup", MNT_DETACH);
      return root;
    }
  }
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  return UniqueFd();
}

bool ProcessTrees::add(std::uint32_t id) {
  Tree tree;
  tree.name = "x" + std::to_string(id);
  tree.procs = tree.name + "/cgroup.procs";
  if (root_ && mkdirat(root_.get(), tree.name.c_str(), 0700) != 0) return false;
  trees_[id] = std::move(tree);
  return true;
}

const char* ProcessTrees::group_file(std::uint32_t id) const {
  return root_ ? trees_.at(id).procs.c_str() : nullptr;
}

void ProcessTrees::set_leader(std::uint32_t id, pid_t leader) { trees_[id].leader = leader; }

// All pids in the group `name` below `parent` and in groups below that; `skip_trees` leaves out
// groups that are some exec's own.
void ProcessTrees::collect(int parent, const char* name, int depth, bool skip_trees,
                           Found& found) const {
  UniqueFd dir(openat(parent, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
  if (!dir && errno == ENOENT) return;
  std::string text;
  DIR* listing = nullptr;
  // Too deep is a guest's doing: then no round is the last one, and session ends the box.
  if (!dir || depth > kMaxDepth || !read_file(dir.get(), "cgroup.procs", text) ||
      (listing = fdopendir(dir.get())) == nullptr) {
    found.certain = false;
    return;
  }
  (void)dir.release();  // the DIR owns it
  parse_pids(text, found.pids);
  while (const dirent* entry = readdir(listing)) {
    if (entry->d_type != DT_DIR || entry->d_name[0] == '.') continue;
    const bool own =
        skip_trees && std::any_of(trees_.begin(), trees_.end(), [entry](const auto& item) {
          return item.second.name == entry->d_name;
        });
    if (!own) collect(dirfd(listing), entry->d_name, depth + 1, false, found);
  }
  closedir(listing);
}

// Processes fork and die while it goes on, so that a child can be younger than the list and its
// parent be gone before its own line is read. But whoever is in the tree has an ancestor that is a
// child of ours, and such a child cannot go during the walk, since only we reap it: it is seen
// alive, and the walk finds something, or it is seen dead, and the walk is not certain.
ProcessTrees::Found ProcessTrees::walk(const Tree& tree) const {
  Found found;
  if (tree.leader == 0) return found;  // not started; and 0 is the session of what lies outside
  std::vector<ProcessLine> lines;
  found.certain = all_processes(lines);
  auto taken = [this, &tree](const ProcessLine& line) {
    for (const auto& [id, other] : trees_) {
      if (&other == &tree) continue;
      if (other.leader != 0 && (line.pid == other.leader || line.session == other.leader))
        return true;
      if (contains(other.left, line.pid)) return true;
    }
    return false;
  };
  for (const auto& line : lines) {
    const bool ours = line.parent == getpid() && !taken(line);
    if (line.dead) {
      found.certain = found.certain && !ours;
    } else if (ours || line.pid == tree.leader || line.session == tree.leader) {
      found.pids.push_back(line.pid);
    }
  }
  add_descendants(lines, found.pids);
  return found;
}

ProcessTrees::Found ProcessTrees::find(const Tree& tree) const {
  if (!root_) return walk(tree);
  Found found;
  collect(root_.get(), tree.name.c_str(), 0, false, found);
  return found;
}

std::vector<pid_t> ProcessTrees::members(std::uint32_t id) { return find(trees_.at(id)).pids; }

void ProcessTrees::signal(std::uint32_t id, int signal) {
  for (const pid_t pid : members(id)) kill(pid, signal);
}

bool ProcessTrees::kill_round(std::uint32_t id) {
  Tree& tree = trees_.at(id);
  if (root_ && !tree.frozen) {
    // A brake on forks while the rounds go on; it may overshoot, so the rounds decide.
    const UniqueFd limit(
        openat(root_.get(), (tree.name + "/pids.max").c_str(), O_WRONLY | O_CLOEXEC));
    tree.frozen = limit && write(limit.get(), "0", 1) == 1;
  }
  Found found = find(tree);
  if (root_) collect(root_.get(), ".", 0, true, found);
  for (const pid_t pid : found.pids) kill(pid, SIGKILL);
  return found.pids.empty() && found.certain;
}

void ProcessTrees::kill_all() {
  std::vector<ProcessLine> lines;
  (void)all_processes(lines);  // who is missing is met by a later round
  std::vector<pid_t> pids{getpid()};
  add_descendants(lines, pids);
  for (std::size_t i = 1; i < pids.size(); ++i) kill(pids[i], SIGKILL);
}

bool ProcessTrees::try_remove(const Tree& tree) const {
  return unlinkat(root_.get(), tree.name.c_str(), AT_REMOVEDIR) == 0 || errno == ENOENT;
}

std::vector<pid_t> ProcessTrees::finish(std::uint32_t id) {
  Tree& tree = trees_.at(id);
  // An empty group can be removed, and that is the cheapest way to ask whether it is empty.
  if (root_ && try_remove(tree)) {
    trees_.erase(id);
    return {};
  }
  tree.left = members(id);
  if (tree.left.empty() && !root_) {
    trees_.erase(id);
    return {};
  }
  tree.finished = true;
  tree.leader = 0;
  return tree.left;
}

void ProcessTrees::sweep() {
  for (auto at = trees_.begin(); at != trees_.end();) {
    Tree& tree = at->second;
    bool gone = false;
    if (tree.finished && root_) {
      gone = try_remove(tree);
    } else if (tree.finished) {
      std::erase_if(tree.left, [](pid_t pid) { return kill(pid, 0) != 0; });
      gone = tree.left.empty();
    }
    at = gone ? trees_.erase(at) : std::next(at);
  }
}

}  // namespace temenos::init
