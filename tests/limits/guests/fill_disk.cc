// Runs in a box: writes on its disk, in one of the ways in which that can be hidden from who
// counts.
//
//   fill_disk file PATH MB       writes so much into a new file
//   fill_disk deleted PATH MB    the same into one that has no name any more
//   fill_disk many PATH MB       into many that have none, half a MiB each, all open
//   fill_disk mapped PATH MB     into a mapping of a sparse file, which is closed and has no name
//   fill_disk crowd PATH MB      into files without a name, beside 500 processes that do nothing
//   fill_disk threads PATH MB    eight at once, in writes of a quarter of that
//   fill_disk moved DIR MB       into a file whose directory is moved to and fro all the time
//   fill_disk linked DIR MB      in pieces that have many names while they are written
//   fill_disk slowly PATH MB     one MiB each twentieth of a second
//   fill_disk empty DIR N        so many empty files
//   fill_disk deep DIR N         so many directories, each in the one before
//   fill_disk names PATH N MB    one file of so much with so many names: no more than one
//   fill_disk sparse PATH MB     a file of that size that takes nothing
//   fill_disk allocate PATH MB   reserves so much at once
// What works says "done" and ends.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace {

constexpr std::size_t kMiB = 1 << 20;
constexpr std::size_t kPage = 4096;
constexpr int kWriters = 8;
constexpr int kCrowd = 500;

[[noreturn]] void fail(const char* what) {
  fprintf(stderr, "%s: %s\n", what, strerror(errno));
  exit(1);
}

int new_file(const std::string& path) {
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd < 0) fail(path.c_str());
  return fd;
}

void write_bytes(int fd, std::size_t bytes, std::size_t piece = kMiB) {
  const std::vector<char> data(piece, 'x');
  while (bytes > 0) {
    const ssize_t n = write(fd, data.data(), bytes < piece ? bytes : piece);
    if (n <= 0) fail("write");
    bytes -= static_cast<std::size_t>(n);
  }
}

int nameless(const std::string& path) {
  const int fd = new_file(path);
  if (unlink(path.c_str()) != 0) fail("unlink");
  return fd;
}

void map(const std::string& path, std::size_t bytes) {
  const int fd = nameless(path);
  if (ftruncate(fd, static_cast<off_t>(bytes)) != 0) fail("ftruncate");
  auto* memory =
      static_cast<volatile char*>(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
  if (memory == MAP_FAILED) fail("mmap");
  close(fd);
  for (std::size_t at = 0; at < bytes; at += kPage) memory[at] = 1;
}

void by_many(const std::string& path, std::size_t bytes) {
  for (int n = 0; n < kWriters; ++n) {
    if (fork() != 0) continue;
    write_bytes(new_file(path + std::to_string(n)), bytes / kWriters, bytes / 4);
    _exit(0);
  }
  while (wait(nullptr) > 0) {
  }
}

void in_a_crowd(const std::string& path, std::size_t megabytes) {
  for (int n = 0; n < kCrowd; ++n) {
    const pid_t pid = fork();
    if (pid < 0) fail("fork");
    if (pid == 0) {
      pause();
      _exit(0);
    }
  }
  for (std::size_t n = 0; n < megabytes; ++n) write_bytes(nameless(path), kMiB);
}

void moved(const std::string& dir, std::size_t bytes) {
  for (const char* name : {"", "/a", "/b", "/a/at"}) mkdir((dir + name).c_str(), 0700);
  const int fd = new_file(dir + "/a/at/file");
  const pid_t mover = fork();
  if (mover == 0) {
    for (;;) {
      rename((dir + "/a/at").c_str(), (dir + "/b/at").c_str());
      rename((dir + "/b/at").c_str(), (dir + "/a/at").c_str());
    }
  }
  write_bytes(fd, bytes);
  kill(mover, SIGKILL);
}

void linked(const std::string& dir, std::size_t megabytes) {
  constexpr int kNames = 50;
  mkdir(dir.c_str(), 0700);
  for (std::size_t n = 0; n < megabytes; ++n) {
    const std::string path = dir + "/piece" + std::to_string(n);
    const int fd = new_file(path);
    for (int i = 0; i < kNames; ++i) link(path.c_str(), (path + "." + std::to_string(i)).c_str());
    write_bytes(fd, kMiB);
    for (int i = 0; i < kNames; ++i) unlink((path + "." + std::to_string(i)).c_str());
    close(fd);
  }
}

void empty(const std::string& dir, long count) {
  for (long n = 0; n < count; ++n) close(new_file(dir + "/empty" + std::to_string(n)));
}

void deep(const std::string& dir, long count) {
  if (chdir(dir.c_str()) != 0) fail("chdir");
  for (long n = 0; n < count; ++n) {
    if (mkdir("d", 0700) != 0 || chdir("d") != 0) fail("mkdir");
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) return 2;
  const std::string verb = argv[1];
  const std::string path = argv[2];
  const long number = atol(argv[3]);
  const std::size_t bytes = static_cast<std::size_t>(number) * kMiB;
  if (verb == "file") {
    write_bytes(new_file(path), bytes);
  } else if (verb == "deleted") {
    write_bytes(nameless(path), bytes);
  } else if (verb == "many") {
    for (long n = 0; n < 2 * number; ++n) write_bytes(nameless(path), kMiB / 2);
  } else if (verb == "mapped") {
    map(path, bytes);
  } else if (verb == "crowd") {
    in_a_crowd(path, static_cast<std::size_t>(number));
  } else if (verb == "threads") {
    by_many(path, bytes);
  } else if (verb == "moved") {
    moved(path, bytes);
  } else if (verb == "linked") {
    linked(path, static_cast<std::size_t>(number));
  } else if (verb == "slowly") {
    const int fd = new_file(path);
    for (long n = 0; n < number; ++n) {
      write_bytes(fd, kMiB);
      usleep(50'000);
    }
  } else if (verb == "empty") {
    empty(path, number);
  } else if (verb == "deep") {
    deep(path, number);
  } else if (verb == "names" && argc == 5) {
    write_bytes(new_file(path), static_cast<std::size_t>(atol(argv[4])) * kMiB);
    for (long n = 0; n < number; ++n) link(path.c_str(), (path + std::to_string(n)).c_str());
  } else if (verb == "sparse") {
    if (ftruncate(new_file(path), static_cast<off_t>(bytes)) != 0) fail("ftruncate");
  } else if (verb == "allocate") {
    if (fallocate(new_file(path), 0, 0, static_cast<off_t>(bytes)) != 0) fail("fallocate");
  } else {
    return 2;
  }
  puts("done");
}
