// temenos selftest: attacks a box on the user's own host and says what held. Needs no source tree;
// it makes a small project and a secret in a temporary directory and removes both.
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>

#include "base/scope_exit.h"
#include "base/text.h"
#include "base/try.h"
#include "cli/command.h"
#include "codec/json.h"
#include "jail/dialer_jail.h"
#include "jail/front_jail.h"
#include "jail/session_jail.h"
#include "policy/names.h"
#include "sys/file_sys.h"
#include "sys/process_sys.h"
#include "temenos/box_manager.h"
#include "temenos/policy_builder.h"

namespace temenos::cli {
namespace {

struct Row {
  std::string name;
  bool ok = false;
  std::string detail;  // what was seen instead
};

// A script for /bin/sh in the box that prints "held" when the promise held. Each runs three times:
// as the box's root, as an unprivileged id, and in namespaces of its own making, where it has every
// capability.
struct Attack {
  const char* name;
  const char* script;
};
constexpr Attack kAttacks[] = {
    {"/usr cannot be written, also after a remount",
     // gVisor may say that a chmod worked that the host has refused: what counts is the mode.
     "mode=$(stat -c %a /usr/bin/env); mount -o remount,rw /usr 2>/dev/null; "
     "touch /usr/bin/planted 2>/dev/null || mv /usr/bin/env /usr/bin/env2 2>/dev/null || { "
     "chmod 777 /usr/bin/env 2>/dev/null; test \"$(stat -c %a /usr/bin/env)\" = $mode && "
     "echo held; }"},
    {"/etc/passwd cannot be written",
     "mount -o remount,rw /etc 2>/dev/null; (echo x >>/etc/passwd) 2>/dev/null || echo held"},
    {"the host's secrets in /etc are not there",
     "test -e /etc/shadow || test -e /etc/ssl/private || test -e /etc/ssh || test -e "
     "/etc/machine-id || echo held"},
    {"a host file that is not mounted cannot be reached",
     "for p in \"$SECRET\" /proc/*/root\"$SECRET\" /proc/*/cwd\"$SECRET\" \"$PROJECT/link\"; do "
     "cat \"$p\" 2>/dev/null && exit; done; echo held"},
    {"no variable of the host is in any process",
     "cat /proc/*/environ 2>/dev/null | grep -q temenos-canary || echo held"},
    {"there is no network but loopback",
     "test \"$(ls /sys/class/net 2>/dev/null)\" = lo || "
     "test \"$(tail -n +3 /proc/net/dev | grep -v lo: | wc -l)\" = 0 && echo held"},
    {"the project's git configuration cannot be changed",
     "cd \"$PROJECT\" && mount -o remount,rw .git/config 2>/dev/null; (echo x >>.git/config) "
     "2>/dev/null || "
     "mv .git .git2 2>/dev/null || rm -rf .git/hooks/pre-commit 2>/dev/null || "
     "mv .git/hooks .git/h2 2>/dev/null || echo held"},
    {"a read-only mount stays read-only",
     "mount -o remount,rw \"$READONLY\" 2>/dev/null; touch \"$READONLY/planted\" 2>/dev/null || "
     "echo held"},
};

// Bounds as their programs give them, smaller.
constexpr unsigned kJailFds = 64;
constexpr std::uint64_t kJailFile = 4096;

class Selftest {
 public:
  explicit Selftest(Platform platform) : platform_(platform) {}

  Result<std::vector<Row>> run();

