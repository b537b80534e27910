namespace temenos {
// A comment with a { brace, and literals with others below.
constexpr int kTable[] = {
    1,
    2,
    3,
    4,
    5,
};

struct Record {
  int first = 0;
  int second = 0;
  int third = 0;
  int fourth = 0;
  void short_method() { step(1); }
};

void just_short_enough() {
  step(1);
  step(1);
  step(1);
  step(1);
  step(2);
  step(3);
}

template <typename T>
void too_long(T value) {
  say("}", '}', R"(})");
  step(1'000);
  step(1);
  step(1);
  step(1);
  step(2);
  step(3);
}

Record::Record() : first_{1}, second_{2} {
  step(1);
  step(1);
  step(1);
  step(1);
  step(2);
  step(3);
  step(4);
}

#define TWO_LINES(x) \
  if (x) {
void balanced(bool a) {
#ifdef PLANT
  if (a) {
#else
  if (!a) {
#endif
  }
}
void after() {}

bool operator<(const Record& a, const Record& b) { return a.first < b.first; }

class Owner {
  void method_too_long() {
    step(1);
    step(1);
    step(1);
    if (step(1)) {
      step(2);
      step(3);
    }
  }
};
}  // namespace temenos
