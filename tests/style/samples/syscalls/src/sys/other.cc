void f() {
  mount(a, b, c, 0, nullptr);
}
