#include "box/link_walk.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <climits>
#include <deque>

#include "base/text.h"
#include "policy/paths.h"
#include "sys/file_sys.h"

namespace temenos::box {
namespace {

constexpr int kMaxLinks = 40;  // as the kernel's own (path_resolution(7))

class Walker {
 public:
  Walker(int root, const std::string& source, std::size_t& steps)
      : root_(root), source_(source), steps_(steps) {}

  LinkWalk run(const std::string& path) {
    if (path.starts_with('/')) {
      if (!enter(path)) return std::move(walk_);
    } else {
      push_front(path);
    }
    while (!rest_.empty()) {
      const std::string name = std::move(rest_.front());
      rest_.pop_front();
      if (name.empty() || name == ".") continue;
      if (!step(name)) return std::move(walk_);
    }
    return end(at_ == "." ? LinkWalk::End::kDirectory : last_, at_);
  }

 private:
  LinkWalk end(LinkWalk::End what, std::string path) {
    walk_.end = what;
    walk_.path = std::move(path);
    return std::move(walk_);
  }

  void push_front(const std::string& path) {
    auto pieces = split(path, '/');
    rest_.insert(rest_.begin(), pieces.begin(), pieces.end());
  }

  std::string with_rest(std::string path) const {
    for (const auto& name : rest_) path += "/" + name;
    return path;
  }

  // False: walk_ has its end.
  bool step(const std::string& name) {
    if (name == "..") {
      if (at_ == ".") return enter(with_rest(source_ + "/.."));
      at_ = directory_of(at_);
      last_ = LinkWalk::End::kDirectory;
      return true;
    }
    if (steps_ == 0) return done(LinkWalk::End::kUnknown, "");
    --steps_;
    const std::string next = join_path(at_, name);
    const auto fd = sys::open_beneath(root_, next, O_PATH | O_NOFOLLOW);
    if (!fd) {
      const bool missing = fd.error().sys_errno == ENOENT || fd.error().sys_errno == ENOTDIR;
      return missing ? done(LinkWalk::End::kMissing, missing_path(next))
                     : done(LinkWalk::End::kUnknown, next);
    }
    struct stat st{};
    if (fstat(fd->get(), &st) != 0) return done(LinkWalk::End::kUnknown, next);
    if (S_ISLNK(st.st_mode)) return follow(fd->get(), next);
    at_ = next;
    last_ = S_ISREG(st.st_mode)   ? LinkWalk::End::kFile
            : S_ISDIR(st.st_mode) ? LinkWalk::End::kDirectory
                                  : LinkWalk::End::kOther;
    return true;
  }

  bool follow(int link, const std::string& path) {
    char text[PATH_MAX];
    const ssize_t n = readlinkat(link, "", text, sizeof text);
    if (n <= 0) return done(LinkWalk::End::kUnknown, path);
    const std::string target(text, static_cast<std::size_t>(n));
    walk_.links.emplace_back(path, target);
    if (walk_.links.size() > kMaxLinks) return done(LinkWalk::End::kUnknown, path);
    if (target.starts_with('/')) return enter(with_rest(target));
    push_front(target);
    return true;
  }

  // Goes on from an absolute path: below the root when it says so itself, else where the host's own
  // links lead.
  bool enter(const std::string& absolute) {
    rest_.clear();
    at_ = ".";
    std::deque<std::string> names;
    for (auto& name : split(absolute, '/')) {
      // No link of the box's lies above the root, so ".." there is what it seems.
      if (name.empty() || name == ".") continue;
      if (name == ".." && below(names)) {
        if (names.size() == depth())
          names.pop_back();
        else
          names.push_back(name);
        continue;
      }
      if (name == "..") {
        if (!names.empty()) names.pop_back();
        continue;
      }
      names.push_back(std::move(name));
    }
    if (below(names)) {
      names.erase(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(depth()));
      rest_ = std::move(names);
      return true;
    }
    return enter_by_host(absolute);
  }

  bool enter_by_host(const std::string& absolute) {
    auto real = sys::resolve(absolute);
    bool exists = real.has_value();
    if (!exists) {
      // What is not there yet could be made when its directory is below the root after all.
      const auto slash = absolute.rfind('/');
      const auto parent = sys::resolve(slash == 0 ? "/" : absolute.substr(0, slash));
      if (!parent) return done(LinkWalk::End::kOutside, "");
      real = *parent + absolute.substr(slash);
    }
    if (!is_at_or_below(*real, source_)) {
      return done(LinkWalk::End::kOutside, exists ? *real : "");
    }
    push_front(real->substr(source_.size()));
    return true;
  }

  std::size_t depth() const {
    std::size_t depth = 0;
    for (const auto& name : split(source_, '/')) depth += name.empty() ? 0 : 1;
    return depth;
  }
  bool below(const std::deque<std::string>& names) const {
    std::size_t at = 0;
    for (const auto& name : split(source_, '/')) {
      if (name.empty()) continue;
      if (at == names.size() || names[at++] != name) return false;
    }
    return true;
  }

  std::string missing_path(const std::string& first) const {
    std::string path = first;
    for (const auto& name : rest_) {
      if (name.empty() || name == ".") continue;
      path = name == ".." ? directory_of(path) : join_path(path, name);
    }
    return path;
  }

  bool done(LinkWalk::End what, std::string path) {
    walk_.end = what;
    walk_.path = std::move(path);
    return false;
  }

  const int root_;
  const std::string& source_;
  std::size_t& steps_;
  std::string at_ = ".";
  LinkWalk::End last_ = LinkWalk::End::kDirectory;
  std::deque<std::string> rest_;
  LinkWalk walk_;
};

}  // namespace

LinkWalk walk_links(int root, const std::string& source, const std::string& path,
                    std::size_t& steps) {
  return Walker(root, source, steps).run(path);
}

std::string join_path(const std::string& directory, const std::string& name) {
  return directory == "." ? name : directory + "/" + name;
}

std::string directory_of(const std::string& path) {
  const auto slash = path.rfind('/');
  return slash == std::string::npos ? "." : path.substr(0, slash);
}

}  // namespace temenos::box
