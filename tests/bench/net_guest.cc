// Runs in a sandbox: the client of the benchmark's network rows. The server (net_server.h) does
// what the first byte of a connection says. Prints times in nanoseconds, two numbers at most.
//
//   net_guest streams ADDRESS PORT COUNT BYTES   until all have come; connected before the clock
//   net_guest requests ADDRESS PORT COUNT        p50 and p99 of a byte and its echo
//   net_guest firsts ADDRESS PORT COUNT          p50 and p99 from connect() to the first answer
//   net_guest plain|http ADDRESS PORT COUNT      that many connections, kInFlight at a time
//   net_guest hold ADDRESS PORT COUNT            opens them, leaves them open, ends
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "tests/bench/net_server.h"

namespace {

using namespace temenos::bench;

constexpr std::size_t kInFlight = 16;
constexpr unsigned kHoldSeconds = 120;

sockaddr_in to{};

[[noreturn]] void give_up(const char* what) {
  perror(what);
  exit(1);
}

long long now_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1'000'000'000LL + now.tv_nsec;
}

int connected(int type = 0) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | type, 0);
  const int one = 1;
  if (fd < 0 || setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) != 0) {
    give_up("socket");
  }
  if (connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof to) != 0 && errno != EINPROGRESS) {
    give_up("connect");
  }
  return fd;
}

void say(int fd, const void* bytes, std::size_t size) {
  if (send(fd, bytes, size, MSG_NOSIGNAL) != static_cast<ssize_t>(size)) give_up("send");
}

void hear_byte(int fd) {
  char byte = 0;
  if (recv(fd, &byte, 1, 0) != 1) give_up("recv");
}

void print_percentiles(std::vector<long long>& samples) {
  std::sort(samples.begin(), samples.end());
  printf("%lld %lld\n", samples[samples.size() / 2], samples[samples.size() * 99 / 100]);
}

void streams(int count, std::uint64_t bytes) {
  std::vector<pollfd> open;
  StreamOrder order{kStream, bytes};
  for (int i = 0; i < count; ++i) {
    open.push_back({connected(), POLLIN, 0});
    say(open.back().fd, &order, sizeof order);
    hear_byte(open.back().fd);
  }
  const long long begin = now_ns();
  for (const auto& one : open) say(one.fd, "g", 1);
  static char room[256 * 1024];
  std::uint64_t left = bytes * static_cast<std::uint64_t>(count);
  while (!open.empty()) {
    if (poll(open.data(), open.size(), -1) < 0) give_up("poll");
    for (auto& one : open) {
      if (one.revents == 0) continue;
      const ssize_t got = recv(one.fd, room, sizeof room, MSG_DONTWAIT);
      if (got < 0 && errno != EAGAIN) give_up("recv");
      if (got > 0) left -= static_cast<std::uint64_t>(got);
      if (got == 0) {
        close(one.fd);
        one.fd = -1;
      }
    }
    std::erase_if(open, [](const pollfd& one) { return one.fd < 0; });
  }
  if (left != 0) give_up("bytes are missing");
  printf("%lld\n", now_ns() - begin);
}

void requests(int count) {
  const int fd = connected();
  std::vector<long long> samples;
  for (int i = 0; i < count; ++i) {
    const long long begin = now_ns();
    say(fd, &kEcho, 1);
    hear_byte(fd);
    samples.push_back(now_ns() - begin);
  }
  print_percentiles(samples);
}

void firsts(int count) {
  std::vector<long long> samples;
  for (int i = 0; i < count; ++i) {
    const long long begin = now_ns();
    const int fd = connected();
    say(fd, &kEcho, 1);
    hear_byte(fd);
    samples.push_back(now_ns() - begin);
    close(fd);
  }
  print_percentiles(samples);
}

// One connection of many, until its end.
struct Short {
  int fd = -1;
  bool asked = false;
  std::string answer;
};

// True when it is over.
bool go_on(Short& one, const std::string& question) {
  char room[512];
  if (!one.asked) {
    int error = 0;
    socklen_t size = sizeof error;
    if (getsockopt(one.fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0 || error != 0) {
      errno = error;
      give_up("connect");
    }
    say(one.fd, question.data(), question.size());
    one.asked = true;
    return false;
  }
  const ssize_t got = recv(one.fd, room, sizeof room, MSG_DONTWAIT);
  if (got < 0 && errno == EAGAIN) return false;
  if (got < 0) give_up("recv");
  one.answer.append(room, static_cast<std::size_t>(got));
  if (got > 0) return false;
  if (!one.answer.ends_with(kShortAnswer)) give_up(one.answer.c_str());
  close(one.fd);
  return true;
}

void shorts(int count, const std::string& question) {
  std::vector<Short> open;
  const long long begin = now_ns();
  int begun = 0;
  while (begun < count || !open.empty()) {
    while (begun < count && open.size() < kInFlight) {
      open.push_back({connected(SOCK_NONBLOCK), false, ""});
      ++begun;
    }
    std::vector<pollfd> polls;
    for (const auto& one : open) {
      polls.push_back({one.fd, static_cast<short>(one.asked ? POLLIN : POLLOUT), 0});
    }
    if (poll(polls.data(), polls.size(), -1) < 0) give_up("poll");
    for (std::size_t i = open.size(); i-- > 0;) {
      if (polls[i].revents != 0 && go_on(open[i], question)) {
        open.erase(open.begin() + static_cast<std::ptrdiff_t>(i));
      }
    }
  }
  printf("%lld\n", now_ns() - begin);
}

void hold(int count) {
  const rlimit files{4096, 4096};
  (void)setrlimit(RLIMIT_NOFILE, &files);
  for (int i = 0; i < count; ++i) {
    const int fd = connected();
    say(fd, &kEcho, 1);
    hear_byte(fd);
  }
  puts("1");
  fflush(stdout);
  if (fork() != 0) _exit(0);
  setsid();
  for (const int fd : {0, 1, 2}) close(fd);
  sleep(kHoldSeconds);  // or until the box ends
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 5) return 2;
  const std::string mode = argv[1];
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<std::uint16_t>(atoi(argv[3])));
  const int count = atoi(argv[4]);
  if (inet_pton(AF_INET, argv[2], &to.sin_addr) != 1 || count < 1) return 2;
  if (mode == "streams" && argc == 6) {
    streams(count, strtoull(argv[5], nullptr, 10));
  } else if (mode == "requests") {
    requests(count);
  } else if (mode == "firsts") {
    firsts(count);
  } else if (mode == "plain") {
    shorts(count, std::string(1, kShort));
  } else if (mode == "http" && argc == 6) {
    shorts(count, std::string("GET / HTTP/1.1\r\nHost: ") + argv[5] + "\r\n\r\n");
  } else if (mode == "hold") {
    hold(count);
  } else {
    return 2;
  }
  return 0;
}
