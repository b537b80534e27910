#include "testing/internet.h"

#include <fcntl.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <climits>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "sys/mount_sys.h"
#include "testing/packet_recorder.h"

namespace temenos::testing {
namespace {

constexpr int kStartMs = 60'000;  // of a server, on a machine that is busy or emulated

[[noreturn]] void fatal(const std::string& what) {
  fprintf(stderr, "the test's internet: %s\n", what.c_str());
  abort();
}

UniqueFd own_network() {
  UniqueFd fd(open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC));
  if (!fd) fatal("no /proc/thread-self/ns/net");
  return fd;
}

void enter(const UniqueFd& net) {
  if (setns(net.get(), CLONE_NEWNET) != 0) fatal("setns");
}

void must_be_silent(const std::string& what, const std::string& script) {
  const std::string said = host_shell("( " + script + " ) 2>&1");
  if (!said.empty()) fatal(what + ": " + said);
}

// A program that scripts/test has unpacked without installing it, or the system's.
std::string server_program(const std::string& path) {
  const char* unpacked = getenv("TEMENOS_SERVERS");
  for (const std::string& root :
       {std::string(unpacked != nullptr ? unpacked : ""), std::string()}) {
    if (access((root + path).c_str(), X_OK) == 0) return root + path;
  }
  return "";
}

void wait_for_group(pid_t group) {
  kill(-group, SIGKILL);
  while (waitpid(-group, nullptr, 0) > 0) {
  }
}

constexpr char kCertificateConfig[] =
    "[req]\ndistinguished_name=name\nprompt=no\n[name]\nCN=the test's internet\n"
    "[ca]\nbasicConstraints=critical,CA:TRUE\nkeyUsage=critical,keyCertSign\n"
    "subjectKeyIdentifier=hash\n"
    "[leaf]\nbasicConstraints=critical,CA:FALSE\nextendedKeyUsage=serverAuth\n"
    "subjectKeyIdentifier=hash\nauthorityKeyIdentifier=keyid\nsubjectAltName=";

}  // namespace

std::string TestInternet::lacking() {
  if (geteuid() != 0) return "only root can make an internet";
  for (const char* program : {"/usr/sbin/ip", "/usr/bin/openssl", "/usr/bin/python3"}) {
    if (access(program, X_OK) != 0) return std::string("there is no ") + program;
  }
  return "";
}

TestInternet::TestInternet(const TestHost& host) : directory_(host.dir("internet")) {
  signal(SIGPIPE, SIG_IGN);
  if (unshare(CLONE_NEWNET | CLONE_NEWNS) != 0 || !sys::make_all_private()) {
    fatal("no namespaces to be had");
  }
  host_ = own_network();
  must_be_silent("loopback", "ip link set lo up");
  auto loopback = PacketRecorder::open_socket(if_nametoindex("lo"));
  if (unshare(CLONE_NEWNET) != 0) fatal("a second network namespace");
  internet_ = own_network();
  auto outside = PacketRecorder::open_socket(0);
  enter(host_);
  make_links();
  make_files();
  cover_etc();
  recorder_ = std::make_unique<PacketRecorder>(std::move(outside), std::move(loopback),
                                               std::set<std::string>{kResolver4, kResolver6});
  const std::string world = guest("world.py");
  start_and_see(internet_,
                {"/usr/bin/python3", world, "internet", directory_, kResolver4, kResolver6},
                "ready");
  start_and_see(host_, {"/usr/bin/python3", world, "host", directory_}, "ready");
  forget();
}

TestInternet::~TestInternet() {
  stop();
  for (const auto& path : covered_) umount2(path.c_str(), MNT_DETACH);
}

void TestInternet::stop() {
  for (const auto& server : servers_) wait_for_group(server.pid);
  servers_.clear();
}

void TestInternet::make_links() const {
  const std::string there =
      "/proc/" + std::to_string(getpid()) + "/fd/" + std::to_string(internet_.get());
  must_be_silent("links of the host", R"(ip -batch - <<'END'
link add up0 type veth peer name net0 netns )" +
                                          there + R"(
link add lan0 type veth peer name lan1 netns )" +
                                          there + R"(
