// A runsc that answers as a good one does until it shall run a box; then it does what its build
// says: hangs, crashes, or ends with a message. Static, because a box's own tree has no libraries.
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstring>
#include <initializer_list>

int main(int argc, char** argv) {
  if (argc > 1 && strcmp(argv[1], "--version") == 0) {
    puts("runsc version fake");
    return 0;
  }
  if (argc > 1 && strcmp(argv[1], "flags") == 0) {
    for (const char* name : {"directfs", "file-access-mounts", "host-uds", "ignore-cgroups",
                             "overlay2", "panic-log", "qdisc"}) {
      printf("\n  -%s\n", name);
    }
    return 0;
  }
#if defined(FAKE_RUNSC_HANGS)
  for (;;) pause();
#elif defined(FAKE_RUNSC_CRASHES)
  raise(SIGSEGV);
#else
  fputs("creating container: out of luck\x1b[31m\n", stderr);
  return 128;
#endif
}
