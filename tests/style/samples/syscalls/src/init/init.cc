void f() { umount2("/x", 0); }