link set up0 up
link set lan0 up
addr add 45.45.45.2/30 dev up0
addr add 2606:4545::2/126 dev up0 nodad
addr add 192.168.7.2/24 dev lan0
addr add fd00:7::2/64 dev lan0 nodad
END
)");
  enter(internet_);
  // A route of the type "local" makes every address an own one; that of the link is more exact.
  must_be_silent("links of the internet", R"(ip -batch - <<'END'
link set lo up
link set net0 up
link set lan1 up
addr add 45.45.45.1/30 dev net0
addr add 2606:4545::1/126 dev net0 nodad
addr add 192.168.7.1/30 dev lan1
addr add fd00:7::1/126 dev lan1 nodad
route add local 0.0.0.0/0 dev lo table main
route add local ::/0 dev lo table main
route add blackhole 45.46.99.0/24
END
)");
  enter(host_);
  must_be_silent("routes of the host",
                 "ip route add default via 45.45.45.1 && ip -6 route add default via 2606:4545::1");
}

void TestInternet::make_files() const {
  for (const char* name : {"/www", "/git", "/certs", "/ssh"}) {
    if (mkdir((directory_ + name).c_str(), 0755) != 0) fatal("mkdir");
  }
  std::string names;
  for (const auto& name : kCertified) names += "DNS:" + name + ",";
  std::ofstream(directory_ + "/openssl.cnf") << kCertificateConfig << names << "DNS:*.world.site\n";
  must_be_silent("certificates", "cd " + directory_ + R"( && openssl version >/dev/null &&
      make() { openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 3 \
               -config openssl.cnf "$@" 2>openssl.log || cat openssl.log; } &&
      make -extensions ca -keyout ca.key -out ca.pem &&
      make -extensions leaf -CA ca.pem -CAkey ca.key -subj "/CN=a server" -keyout key.pem -out cert.pem &&
      cp ca.pem certs/ca-certificates.crt &&
      cp ca.pem certs/$(openssl x509 -in ca.pem -noout -hash).0)");
  std::ofstream(directory_ + "/resolv.conf")
      << "nameserver " << kResolver4 << "\nnameserver " << kResolver6 << "\n";
  std::ofstream(directory_ + "/hosts")
      << "127.0.0.1 localhost\n::1 localhost\n45.46.0.77 inhosts.world.site\n";
  zone("");
}

void TestInternet::cover(const std::string& path, const std::string& source) {
  char real[PATH_MAX];
  if (realpath(path.c_str(), real) == nullptr) fatal(path + " is not there");
  if (mount(source.c_str(), real, nullptr, MS_BIND, nullptr) != 0) fatal("cannot cover " + path);
  covered_.emplace_back(real);
}

void TestInternet::cover_etc() {
  cover("/etc/resolv.conf", directory_ + "/resolv.conf");
  cover("/etc/hosts", directory_ + "/hosts");
  cover("/etc/ssl/certs", directory_ + "/certs");
}

void TestInternet::zone(const std::string& lines) const {
  std::string all;
  for (std::size_t n = 0; n < kCertified.size(); ++n) {
    const std::string last = std::to_string(10 + n);
    all += kCertified[n] + " 45.46.0." + last + " 2606:4546::" + last + "\n";
  }
  // The server reads it anew for each question: never half of it.
  const std::string path = directory_ + "/zone";
  std::ofstream(path + ".new") << all << lines;
  if (rename((path + ".new").c_str(), path.c_str()) != 0) fatal("rename");
}

std::set<std::string> TestInternet::record() const { return recorder_->record(); }

void TestInternet::forget() const { recorder_->forget(); }

void TestInternet::ip(const std::string& args) const { must_be_silent("ip", "ip " + args); }

