void f() { open(path, O_RDONLY); }
