#include <fstream>
void f(Parser& parser) {
  int a = open(path, O_RDONLY | O_CLOEXEC);
  int b = open(path, O_RDONLY);
  int c = ::openat(dir, name,
                   O_RDONLY | O_NOFOLLOW);
  if (socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0) < 0) return;
  if (socket(AF_UNIX, SOCK_STREAM, 0) < 0) return;
  pipe(ends);
  pipe2(ends, O_CLOEXEC);
  parser.open(path, 0);
  open(true);
  dup2(a, 0);
  accept(a, nullptr, nullptr);
  std::ifstream stream(path);
  FILE* d = fopen(path, "re");
  FILE* e = fopen(path, "r");
  recvmsg(a, &message, MSG_CMSG_CLOEXEC);
  recvmsg(a, &message, 0);
  fcntl(a, F_DUPFD_CLOEXEC, 3);
}
