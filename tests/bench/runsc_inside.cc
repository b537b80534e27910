#include "tests/bench/runsc_inside.h"

#include <fcntl.h>
#include <grp.h>
#include <linux/rtnetlink.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <span>
#include <string_view>

#include "base/try.h"
#include "egress/plan.h"
#include "netns/netlink.h"
#include "netns/setup.h"
#include "sys/file_sys.h"

namespace temenos::bench {
namespace {

constexpr std::size_t kMaxCommand = 8192;
constexpr char kStateOfBox[] = "--root=/run/runsc";
constexpr char kStateOfOurs[] = "--root=/run/bench";

struct Reply {
  int status = 0;  // of wait(2), or -1
  double ms = 0;
  std::uint16_t ports[2] = {0, 0};
  char output[128] = {};
};

// How a command is run.
constexpr char kPlainly = '-';
constexpr char kWithSocket = 's';  // as stdin: the box's init waits on it, and ends with its end
constexpr char kForOutput = 'o';
constexpr char kNoCommand = 'n';  // makes the plain network

// One command; `input` becomes its stdin. Its own messages go to `output`.
Reply run_command(std::string_view words, int input, int output = 2) {
  std::vector<char*> argv;
  std::string copy(words);
  for (std::size_t at = 0; at < copy.size(); at += strlen(copy.data() + at) + 1) {
    argv.push_back(copy.data() + at);
  }
  argv.push_back(nullptr);
  char path[] = "PATH=/";
  char* const environment[] = {path, nullptr};
  Reply reply;
  const auto begin = std::chrono::steady_clock::now();
  const pid_t pid = vfork();
  if (pid == 0) {
    dup2(input, 0);
    dup2(output, 1);
    execve(argv[0], argv.data(), environment);
    _exit(127);
  }
  if (pid < 0 || waitpid(pid, &reply.status, 0) != pid) reply.status = -1;
  const std::chrono::duration<double, std::milli> spent = std::chrono::steady_clock::now() - begin;
  reply.ms = spent.count();
  return reply;
}

Reply run_for_output(std::string_view words, int input) {
  const UniqueFd file(memfd_create("output", MFD_CLOEXEC));
  Reply reply = run_command(words, input, file.get());
  (void)!pread(file.get(), reply.output, sizeof reply.output - 1, 0);
  return reply;
}

UniqueFd own_network() { return UniqueFd(open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC)); }

// What temenos-netsetup makes, without rules: this process ends up in the box's place.
Result<std::vector<Listening>> make_plain_network() {
  if (unshare(CLONE_NEWNET) != 0) return fail_errno(errno, "unshare");
  auto peer = TRY(netns::Netlink::open());
  const UniqueFd peer_ns = own_network();
  TRY(peer.link_up(1));
  // Where a box knocks once: nobody listens there, which is an answer.
  TRY(peer.add_address(1, std::string(egress::kSelfTest4), 32));
  if (unshare(CLONE_NEWNET) != 0) return fail_errno(errno, "unshare");
  auto box = TRY(netns::Netlink::open());
  auto ear = TRY(netns::Netlink::open(RTMGRP_LINK));
  TRY(box.link_up(1));
  TRY(box.make_pair({netns::kBoxLink, netns::kLinkIndex, netns::kBoxMac},
                    {netns::kRouterLink, netns::kLinkIndex, netns::kRouterMac}, egress::kMtu,
                    peer_ns.get()));
  TRY(peer.add_address(netns::kLinkIndex, RunscInside::kPeer, egress::kBoxPrefix4));
  TRY(box.add_address(netns::kLinkIndex, std::string(egress::kBox4), egress::kBoxPrefix4));
  TRY(peer.link_up(netns::kLinkIndex));
  TRY(box.link_up(netns::kLinkIndex));
  TRY(box.add_default_route(netns::kLinkIndex, RunscInside::kPeer));
  TRY(ear.wait_until_up(netns::kLinkIndex, 5000));
  const UniqueFd box_ns = own_network();
  if (setns(peer_ns.get(), CLONE_NEWNET) != 0) return fail_errno(errno, "setns");
  std::vector<Listening> out;
  for (int i = 0; i < 2; ++i) out.push_back(TRY(listen_at(RunscInside::kPeer)));
  if (setns(box_ns.get(), CLONE_NEWNET) != 0) return fail_errno(errno, "setns");
  return out;
}

bool answer(int socket, const Reply& reply, std::span<const int> fds = {}) {
  return sys::send_with_fds(socket, {reinterpret_cast<const char*>(&reply), sizeof reply}, fds)
      .has_value();
}

bool answer_with_network(int socket) {
  Reply reply;
  auto made = make_plain_network();
  if (!made) {
    fprintf(stderr, "%s\n", made.error().to_string().c_str());
    reply.status = -1;
    return answer(socket, reply);
  }
  std::vector<int> fds;
  for (std::size_t i = 0; i < made->size(); ++i) {
    reply.ports[i] = (*made)[i].port;
    fds.push_back((*made)[i].fd.get());
  }
  return answer(socket, reply, fds);
}

// In the box's namespaces.
int serve(int socket) {
  const UniqueFd null(open("/dev/null", O_RDWR | O_CLOEXEC));
  UniqueFd kept;
  for (;;) {
    char buffer[kMaxCommand];
    const ssize_t size = recv(socket, buffer, sizeof buffer, 0);
    if (size <= 0) return 0;
    const std::string_view words(buffer + 1, static_cast<std::size_t>(size - 1));
    if (buffer[0] == kNoCommand) {
      if (!answer_with_network(socket)) return 1;
      continue;
    }
    Reply reply;
    if (buffer[0] == kWithSocket) {
      int ends[2];
      if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return 1;
      kept.reset(ends[0]);
      const UniqueFd there(ends[1]);
      reply = run_command(words, there.get());
    } else if (buffer[0] == kForOutput) {
      reply = run_for_output(words, null.get());
    } else {
      reply = run_command(words, null.get());
    }
    if (!answer(socket, reply)) return 1;
  }
}

// Joins all namespaces of `pid`; the PID namespace holds for children only, so a child serves.
int enter_and_serve(const std::vector<UniqueFd>& namespaces, int socket) {
  // A copy of a box's socket here would keep that box from seeing its owner's end.
  std::vector<int> kept{socket};
  for (const auto& space : namespaces) kept.push_back(space.get());
  if (!sys::close_all_except(kept)) return 1;
  for (const auto& space : namespaces) {
    if (setns(space.get(), 0) != 0) return 1;
  }
  // Where setgroups is denied there is nothing to give up.
  (void)setgroups(0, nullptr);
  if (setresgid(0, 0, 0) != 0 || setresuid(0, 0, 0) != 0 || chdir("/") != 0) return 1;
  const pid_t pid = fork();
  if (pid == 0) _exit(serve(socket));
  close(socket);
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

}  // namespace

Result<RunscInside> RunscInside::enter(pid_t runsc_run) {
  const std::string proc = "/proc/" + std::to_string(runsc_run);
  const std::string line = TRY(sys::read_path(proc + "/cmdline", kMaxCommand));
  RunscInside inside;
  for (std::size_t at = 0; at < line.size(); at = line.find('\0', at) + 1) {
    const std::string word = line.c_str() + at;
    if (word.starts_with("--") && !word.starts_with("--root=") && !word.starts_with("--bundle=")) {
      inside.flags_.push_back(word);
    }
  }
  std::vector<UniqueFd> namespaces;
  for (const char* name : {"user", "ipc", "uts", "net", "pid", "mnt"}) {
    const std::string path = proc + "/ns/" + name;
    UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!fd) return fail_errno(errno, "opening " + path);
    namespaces.push_back(std::move(fd));
  }
  auto [here, there] = TRY(sys::socket_pair(SOCK_SEQPACKET));
  const int socket = there.get();
  inside.process_ = TRY(sys::start_in_namespaces(
      0, [&namespaces, socket] { return enter_and_serve(namespaces, socket); }));
  inside.socket_ = std::move(here);
  return inside;
}