 private:
  Result<void> make_directory();
  Result<void> make_project();
  Result<Box> start();
  void attack(Box& box);
  void check_host_files(Box& box);
  void check_exec(Box& box);
  void check_jail(const char* name, Result<void> (*enter)(),
                  std::vector<jail::JailProbe> (*probe)());
  void check_jails();
  void add(std::string name, bool ok, std::string detail = {}) {
    rows_.push_back({std::move(name), ok, ok ? "" : std::move(detail)});
  }
  std::string in_box(Box& box, const std::vector<std::string>& argv, int timeout_ms = 20'000);

  Platform platform_;
  std::string directory_;
  std::vector<Row> rows_;
};

Result<void> Selftest::make_directory() {
  // In /var/tmp: on a real file system more often than /tmp, and idmapped mounts need one.
  std::string path = "/var/tmp/temenos-selftest-XXXXXX";
  if (mkdtemp(path.data()) == nullptr)
    return fail_errno(errno, "cannot make a directory in /var/tmp");
  directory_ = TRY(sys::resolve(path));
  return {};
}

Result<void> Selftest::make_project() {
  const UniqueFd top = TRY(sys::open_canonical(directory_));
  TRY(sys::make_directories(top.get(), "project/.git/hooks", 0755));
  TRY(sys::make_directories(top.get(), "readonly", 0755));
  TRY(sys::write_new_file(top.get(), "project/.git/config", "[core]\n", 0644));
  TRY(sys::write_new_file(top.get(), "project/.git/HEAD", "ref: refs/heads/main\n", 0644));
  TRY(sys::write_new_file(top.get(), "project/.git/hooks/pre-commit", "#!/bin/sh\n", 0755));
  TRY(sys::write_new_file(top.get(), "secret", "temenos-secret\n", 0600));
  if (symlinkat("../secret", top.get(), "project/link") != 0) return fail_errno(errno, "symlink");
  return {};
}

Result<Box> Selftest::start() {
  auto manager = TRY(BoxManager::open());
  const auto policy = TRY(Policy::Builder()
                              .network(NetworkMode::kNone)
                              .read(directory_ + "/readonly")
                              .platform(platform_)
                              .build());
  return manager.run(policy, directory_ + "/project");
}

std::string Selftest::in_box(Box& box, const std::vector<std::string>& argv, int timeout_ms) {
  ExecRequest request;
  request.argv = argv;
  request.env = box.environment({{"SECRET", directory_ + "/secret"},
                                 {"PROJECT", directory_ + "/project"},
                                 {"READONLY", directory_ + "/readonly"}});
  request.timeout = std::chrono::milliseconds(timeout_ms);
  const auto result = box.exec(request);
  if (!result) return result.error().to_string();
  return result->stdout_data + result->stderr_data;
}

void Selftest::attack(Box& box) {
  struct {
    const char* name;
    std::vector<std::string> prefix;
  } const attackers[] = {
      {"box root", {}},
      {"uid 1000 without capabilities",
       {"setpriv", "--reuid=1000", "--regid=1000", "--clear-groups", "--inh-caps=-all",
        "--bounding-set=-all"}},
      {"root of namespaces it made", {"unshare", "-Urmn"}},
  };
  for (const auto& attack : kAttacks) {
    Row row{attack.name, true, ""};
    for (const auto& attacker : attackers) {
      std::vector<std::string> argv = attacker.prefix;
      argv.insert(argv.end(), {"/bin/sh", "-c", attack.script});
      const std::string output = in_box(box, argv);
      if (output == "held\n") continue;
      row.ok = false;
      row.detail +=
          std::string(row.detail.empty() ? "" : "; ") + attacker.name + ": " + escape(output);
    }
    rows_.push_back(std::move(row));
  }
}

void Selftest::check_host_files(Box& box) {
  const std::string project = directory_ + "/project";
  in_box(box, {"/bin/sh", "-c",
               "cd \"$PROJECT\" && cp /bin/true made && chown 33:33 made; chmod 6755 made; mknod "
               "dev c 1 3"});
  struct stat st{};
  const bool made = lstat((project + "/made").c_str(), &st) == 0;
  add("what a box writes in the project has no setuid bit", made && (st.st_mode & 06000) == 0);
  add("... and belongs to the project's owner", made && st.st_uid == geteuid());
  add("... and is no device", access((project + "/dev").c_str(), F_OK) != 0);
  in_box(box,
         {"/bin/sh", "-c", "cd \"$PROJECT\" && mkdir -p .vscode && echo '{}' >.vscode/tasks.json"});
}

void Selftest::check_exec(Box& box) {
  add("a command's output comes back", in_box(box, {"/bin/echo", "hello"}) == "hello\n");
  ExecRequest request;
  request.argv = {"/bin/sh", "-c", "setsid sleep 300 & wait"};
  request.env = box.environment();
  request.timeout = std::chrono::milliseconds(500);
  const auto result = box.exec(request);
  const std::string left =
      in_box(box, {"/bin/sh", "-c", "grep -l sleep /proc/[0-9]*/comm | wc -l"});
  add("a timeout ends the whole tree, setsid or not", result && result->timed_out && left == "0\n",
      result ? "sleeping on: " + escape(left) : result.error().to_string());
}

// In a process of its own, as the programs do it: it is locked down, and then tries.
void Selftest::check_jail(const char* name, Result<void> (*enter)(),
                          std::vector<jail::JailProbe> (*probe)()) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return add(name, false, "there is no pipe to hear of it by");
  const UniqueFd reader(ends[0]);
  UniqueFd writer(ends[1]);
  const int out = writer.get();
  auto child = sys::start_in_namespaces(0, [out, enter, probe] {
    const auto jailed = enter();
    std::string text = jailed ? "" : jailed.error().to_string();
    if (jailed) {
      for (const auto& one : probe()) {
        if (!one.refused) text += one.attempt + " worked; ";
      }
      text += "done";
    }
    (void)!write(out, text.data(), text.size());
    return 0;
  });
  writer.reset();
  const auto text = sys::read_all(reader.get(), 65536);
  if (child) child->wait();
  add(name, text && *text == "done", text ? escape(*text) : "");
}

void Selftest::check_jails() {
  check_jail(
      "the session's jail refuses open, exec, socket, ptrace, kill",
      [] { return jail::enter_session_jail(); }, jail::probe_session_jail);
  check_jail(
      "the front's jail refuses open, exec, ptrace, kill, every socket, connect, more descriptors",
      []() -> Result<void> {
        TRY(jail::enter_front_jail(kJailFds, {}));
        return {};
      },
      jail::probe_front_jail);
  check_jail(
      "the dialer's jail refuses open, exec, ptrace, kill, listen, sockets but of TCP and UDP",
      [] { return jail::enter_dialer_jail(kJailFile); }, jail::probe_dialer_jail);
}

Result<std::vector<Row>> Selftest::run() {
  TRY(make_directory());
  const ScopeExit remove([this] {
    const auto top = sys::open_canonical("/var/tmp");
    if (top) (void)sys::remove_tree(top->get(), directory_.substr(directory_.rfind('/') + 1));
  });
  TRY(make_project());
  setenv("TEMENOS_SELFTEST", "temenos-canary", 1);
  {
    auto box = TRY(start());
    add("a box starts", true);
    attack(box);
    check_host_files(box);
    check_exec(box);
    const auto end = box.stop();
    add("a box ends and leaves nothing", end.has_value(), end ? "" : end.error().to_string());
    bool reported = false;
    if (end) {
      for (const auto& file : end->made) reported |= file.path == directory_ + "/project/.vscode";
    }
    add("a new .vscode in the project is reported", reported);
  }
  check_jails();
  return rows_;
}

}  // namespace

void add_selftest(CLI::App& app, Action& chosen) {
  auto* command = app.add_subcommand("selftest", "Attack a box on this host and say what held");
  auto as_json = std::make_shared<bool>(false);
  auto platform = std::make_shared<std::string>("auto");
  command->add_flag("--json", *as_json, "Print one JSON value");
  command->add_option("--platform", *platform, "On this platform: systrap, ptrace or kvm")
      ->type_name("NAME")
      ->check(CLI::IsMember({"systrap", "ptrace", "kvm"}));
  command->footer(
      "Exit status: 0 when everything held, 1 when something did not, 125 when no box starts.");
  command->callback([as_json, platform, &chosen] {
    chosen = [as_json, platform]() -> Result<int> {
      const auto rows = TRY(Selftest(TRY(parse_enum<Platform>(*platform, "--platform"))).run());
      std::size_t failed = 0;
      boost::json::array list;
      for (const auto& row : rows) {
        if (!row.ok) ++failed;
        list.push_back(
            boost::json::object{{"name", row.name}, {"ok", row.ok}, {"detail", row.detail}});
        if (!*as_json) {
          printf("  %-6s %s%s%s\n", row.ok ? "held" : "FAILED", row.name.c_str(),
                 row.detail.empty() ? "" : ": ", row.detail.c_str());
        }
      }
      if (*as_json) {
        puts(serialize_json(boost::json::object{{"rows", list}, {"ok", failed == 0}}).c_str());
      } else {
        printf("%zu held, %zu failed\n", rows.size() - failed, failed);
      }
      return failed == 0 ? 0 : 1;
    };
  });
}

}  // namespace temenos::cli
