Task f(int n) {
  co_await run([n] { use(n); });
  co_await run([] { use(); });
  co_await run(Options{1});
  co_await run(Options{
      .a = 1});
  co_await run(options, list[0]);
  // co_await run({1});
  auto job = [n] { use(n); };
  co_await run(job);
}
