#include "leak/internet.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>

#include <cstring>
#include <map>

#include "sys/file_sys.h"
#include "sys/process_sys.h"

namespace temenos::testing {
namespace {

constexpr int kSetUpMs = 60'000;  // on a machine that is busy or emulated
constexpr std::uint16_t kPorts[] = {22, 80, 443, 5432, 8080, 8443};

std::string text_of(const sockaddr_in6& address) {
  char text[INET6_ADDRSTRLEN] = "";
  if (IN6_IS_ADDR_V4MAPPED(&address.sin6_addr)) {
    inet_ntop(AF_INET, address.sin6_addr.s6_addr + 12, text, sizeof text);
  } else {
    inet_ntop(AF_INET6, &address.sin6_addr, text, sizeof text);
  }
  return text;
}

UniqueFd bound(int type, std::uint16_t port) {
  UniqueFd fd(socket(AF_INET6, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int off = 0;
  const int on = 1;
  setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in6 at{};
  at.sin6_family = AF_INET6;
  at.sin6_port = htons(port);
  if (bind(fd.get(), reinterpret_cast<sockaddr*>(&at), sizeof at) != 0) fd.reset();
  if (fd && type == SOCK_STREAM) listen(fd.get(), 128);
  return fd;
}

// Greets and records.
void greet(int listener, const std::string& prefix, int events) {
  for (;;) {
    const UniqueFd one(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC));
    if (!one) return;
    sockaddr_in6 at{};
    socklen_t size = sizeof at;
    getsockname(one.get(), reinterpret_cast<sockaddr*>(&at), &size);
    const std::string where = text_of(at) + " " + std::to_string(ntohs(at.sin6_port)) + "\n";
    (void)!write(events, (prefix + where).data(), prefix.size() + where.size());
    (void)!write(one.get(), where.data(), where.size());
  }
}

class NameServer {
 public:
  explicit NameServer(const std::vector<NetName>& names) {
    for (const auto& name : names) names_[name.name] = name.addresses;
  }

  void answer(int fd) {
    std::uint8_t query[512];
    sockaddr_in6 from{};
    socklen_t size = sizeof from;
    const ssize_t count =
        recvfrom(fd, query, sizeof query, 0, reinterpret_cast<sockaddr*>(&from), &size);
    if (count < 17) return;
    std::string name;
    std::size_t at = 12;
    while (query[at] != 0 && at + query[at] < sizeof query - 8) {
      if (!name.empty()) name += '.';
      name += std::string(reinterpret_cast<char*>(query) + at + 1, query[at]);
      at += query[at] + 1u;
    }
    const bool v6 = query[at + 2] == 28;
    const auto found = names_.find(name);
    std::string out(reinterpret_cast<char*>(query), at + 5);
    out[2] = '\x81';
    out[3] = static_cast<char>(0x80 | (found == names_.end() ? 3 : 0));
    std::uint8_t records = 0;
    if (found != names_.end()) {
      const bool flips = name.starts_with("flip.");
      if (flips && !v6) ++turn_;
      for (std::size_t i = 0; i < found->second.size(); ++i) {
        if (flips && i != turn_ % found->second.size()) continue;
        std::uint8_t bytes[16];
        const std::string& text = found->second[i];
        if (inet_pton(v6 ? AF_INET6 : AF_INET, text.c_str(), bytes) != 1) continue;
        out += std::string("\xc0\x0c\0", 3) + (v6 ? '\x1c' : '\x01');
        out += std::string("\0\x01\0\0\0\0\0", 7) + (v6 ? '\x10' : '\x04');
        out.append(reinterpret_cast<char*>(bytes), v6 ? 16 : 4);
        ++records;
      }
    }
    std::memcpy(out.data() + 4, "\0\x01\0\0\0\0\0\0", 8);
    out[7] = static_cast<char>(records);
    (void)sendto(fd, out.data(), out.size(), 0, reinterpret_cast<sockaddr*>(&from), size);
  }

 private:
  std::map<std::string, std::vector<std::string>> names_;
  std::size_t turn_ = 0;
};

// The servers of one namespace, until `stop` ends.
int serve(const std::string& prefix, const std::vector<NetName>& names, int events, int stop) {
  NameServer server(names);
  std::vector<UniqueFd> listeners;
  std::vector<pollfd> fds{{stop, POLLIN, 0}};
  const bool is_internet = prefix.empty();
  if (is_internet) {
    listeners.push_back(bound(SOCK_DGRAM, 53));
    fds.push_back({listeners.back().get(), POLLIN, 0});
  }
  for (const std::uint16_t port : kPorts) {
    listeners.push_back(bound(SOCK_STREAM, port));
    fds.push_back({listeners.back().get(), POLLIN, 0});
  }
  for (const auto& listener : listeners) {
    if (!listener) return 1;
  }
  if (write(events, "ready\n", 6) != 6) return 1;
  for (;;) {
    if (poll(fds.data(), fds.size(), -1) < 0) return 1;
    if (fds[0].revents != 0) return 0;
    for (std::size_t i = 1; i < fds.size(); ++i) {
      if (fds[i].revents == 0) continue;
      if (is_internet && i == 1) {
        server.answer(fds[i].fd);
      } else {
        greet(fds[i].fd, prefix, events);
      }
    }
  }
}

std::string addresses_of(const std::vector<std::string>& addresses) {
  std::string out;
  for (const auto& address : addresses) {
    const bool v6 = address.find(':') != address.npos;
    out += "ip addr add " + address + (v6 ? "/128 nodad" : "/32") + " dev lo && ";
  }
  return out;
}

constexpr const char* kHostSide =
    "ip link set lo up && ip link add outer type veth peer name inner && "
    "ip link set outer up && ip addr add 203.0.113.2/30 dev outer && "
    "ip addr add fdaa::2/64 dev outer nodad";
constexpr const char* kHostRoutes =
    "ip route add default via 203.0.113.1 && ip -6 route add default via fdaa::1";
constexpr const char* kInternetSide =
    "ip link set lo up && ip link set inner up && ip addr add 203.0.113.1/30 dev inner && "
    "ip addr add fdaa::1/64 dev inner nodad";

struct Pipe {
  UniqueFd reader;
  UniqueFd writer;
};

Pipe make_pipe() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return {};
  return {UniqueFd(ends[0]), UniqueFd(ends[1])};
}

bool wait_for_word(int fd) {
  char word[6];
  for (std::size_t got = 0; got < sizeof word;) {
    // Who writes it may have failed, and we hold the other end of the pipe as well.
    pollfd wait{fd, POLLIN, 0};
    if (poll(&wait, 1, kSetUpMs) != 1) return false;
    const ssize_t count = read(fd, word + got, sizeof word - got);
    if (count <= 0) return false;
    got += static_cast<std::size_t>(count);
  }
  return std::memcmp(word, "ready\n", 6) == 0;
}

}  // namespace

bool shell(const std::string& command) {
  const auto ran = sys::run_program(
      {"/bin/sh", "-c", "PATH=/usr/sbin:/sbin:/usr/bin:/bin; " + command}, 4096, kSetUpMs);
  return ran && ran->status.code == 0;
}

std::vector<std::string> Internet::arrived() {
  char buffer[4096];
  for (ssize_t count; (count = read(events_.get(), buffer, sizeof buffer)) > 0;) {
    text_.append(buffer, static_cast<std::size_t>(count));
  }
  std::vector<std::string> out;
  std::size_t at = 0;
  for (std::size_t end; (end = text_.find('\n', at)) != text_.npos; at = end + 1) {
    const std::string line = text_.substr(at, end - at);
    if (line != "ready") out.push_back(line);
  }
  return out;
}

namespace {

// In the namespace that is the host.
std::string host_side(const std::vector<std::string>& addresses, const std::vector<NetName>& names,
                      const std::function<std::string(UniqueFd events)>& body) {
  if (!shell(kHostSide)) return "SKIP no veth pair can be made here (iproute2?)";
  Pipe hits = make_pipe();
  Pipe stop = make_pipe();
  Pipe go = make_pipe();
  // The other side waits for its link before it sets itself up.
  auto internet = sys::start_in_namespaces(CLONE_NEWNET, [&] {
    go.writer.reset();
    stop.writer.reset();
    hits.reader.reset();
    char byte;
    if (read(go.reader.get(), &byte, 1) != 1) return 1;
    if (!shell(addresses_of(addresses) + kInternetSide)) return 2;
    return serve("", names, hits.writer.get(), stop.reader.get());
  });
  if (!internet) return "SKIP no network namespace: " + internet.error().to_string();
  if (!shell("ip link set inner netns " + std::to_string(internet->pid()) + " && " + kHostRoutes)) {
    return "the link could not be handed over";
  }
  if (write(go.writer.get(), "x", 1) != 1 || !wait_for_word(hits.reader.get())) {
    return "the internet does not serve";
  }
  auto own = sys::start_in_namespaces(0, [&] {
    stop.writer.reset();
    return serve("host ", {}, hits.writer.get(), stop.reader.get());
  });
  if (!own || !wait_for_word(hits.reader.get())) return "the host does not serve";
  hits.writer.reset();
  fcntl(hits.reader.get(), F_SETFL, O_NONBLOCK);
  struct Stop {
    Pipe& pipe;
    sys::Process& a;
    sys::Process& b;
    ~Stop() {
      pipe.writer.reset();
      (void)a.wait();
      (void)b.wait();
    }
  } const stopper{stop, *internet, *own};
  return body(std::move(hits.reader));
}

}  // namespace

std::string in_internet(const std::vector<std::string>& addresses,
                        const std::vector<NetName>& names,
                        const std::function<std::string(Internet&)>& body) {
  Pipe report = make_pipe();
  const uid_t uid = geteuid();
  const gid_t gid = getegid();
  const int namespaces = uid == 0 ? CLONE_NEWNET : CLONE_NEWUSER | CLONE_NEWNET;
  auto host = sys::start_in_namespaces(namespaces, [&] {
    std::string out;
    const sys::IdMapLine user{0, uid, 1};
    const sys::IdMapLine group{0, gid, 1};
    if (uid != 0 && !sys::write_id_maps(getpid(), {&user, 1}, {&group, 1}, true)) {
      out = "SKIP no user namespace";
    } else {
      out = host_side(addresses, names, [&](UniqueFd events) {
        Internet internet(std::move(events));
        return body(internet);
      });
    }
    return write(report.writer.get(), out.data(), out.size()) == static_cast<ssize_t>(out.size())
               ? 0
               : 1;
  });
  if (!host) return "SKIP no network namespace: " + host.error().to_string();
  report.writer.reset();
  const auto text = sys::read_all(report.reader.get(), 1u << 20);
  (void)host->wait();
  return text ? *text : text.error().to_string();
}

}  // namespace temenos::testing