TestInternet::Server TestInternet::start(const UniqueFd& net,
                                         const std::vector<std::string>& argv) const {
  int in[2];
  int out[2];
  if (pipe2(in, O_CLOEXEC) != 0 || pipe2(out, O_CLOEXEC) != 0) fatal("pipe");
  std::vector<char*> words;
  for (const auto& word : argv) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  const std::string log = directory_ + "/servers.log";
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) {
    // A group of its own, so that all that it starts ends with it; and it ends with this process.
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    const int err = open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (getppid() != parent || setns(net.get(), CLONE_NEWNET) != 0) _exit(97);
    dup2(in[0], 0);
    dup2(out[1], 1);
    dup2(err, 2);
    signal(SIGPIPE, SIG_DFL);
    execv(words[0], words.data());
    _exit(98);
  }
  if (pid < 0) fatal("fork");
  setpgid(pid, pid);
  close(in[0]);
  close(out[1]);
  return {pid, UniqueFd(in[1]), UniqueFd(out[0])};
}

void TestInternet::start_and_see(const UniqueFd& net, const std::vector<std::string>& argv,
                                 const std::string& word) {
  servers_.push_back(start(net, argv));
  std::string said;
  while (said.find(word) == std::string::npos) {
    pollfd fd{servers_.back().out.get(), POLLIN, 0};
    char bytes[4096];
    const ssize_t n =
        poll(&fd, 1, kStartMs) == 1 ? read(servers_.back().out.get(), bytes, sizeof bytes) : -1;
    if (n <= 0) {
      fatal(argv[0] + " did not start: " + said + words_of_servers());
    }
    said.append(bytes, static_cast<std::size_t>(n));
  }
}

std::string TestInternet::words_of_servers() const {
  return host_shell("tail -c 5000 " + directory_ + "/servers.log");
}

std::string TestInternet::serve_ssh() {
  const std::string sshd = server_program("/usr/sbin/sshd");
  if (sshd.empty()) return "there is no sshd";
  const std::string ssh = directory_ + "/ssh";
  must_be_silent("keys", "cd " + ssh +
                             " && ssh-keygen -q -t ed25519 -N '' -f host && "
                             "ssh-keygen -q -t ed25519 -N '' -f key && chmod 644 key");
  std::ofstream(ssh + "/config")
      << "HostKey " << ssh << "/host\nAuthorizedKeysFile " << ssh
      << "/key.pub\nStrictModes no\nUsePAM no\nPidFile none\n"
         "PermitRootLogin yes\nListenAddress 0.0.0.0\nListenAddress ::\n";
  // Accounts of its own: it wants one that an unpacked sshd has not made, and root's may be locked.
  std::ofstream(ssh + "/passwd") << "root:*:0:0:root:/:/bin/sh\nsshd:*:65533:65534::/:/bin/false\n";
  std::ofstream(ssh + "/shadow") << "root:*:19000::::::\nsshd:*:19000::::::\n";
  const std::string libraries = sshd.substr(0, sshd.size() - sizeof "/usr/sbin/sshd" + 1);
  start_and_see(internet_,
                {"/usr/bin/unshare", "--mount", "--propagation", "private", "/bin/sh", "-ec",
                 "mount --bind " + ssh + "/passwd /etc/passwd; mount --bind " + ssh +
                     "/shadow /etc/shadow; mount -t tmpfs none /run; mkdir -m 755 /run/sshd; "
                     "export LD_LIBRARY_PATH=" +
                     libraries + "/usr/lib/x86_64-linux-gnu; exec " + sshd + " -D -e -f " + ssh +
                     "/config 2>&1"},
                "Server listening on :: port 22");
  return "";
}

std::string TestInternet::serve_redis() {
  // The server's program, which is the server when it is called so; its own package is a service.
  const std::string redis = server_program("/usr/bin/redis-check-rdb");
  if (redis.empty()) return "there is no redis";
  start_and_see(internet_,
                {"/bin/bash", "-c",
                 "cd / && exec -a redis-server " + redis +
                     " --port 6379 --bind 0.0.0.0 :: --protected-mode no --save ''"},
                "Ready to accept connections");
  return "";
}

}  // namespace temenos::testing
