#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <cstdlib>

#include "guests/attack.h"
#include "guests/report.h"

namespace temenos::leak {
namespace {

struct Address {
  sockaddr_storage storage{};
  socklen_t size = 0;
};

Address unix_address(const std::string& name, bool abstract) {
  Address out;
  auto* address = reinterpret_cast<sockaddr_un*>(&out.storage);
  address->sun_family = AF_UNIX;
  memcpy(address->sun_path + (abstract ? 1 : 0), name.data(),
         std::min(name.size(), sizeof address->sun_path - 2));
  out.size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size() + 1);
  return out;
}

Address ip_address(const char* text, int port) {
  Address out;
  auto* v4 = reinterpret_cast<sockaddr_in*>(&out.storage);
  auto* v6 = reinterpret_cast<sockaddr_in6*>(&out.storage);
  if (inet_pton(AF_INET, text, &v4->sin_addr) == 1) {
    v4->sin_family = AF_INET;
    v4->sin_port = htons(static_cast<std::uint16_t>(port));
    out.size = sizeof *v4;
  } else {
    inet_pton(AF_INET6, text, &v6->sin6_addr);
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons(static_cast<std::uint16_t>(port));
    out.size = sizeof *v6;
  }
  return out;
}

long connected(const Address& address, int type) {
  const int fd = socket(address.storage.ss_family, type | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  const auto* to = reinterpret_cast<const sockaddr*>(&address.storage);
  long result = connect(fd, to, address.size);
  if (result == 0 && type == SOCK_DGRAM) result = send(fd, "x", 1, MSG_NOSIGNAL);
  const int err = errno;
  close(fd);
  errno = err;
  return result;
}

int listening(const Address& address) {
  const int fd = socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  if (bind(fd, reinterpret_cast<const sockaddr*>(&address.storage), address.size) != 0 ||
      listen(fd, 8) != 0) {
    return -1;
  }
  return fd;
}

}  // namespace

int attack_network(const Words& words) {
  if (words.size() < 3) return 2;
  const int port = atoi(words[0].c_str());
  ifaddrs* interfaces = nullptr;
  if (getifaddrs(&interfaces) == 0) {
    for (const ifaddrs* i = interfaces; i != nullptr; i = i->ifa_next) {
      report("interface", i->ifa_name, (i->ifa_flags & IFF_LOOPBACK) != 0 ? "loopback" : "other");
    }
    freeifaddrs(interfaces);
  }
  if (FILE* routes = fopen("/proc/net/route", "re")) {
    char line[512];
    while (fgets(line, sizeof line, routes) != nullptr) {
      if (strncmp(line, "Iface", 5) != 0)
        report("route", "-", std::string(line, strcspn(line, "\n")));
    }
    fclose(routes);
  }
  std::vector<std::string> addresses{"127.0.0.1", "::1", "192.0.2.1", "169.254.169.254",
                                     "2001:db8::1"};
  addresses.insert(addresses.end(), words.begin() + 3, words.end());
  for (const auto& address : addresses) {
    report_call("tcp", address, connected(ip_address(address.c_str(), port), SOCK_STREAM));
    // To loopback a datagram is always sent; what counts is that the host's socket gets none.
    report_call("udp", address, connected(ip_address(address.c_str(), port), SOCK_DGRAM));
  }
  for (const int type : {SOCK_STREAM, SOCK_DGRAM, SOCK_SEQPACKET}) {
    report_call("abstract", words[1], connected(unix_address(words[1], true), type));
    report_call("unix", words[2], connected(unix_address(words[2], false), type));
  }
  return 0;
}

// `tag` is digits: it is a port, too.
int occupy(const Words& words) {
  if (words.empty()) return 2;
  const std::string& tag = words[0];
  const int port = atoi(tag.c_str());
  bool all = listening(unix_address("leak-" + tag, true)) >= 0;
  all &= listening(ip_address("127.0.0.1", port)) >= 0;
  for (const char* dir : {"/tmp", "/dev/shm", "/run", "/var/tmp", "/root"}) {
    const int fd =
        open((std::string(dir) + "/leak-" + tag).c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0666);
    all &= fd >= 0;
    if (fd >= 0) close(fd);
  }
  all &= shmget(port, 4096, IPC_CREAT | 0666) >= 0;
  (void)sethostname(("leak-" + tag).c_str(), tag.size() + 5);
  printf(all ? "ready\n" : "not all could be taken\n");
  fflush(stdout);
  char byte;
  while (read(0, &byte, 1) > 0) {
  }
  return all ? 0 : 1;
}

// What a box sees of what occupy(TAG) took in another.
int look_for_other(const Words& words) {
  if (words.empty()) return 2;
  const std::string& tag = words[0];
  const int port = atoi(tag.c_str());
  report_call("abstract", tag, connected(unix_address("leak-" + tag, true), SOCK_STREAM));
  report_call("tcp", tag, connected(ip_address("127.0.0.1", port), SOCK_STREAM));
  for (const char* dir : {"/tmp", "/dev/shm", "/run", "/var/tmp", "/root"}) {
    report_call("file", dir, access((std::string(dir) + "/leak-" + tag).c_str(), F_OK));
  }
  report_call("shm", tag, shmget(port, 4096, 0));
  return 0;
}

}  // namespace temenos::leak
