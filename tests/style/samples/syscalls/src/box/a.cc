#include "sys/mount.h"
// mount( in a comment
Result<void> mount(const Plan& plan);
void f() {
  TRY(sys::mount(plan));
  plan.mount();
  if (::ioctl(fd, 1) != 0) say("setns(");
  syscall(__NR_clone3, &args, size);
  int n = openat2(1, name, &how, sizeof(how));
  remount(x);
  mount(Plan{1, 2});
  return clone(f, stack, flags, nullptr);
}