RunscInside::~RunscInside() {
  socket_.reset();
  if (process_) process_.wait();
}

std::string RunscInside::platform() const {
  constexpr std::string_view kFlag = "--platform=";
  for (const auto& flag : flags_) {
    if (flag.starts_with(kFlag)) return flag.substr(kFlag.size());
  }
  return "";
}

Result<RunscInside::Done> RunscInside::command(char how, const std::vector<std::string>& words) {
  std::string message(1, how);
  for (const auto& word : words) {
    message += word;
    message += '\0';
  }
  Reply reply;
  if (send(socket_.get(), message.data(), message.size(), MSG_NOSIGNAL) < 0 ||
      recv(socket_.get(), &reply, sizeof reply, 0) != sizeof reply) {
    return fail(Code::kInternal, "the process in the box's namespaces has gone",
                "the box may have ended; run it again");
  }
  if (reply.status != 0) {
    return fail(Code::kInternal,
                "'" + words[0] + " … " + words.back() + "' gave wait status " +
                    std::to_string(reply.status),
                "see what runsc said above");
  }
  reply.output[sizeof reply.output - 1] = '\0';
  return Done{reply.ms, reply.output};
}

Result<std::vector<Listening>> RunscInside::enter_plain_network() {
  if (send(socket_.get(), &kNoCommand, 1, MSG_NOSIGNAL) != 1) return fail_errno(errno, "send");
  auto received = TRY(sys::receive_with_fds(socket_.get(), sizeof(Reply), 2));
  Reply reply;
  if (received.bytes.size() != sizeof reply || received.fds.size() != 2) {
    return fail(Code::kInternal, "there is no second network to compare with",
                "see what was said above");
  }
  memcpy(&reply, received.bytes.data(), sizeof reply);
  std::vector<Listening> out;
  for (int i = 0; i < 2; ++i) out.push_back({std::move(received.fds[i]), reply.ports[i]});
  return out;
}

