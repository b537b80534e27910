// Runs in a box: uses up one thing, as much of it as it can get.
//
//   use_up memory MB            touches so much
//   use_up memfd MB             the same in a file without a name
//   use_up file PATH MB         writes so much into a new file
//   use_up cache PATH MB        the same, reads it twice and says "read"
//   use_up processes N MB       so many, with so much each
//   use_up pages MB             one byte of each page table's worth of so much address space
//   use_up pipes N | sockets N  so many, filled
//   use_up epolls N | watches N
//   use_up bomb                 every process forks as long as there are processes to be had
//   use_up bomb-threads | bomb-ids
//   use_up burn N SECONDS       so many processes compute for so long; 0: for ever
//   use_up threads N            says how many it got
// What ends well says "done" and stays until it is killed, so that what it holds is held.
#include <fcntl.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string>
#include <string_view>
#include <vector>

namespace {

constexpr std::size_t kMiB = 1 << 20;
constexpr std::size_t kPage = 4096;
constexpr std::size_t kTableSpan = std::size_t{2} << 20;  // what one page table maps

[[noreturn]] void fail(const char* what) {
  fprintf(stderr, "%s: %s\n", what, strerror(errno));
  exit(1);
}

[[noreturn]] void stay(const char* word = "done") {
  puts(word);
  fflush(stdout);
  for (;;) pause();
}

void touch(std::size_t bytes, std::size_t step) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) fail("mmap");
  // Each page is another, so that nothing can keep one of them for all.
  for (std::size_t at = 0; at < bytes; at += step) {
    *reinterpret_cast<volatile std::size_t*>(static_cast<char*>(memory) + at) = at + 1;
  }
}

void write_all(int fd, std::size_t megabytes) {
  std::vector<char> piece(kMiB);
  for (std::size_t n = 0; n < megabytes; ++n) {
    memset(piece.data(), static_cast<int>(n + 1), piece.size());
    for (std::size_t done = 0; done < piece.size();) {
      const ssize_t wrote = write(fd, piece.data() + done, piece.size() - done);
      if (wrote <= 0) fail("write");
      done += static_cast<std::size_t>(wrote);
    }
  }
}

int new_file(const char* path) {
  const int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd < 0) fail(path);
  return fd;
}

void read_all(int fd) {
  std::vector<char> piece(kMiB);
  if (lseek(fd, 0, SEEK_SET) != 0) fail("lseek");
  while (read(fd, piece.data(), piece.size()) > 0) {
  }
}

void many_processes(long count, std::size_t megabytes) {
  for (long n = 0; n < count; ++n) {
    const pid_t child = fork();
    if (child < 0) fail("fork");
    if (child == 0) {
      touch(megabytes * kMiB, kPage);
      for (;;) pause();
    }
  }
}

void raise_descriptors() {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

void fill(int fd) {
  static const std::vector<char> piece(64 * 1024, 'x');
  fcntl(fd, F_SETFL, O_NONBLOCK);
  while (write(fd, piece.data(), piece.size()) > 0) {
  }
}

void many_descriptors(std::string_view kind, long count) {
  raise_descriptors();
  for (long n = 0; n < count; ++n) {
    int two[2] = {-1, -1};
    int got = 0;
    if (kind == "pipes") {
      got = pipe(two);
    } else if (kind == "sockets") {
      got = socketpair(AF_UNIX, SOCK_STREAM, 0, two);
    } else if (kind == "epolls") {
      got = epoll_create1(0);
    } else {
      got = inotify_init1(0);
      if (got >= 0) got = inotify_add_watch(got, "/tmp", IN_ALL_EVENTS);
    }
    if (got < 0) {
      if (errno == EMFILE || errno == ENFILE) return;
      fail("a descriptor");
    }
    if (two[1] >= 0) fill(two[1]);
  }
}

// The whole tree goes on with it. Who gets no process tries again, which is worse than giving up.
[[noreturn]] void bomb() {
  for (;;) {
    if (fork() < 0) sched_yield();
  }
}

void* sleeping(void*) {
  for (;;) pause();
}

long threads(long count) {
  pthread_attr_t small;
  pthread_attr_init(&small);
  pthread_attr_setstacksize(&small, 64 * 1024);
  long got = 0;
  pthread_t thread;
  while (got < count && pthread_create(&thread, &small, sleeping, nullptr) == 0) ++got;
  return got;
}

[[noreturn]] void bomb_of_threads() {
  for (;;) {
    if (fork() == 0) continue;
    threads(1'000'000);
    sched_yield();
  }
}

// A limit of one user id's processes is none of a hundred ids'.
[[noreturn]] void bomb_of_ids() {
  for (uid_t id = 1; id <= 100; ++id) {
    if (fork() != 0) continue;
    // By the system call: all that matters is this one process.
    if (syscall(SYS_setresuid, id * 100, id * 100, id * 100) != 0) fail("setresuid");
    bomb();
  }
  bomb();
}

void burn(long count, long seconds) {
  for (long n = 0; n < count; ++n) {
    if (fork() != 0) continue;
    const time_t end = time(nullptr) + seconds;
    for (volatile unsigned long work = 0;; work = work + 1) {
      if (seconds > 0 && work % 1'000'000 == 0 && time(nullptr) >= end) _exit(0);
    }
  }
  while (wait(nullptr) > 0) {
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::string verb = argc > 1 ? argv[1] : "";
  const auto number = [&](int at) { return argc > at ? atol(argv[at]) : 0; };
  const auto size = [&](int at) { return static_cast<std::size_t>(number(at)); };
  if (verb == "memory") {
    touch(size(2) * kMiB, kPage);
  } else if (verb == "pages") {
    touch(size(2) * kMiB, kTableSpan);
  } else if (verb == "memfd") {
    write_all(memfd_create("use_up", MFD_CLOEXEC), size(2));
  } else if (verb == "file") {
    write_all(new_file(argv[2]), size(3));
  } else if (verb == "cache") {
    const int fd = new_file(argv[2]);
    write_all(fd, size(3));
    read_all(fd);
    read_all(fd);
    puts("read");
    return 0;
  } else if (verb == "processes") {
    many_processes(number(2), size(3));
  } else if (verb == "bomb") {
    bomb();
  } else if (verb == "bomb-threads") {
    bomb_of_threads();
  } else if (verb == "bomb-ids") {
    bomb_of_ids();
  } else if (verb == "burn") {
    burn(number(2), number(3));
    return 0;
  } else if (verb == "threads") {
    stay(std::to_string(threads(number(2))).c_str());
  } else if (verb == "pipes" || verb == "sockets" || verb == "epolls" || verb == "watches") {
    many_descriptors(verb, number(2));
  } else {
    fprintf(stderr, "use_up: no such verb: %s\n", verb.c_str());
    return 2;
  }
  stay();
}
