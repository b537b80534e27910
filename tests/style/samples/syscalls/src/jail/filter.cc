int f() {
  deny(SYS_mount);
  return setns(fd, 0);
}
