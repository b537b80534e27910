void f() {
  ::mount(a, b, c, 0, nullptr);
  syscall(SYS_openat2, 1);
}