Result<double> RunscInside::exec_in_box(const std::vector<std::string>& argv) {
  std::vector<std::string> words{"/runsc", kStateOfBox};
  words.insert(words.end(), flags_.begin(), flags_.end());
  words.insert(words.end(), {"exec", "box"});
  words.insert(words.end(), argv.begin(), argv.end());
  return TRY(command(kPlainly, words)).ms;
}

std::vector<std::string> RunscInside::for_second(const std::vector<std::string>& words) const {
  std::vector<std::string> out{"/runsc", kStateOfOurs};
  out.insert(out.end(), flags_.begin(), flags_.end());
  out.insert(out.end(), words.begin(), words.end());
  return out;
}

Result<double> RunscInside::run_and_exec(const std::vector<std::string>& argv) {
  const auto run =
      TRY(command(kWithSocket, for_second({"run", "--detach", "--bundle=/bundle", "second"})));
  std::vector<std::string> exec{"exec", "second"};
  exec.insert(exec.end(), argv.begin(), argv.end());
  return run.ms + TRY(command(kPlainly, for_second(exec))).ms;
}

Result<void> RunscInside::run_second() {
  TRY(command(kWithSocket, for_second({"run", "--detach", "--bundle=/bundle", "second"})));
  return {};
}

Result<std::string> RunscInside::exec_in_second(const std::vector<std::string>& argv) {
  std::vector<std::string> exec{"exec", "second"};
  exec.insert(exec.end(), argv.begin(), argv.end());
  return TRY(command(kForOutput, for_second(exec))).output;
}

Result<double> RunscInside::remove() {
  return TRY(command(kPlainly, for_second({"delete", "--force", "second"}))).ms;
}

}  // namespace temenos::bench
