#include "tests/integration/tmux.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>

namespace temenos::testing {
namespace {

constexpr int kStartMs = 60'000;
constexpr int kPollMs = 30;  // a screen cannot be waited for, only looked at

std::string quoted(const std::string& text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

std::string without_newline(std::string text) {
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

}  // namespace

bool same_modes(const termios& a, const termios& b) {
  return a.c_iflag == b.c_iflag && a.c_oflag == b.c_oflag && a.c_cflag == b.c_cflag &&
         a.c_lflag == b.c_lflag && memcmp(a.c_cc, b.c_cc, sizeof a.c_cc) == 0;
}

Tmux::Tmux(const TestHost& host, const std::string& script, int columns, int rows) {
  directory_ = host.dir("tmux");
  host.file("tmux/conf",
            "set -g remain-on-exit on\nset -g status off\n"
            "set -g default-terminal screen-256color\nset -s escape-time 0\n"
            "set -g set-titles off\n");
  // It says that it is there, since tmux sets the modes before it runs anything, and waits until
  // its window is known as it was before.
  const std::string gate = directory_ + "/gate";
  const std::string there = directory_ + "/there";
  if (mkfifo(gate.c_str(), 0600) != 0 || mkfifo(there.c_str(), 0600) != 0) abort();
  gate_ = UniqueFd(open(gate.c_str(), O_RDWR | O_CLOEXEC));
  const UniqueFd is_there(open(there.c_str(), O_RDWR | O_CLOEXEC));
  host.file("tmux/script",
            "echo there >" + quoted(there) + "\nread -r go <" + quoted(gate) + "\n" + script);
  std::string environment = "env -i";
  for (const auto& variable :
       host.environment({{"TEMENOS", temenos_program()}, {"COLORTERM", "truecolor"}})) {
    environment += " " + quoted(variable);
  }
  base_ = environment + " tmux -u -S " + quoted(directory_ + "/socket") + " -f " +
          quoted(directory_ + "/conf") + " ";
  run("new-session -d -x " + std::to_string(columns) + " -y " + std::to_string(rows) + " -c " +
      quoted(host.path() + "/empty") + " " + quoted("exec sh " + quoted(directory_ + "/script")));
  tty_ = UniqueFd(open(variable("pane_tty").c_str(), O_RDWR | O_NOCTTY | O_CLOEXEC));
  shell_ = atoi(variable("pane_pid").c_str());
  pollfd begun{is_there.get(), POLLIN, 0};
  if (!tty_ || shell_ <= 0 || poll(&begun, 1, kStartMs) != 1) abort();
  modes_at_start_ = modes();
  if (write(gate_.get(), "go\n", 3) != 3) abort();
}

Tmux::~Tmux() {
  tty_.reset();
  run("kill-server 2>/dev/null");
  wait_for_descendants(30);
}

std::string Tmux::run(const std::string& command) const { return host_shell(base_ + command); }

void Tmux::key(const std::string& name) const { run("send-keys " + quoted(name)); }

void Tmux::type(const std::string& text) const { run("send-keys -l -- " + quoted(text)); }

void Tmux::paste(const std::string& text) const {
  std::ofstream(directory_ + "/buffer") << text;
  run("load-buffer " + quoted(directory_ + "/buffer"));
  run("paste-buffer -p -r");
}

void Tmux::resize(int columns, int rows) const {
  run("resize-window -x " + std::to_string(columns) + " -y " + std::to_string(rows));
}

std::string Tmux::screen() const { return run("capture-pane -p"); }

std::string Tmux::variable(const std::string& name) const {
  return without_newline(run("display-message -p '#{" + name + "}'"));
}

bool Tmux::wait_until(const std::function<bool()>& done) const {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!done()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    poll(nullptr, 0, kPollMs);
  }
  return true;
}

bool Tmux::wait_for(const std::string& text) const {
  return wait_until([&] { return screen().find(text) != std::string::npos; });
}

termios Tmux::modes() const {
  termios out{};
  if (tcgetattr(tty_.get(), &out) != 0) abort();
  return out;
}

pid_t Tmux::program() const {
  pid_t pid = 0;
  wait_until([&] {
    pid = atoi(host_shell("pgrep -P " + std::to_string(shell_) + " -x temenos").c_str());
    return pid > 0;
  });
  return pid;
}

void Tmux::hang_up() const { run("kill-session"); }

}  // namespace temenos::testing
