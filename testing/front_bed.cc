#include "testing/front_bed.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstring>

#include "egress/control.h"
#include "testing/tcp.h"

namespace temenos::testing {
namespace {

using namespace egress;
using namespace std::chrono_literals;

sockaddr_in address_at(const std::string& at, std::uint16_t port) {
  sockaddr_in out{.sin_family = AF_INET, .sin_port = htons(port)};
  must(inet_pton(AF_INET, at.c_str(), &out.sin_addr) == 1);
  return out;
}

UniqueFd bound(const std::string& at, int type, std::uint16_t& port) {
  UniqueFd fd(socket(AF_INET, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int one = 1;
  must(setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) == 0);
  sockaddr_in own = address_at(at, port);
  socklen_t size = sizeof own;
  must(bind(fd.get(), reinterpret_cast<sockaddr*>(&own), size) == 0);
  must(getsockname(fd.get(), reinterpret_cast<sockaddr*>(&own), &size) == 0);
  port = ntohs(own.sin_port);
  if (type == SOCK_STREAM) {
    must(listen(fd.get(), 4096) == 0);
  } else {
    must(setsockopt(fd.get(), SOL_IP, IP_RECVORIGDSTADDR, &one, sizeof one) == 0);
  }
  return fd;
}

// Any IPv6 address.
UniqueFd bound_six(int type, std::uint16_t port) {
  UniqueFd fd(socket(AF_INET6, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int one = 1;
  must(setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) == 0);
  must(setsockopt(fd.get(), SOL_IPV6, IPV6_V6ONLY, &one, sizeof one) == 0);
  const sockaddr_in6 own{.sin6_family = AF_INET6, .sin6_port = htons(port)};
  must(bind(fd.get(), reinterpret_cast<const sockaddr*>(&own), sizeof own) == 0);
  if (type == SOCK_STREAM) {
    must(listen(fd.get(), 4096) == 0);
  } else {
    must(setsockopt(fd.get(), SOL_IPV6, IPV6_RECVORIGDSTADDR, &one, sizeof one) == 0);
  }
  return fd;
}

UniqueFd connect_to(const std::string& at, std::uint16_t port) {
  UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const sockaddr_in to = address_at(at, port);
  must(::connect(fd.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0);
  return fd;
}

std::string destination(const Request& request) {
  std::string host(request.name, request.name_size);
  if (request.family != Family::kName) host = front::address_text(request.family, request.address);
  return host + ":" + std::to_string(request.port);
}

}  // namespace

FakeDialer::FakeDialer(UniqueFd socket) : socket_(std::move(socket)) {
  int ends[2];
  must(pipe2(ends, O_CLOEXEC) == 0);
  stop_reader_.reset(ends[0]);
  stop_writer_.reset(ends[1]);
  thread_ = std::thread([this] { run(); });
}

void FakeDialer::stop() {
  if (!thread_.joinable()) return;
  stop_writer_.reset();
  thread_.join();
  socket_.reset();
}

void FakeDialer::rule(const std::string& destination, DialRule rule) {
  const std::lock_guard lock(mutex_);
  rules_[destination] = std::move(rule);
}

void FakeDialer::name(const std::string& name, std::uint32_t number, bool allowed) {
  const std::lock_guard lock(mutex_);
  names_[name] = {number, allowed};
}

std::vector<Request> FakeDialer::wait_for(const std::vector<Request>& from, std::size_t count) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, 5s, [&] { return from.size() >= count; });
  return from;
}
std::vector<Request> FakeDialer::asks(std::size_t count) { return wait_for(asks_, count); }
std::vector<Request> FakeDialer::reports(std::size_t count) { return wait_for(reports_, count); }

void FakeDialer::end(std::uint64_t id) {
  const Reply reply{.id = id, .verdict = Verdict::kEnd, .why = Why::kNotAllowed};
  must(send(socket_.get(), &reply, sizeof reply, MSG_NOSIGNAL) == sizeof reply);
}

void FakeDialer::run() {
  for (;;) {
    pollfd entries[] = {{socket_.get(), POLLIN, 0}, {stop_reader_.get(), POLLIN, 0}};
    poll(entries, 2, -1);
    if (entries[1].revents != 0) return;
    Request request;
    const ssize_t count = recv(socket_.get(), &request, sizeof request, 0);
    if (count <= 0) {
      pollfd stopped{stop_reader_.get(), POLLIN, 0};
      poll(&stopped, 1, -1);
      return;
    }
    must(count == sizeof request);
    answer(request);
  }
}

void FakeDialer::answer(const Request& request) {
  Reply reply;
  reply.id = request.id;
  DialRule rule;
  {
    const std::lock_guard lock(mutex_);
    (request.ask == Ask::kReport ? reports_ : asks_).push_back(request);
    changed_.notify_all();
    if (request.ask == Ask::kReport) return;
    if (request.ask == Ask::kResolve) {
      const auto found = names_.find(std::string(request.name, request.name_size));
      if (found != names_.end()) {
        reply.verdict = Verdict::kResolved;
        reply.number = found->second.first;
        reply.allowed = found->second.second ? 1 : 0;
      }
      send(socket_.get(), &reply, sizeof reply, MSG_NOSIGNAL);
      return;
    }
    const auto found = rules_.find(destination(request));
    if (found != rules_.end()) rule = found->second;
  }
  if (rule.mute) return;
  std::this_thread::sleep_for(std::chrono::milliseconds(rule.late_ms));
  if (rule.name.empty()) rule.name.assign(request.name, request.name_size);
  reply.verdict = request.ask == Ask::kConnect ? Verdict::kConnected : rule.verdict;
  reply.is_address = rule.is_address ? 1 : 0;
  reply.name_size = static_cast<std::uint8_t>(rule.name.size());
  std::memcpy(reply.name, rule.name.data(), rule.name.size());
  UniqueFd server;
  if (reply.verdict == Verdict::kRefused) reply.why = rule.why;
  if (reply.verdict == Verdict::kAny || reply.verdict == Verdict::kConnected) {
    if (rule.server != 0) {
      server = connect_loopback(rule.server);
    } else {
      reply.verdict = Verdict::kFailed;
      reply.why = Why::kUnreachable;
    }
  }
  const std::string_view bytes(reinterpret_cast<const char*>(&reply), sizeof reply);
  const int fd = server.get();
  (void)sys::send_with_fds(socket_.get(), bytes, {&fd, server ? 1u : 0u});
}

FrontBed::FrontBed(const Options& options) : at_(options.at) {
  rlimit most{};
  must(getrlimit(RLIMIT_NOFILE, &most) == 0);
  most.rlim_cur = most.rlim_max;
  must(setrlimit(RLIMIT_NOFILE, &most) == 0);
  auto pair = sys::socket_pair(SOCK_SEQPACKET);
  must(static_cast<bool>(pair));
  control_ = std::move(pair->first);
  proxy_port = options.program.empty() ? 0 : 3128;
  tcp_port = options.port;
  udp_port = dns_tcp_port = options.program.empty() ? 0 : 53;
  std::uint16_t unused = 0;
  const std::string any = options.program.empty() ? options.at : "0.0.0.0";
  UniqueFd proxy =
      bound(options.program.empty() ? options.at : "198.18.0.1", SOCK_STREAM, proxy_port);
  Listeners listeners = {
      bound(any, SOCK_STREAM, tcp_port),     std::move(proxy),
      bound(any, SOCK_DGRAM, udp_port),      bound("127.0.0.1", SOCK_DGRAM, unused),
      bound(any, SOCK_STREAM, dns_tcp_port), UniqueFd()};
  unused = 0;
  listeners[5] = bound("127.0.0.1", SOCK_STREAM, unused);
  if (options.six) {
    listeners[0] = bound_six(SOCK_STREAM, options.port);
    listeners[3] = bound_six(SOCK_DGRAM, 53);
  }
  std::vector<int> fds{pair->second.get()};
  for (const auto& listener : listeners) fds.push_back(listener.get());
  start(options, fds);
  pair->second.reset();
  if (!options.program.empty()) {
    Control jailed;
    must(recv(control_.get(), &jailed, sizeof jailed, 0) == sizeof jailed);
    must(jailed.type == ControlType::kJailed);
  }
  dialer_ = std::make_unique<FakeDialer>(send_dialer());
  // A question that front answers by itself: it has read all that was sent before.
  const UniqueFd probe = connect_to(at_ == "127.0.0.1" ? at_ : "198.18.0.1", dns_tcp_port);
  const char localhost[] = "\0\x1b\0\1\1\0\0\1\0\0\0\0\0\0\x09localhost\0\0\1\0\1";
  must(send_text(probe.get(), {localhost, sizeof localhost - 1}));
  must(hear(probe.get(), 2).text.size() == 2);
  fds_at_start_ = open_fds() - 1;
}

void FrontBed::start(const Options& options, const std::vector<int>& fds) {
  front::Config config{.times = options.times,
                       .max_connections = options.max_connections,
                       .max_memory = options.max_memory};
  front::Target proxy{.port = proxy_port};
  const sockaddr_in at = address_at(options.at, 0);
  std::memcpy(proxy.address.data(), &at.sin_addr, 4);
  config.proxies.push_back(proxy);
  auto child = sys::start_in_namespaces(0, [&] {
    (void)sys::die_with_parent();
    if (options.program.empty()) {
      if (!sys::close_all_except(fds)) return 124;
      ::signal(SIGPIPE, SIG_IGN);
      Listeners listeners;
      for (std::size_t i = 0; i < listeners.size(); ++i) listeners[i].reset(fds[1 + i]);
      return front::serve(UniqueFd(fds[0]), std::move(listeners), config) ? 0 : 125;
    }
    std::vector<int> high;
    for (const int fd : fds) high.push_back(fcntl(fd, F_DUPFD_CLOEXEC, 20));
    for (std::size_t i = 0; i < high.size(); ++i) dup2(high[i], kControlFd + static_cast<int>(i));
    char* const arguments[] = {const_cast<char*>(options.program.c_str()), nullptr};
    char* const nothing[] = {nullptr};
    execve(options.program.c_str(), arguments, nothing);
    return 127;
  });
  must(static_cast<bool>(child));
  front_ = std::move(*child);
}

FrontBed::~FrontBed() {
  if (front_) front_.send(SIGKILL);
  if (front_) front_.wait();
}

UniqueFd FrontBed::send_dialer() {
  auto pair = sys::socket_pair(SOCK_SEQPACKET);
  must(static_cast<bool>(pair));
  const Control order{.type = ControlType::kDialer};
  const int fd = pair->second.get();
  must(static_cast<bool>(sys::send_with_fds(
      control_.get(), {reinterpret_cast<const char*>(&order), sizeof order}, {&fd, 1})));
  return std::move(pair->first);
}

std::unique_ptr<FakeDialer> FrontBed::replace_dialer() {
  return std::exchange(dialer_, std::make_unique<FakeDialer>(send_dialer()));
}

UniqueFd FrontBed::connect() const { return connect_to(at_, tcp_port); }
UniqueFd FrontBed::connect_proxy() const {
  return connect_to(at_ == "127.0.0.1" ? at_ : "198.18.0.1", proxy_port);
}
std::string FrontBed::transparent() const { return at_ + ":" + std::to_string(tcp_port); }

std::size_t FrontBed::open_fds() const {
  DIR* const dir = opendir(("/proc/" + std::to_string(front_.pid()) + "/fd").c_str());
  if (dir == nullptr) return 0;
  std::size_t count = 0;
  while (const dirent* entry = readdir(dir)) count += entry->d_name[0] != '.' ? 1 : 0;
  closedir(dir);
  return count;
}

bool FrontBed::back_to_its_start() const {
  // Spare pipes are kept.
  const std::size_t most = fds_at_start_ + 2 * front::Pipes::kMaxSpare;
  const auto until = std::chrono::steady_clock::now() + 5s;
  while (open_fds() > most && std::chrono::steady_clock::now() < until) {
    std::this_thread::sleep_for(10ms);
  }
  return open_fds() <= most;
}

int FrontBed::end() {
  control_.reset();
  const auto status = front_.wait();
  front_ = {};
  return status ? status->code : -1;
}

}  // namespace temenos::testing
