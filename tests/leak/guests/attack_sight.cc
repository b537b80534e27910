#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <climits>
#include <set>

#include "guests/attack.h"
#include "guests/report.h"

namespace temenos::leak {
namespace {

std::vector<std::string> names_in(const std::string& path) {
  std::vector<std::string> out;
  DIR* dir = opendir(path.c_str());
  if (dir == nullptr) return out;
  while (const dirent* entry = readdir(dir)) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") out.push_back(name);
  }
  closedir(dir);
  std::sort(out.begin(), out.end());
  return out;
}

bool read_some(const std::string& path, std::string* out) {
  const int fd = open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) return false;
  out->resize(65536);
  const ssize_t n = read(fd, out->data(), out->size());
  const int err = errno;
  close(fd);
  errno = err;
  out->resize(n > 0 ? static_cast<std::size_t>(n) : 0);
  return n >= 0;
}

// "ok" only when what was read holds `text`; a route that leads elsewhere is no leak.
void try_read(const char* how, const std::string& path, const std::string& text) {
  std::string content;
  if (!read_some(path, &content)) {
    report_call(how, path, -1);
  } else {
    report(how, path, content.find(text) != std::string::npos ? "ok" : "something else");
  }
}

std::vector<std::string> process_dirs() {
  std::vector<std::string> out{"/proc/self", "/proc/thread-self"};
  for (const auto& name : names_in("/proc")) {
    if (isdigit(static_cast<unsigned char>(name[0]))) out.push_back("/proc/" + name);
  }
  return out;
}

void try_links(const std::string& text, const std::string& dir, const std::string& secret) {
  const std::string mine = dir + "/leak-links-" + std::to_string(getpid());
  if (mkdir(mine.c_str(), 0777) != 0) {
    report_call("mkdir", mine, -1);
    return;
  }
  std::string climb;
  for (long i = std::count(mine.begin(), mine.end(), '/') + 4; i > 0; --i) climb += "../";
  const std::string above = secret.substr(0, secret.rfind('/'));
  const std::string name = secret.substr(secret.rfind('/') + 1);
  const struct {
    const char* name;
    std::string target, suffix;
  } links[] = {{"absolute", secret, ""},
               {"relative", climb + secret.substr(1), ""},
               {"directory", above, "/" + name},
               {"root", "/", secret},
               {"own root", "/proc/self/root", secret},
               {"init's root", "/proc/1/root", secret},
               {"cwd", "/proc/self/cwd/" + climb + secret.substr(1), ""},
               {"chain 1", "chain 2", ""},
               {"chain 2", "absolute", ""}};
  for (const auto& link : links) {
    const std::string path = mine + "/" + link.name;
    (void)!symlink(link.target.c_str(), path.c_str());
  }
  for (const auto& link : links) {
    try_read("own symlink", mine + "/" + link.name + link.suffix, text);
    const std::string hard = mine + "/hard to " + link.name;
    if (linkat(AT_FDCWD, (mine + "/" + link.name + link.suffix).c_str(), AT_FDCWD, hard.c_str(),
               AT_SYMLINK_FOLLOW) == 0) {
      try_read("hard link", hard, text);
    }
  }
  if (link(secret.c_str(), (mine + "/hard").c_str()) == 0) {
    try_read("hard link", mine + "/hard", text);
  }
}

void look_for_text(const std::string& text) {
  for (const auto& process : process_dirs()) {
    for (const char* name :
         {"environ", "cmdline", "comm", "status", "maps", "mountinfo", "cgroup"}) {
      // Those files of ours hold the text because it is our argument.
      if (name == std::string("cmdline")) continue;
      std::string content;
      if (!read_some(process + "/" + name, &content)) continue;
      report("text", process + "/" + name,
             content.find(text) != std::string::npos ? "ok" : "absent");
    }
  }
}

void look_at_descriptors() {
  for (const auto& process : process_dirs()) {
    std::string cmdline;
    (void)read_some(process + "/cmdline", &cmdline);
    const std::string name = cmdline.substr(0, cmdline.find('\0'));
    std::string fds;
    for (const auto& fd : names_in(process + "/fd")) {
      char target[PATH_MAX];
      const ssize_t n = readlink((process + "/fd/" + fd).c_str(), target, sizeof target);
      if (n < 0 && errno == ENOENT) continue;  // of this very look: closed by now
      const std::string text(target, n > 0 ? static_cast<std::size_t>(n) : 0);
      fds += (fds.empty() ? "" : " ") + fd + "=" + text;
    }
    report("descriptors", process + " " + name, fds);
  }
}

}  // namespace

int attack_secret(const Words& words) {
  if (words.size() < 3) return 2;
  const std::string& text = words[0];
  const std::string& dir = words[1];
  for (std::size_t i = 2; i < words.size(); ++i) {
    const std::string& path = words[i];
    try_read("directly", path, text);
    for (const auto& process : process_dirs()) {
      try_read("through root", process + "/root" + path, text);
      try_read("through cwd", process + "/cwd" + path, text);
      try_read("through cwd", process + "/cwd/../../../../.." + path, text);
      for (const auto& fd : names_in(process + "/fd")) {
        const std::string through = process + "/fd/" + fd;
        try_read("through a descriptor", through + path, text);
        try_read("through a descriptor", through + "/../../../../.." + path, text);
      }
    }
    try_links(text, dir, path);
  }
  return 0;
}

int look_around(const Words& words) {
  if (words.empty()) return 2;
  for (std::size_t i = 1; i < words.size(); ++i) {
    struct stat st{};
    report_call("exists", words[i], lstat(words[i].c_str(), &st));
  }
  look_for_text(words[0]);
  look_at_descriptors();
  for (const char* dir : {"/home", "/root", "/home/user", "/var/lib", "/tmp", "/dev/shm", "/run"}) {
    std::string all;
    for (const auto& name : names_in(dir)) all += (all.empty() ? "" : " ") + name;
    report("listing", dir, all);
  }
  char host[256] = "";
  gethostname(host, sizeof host - 1);
  report("hostname", "-", host);
  return 0;
}

}  // namespace temenos::leak
