// temenos_bench: measures and prints one JSON value (report.py reads it). Run it through
// scripts/bench; docs/benchmarks.md says what the rows mean.
#include <getopt.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <charconv>
#include <cstdio>
#include <cstring>
#include <thread>

#include "base/try.h"
#include "codec/json.h"
#include "tests/bench/processes.h"
#include "tests/bench/rows.h"

namespace temenos::bench {
namespace {

namespace json = boost::json;

constexpr int kMaxBlocks = 1000;

json::array numbers(const std::vector<double>& values) {
  json::array out;
  for (const double value : values) out.emplace_back(value);
  return out;
}

json::object to_json(const Row& row) {
  json::object out{{"id", row.id}, {"kind", row.kind}, {"unit", row.unit}};
  if (!row.theirs.empty()) out["against"] = row.theirs;
  if (!row.skipped.empty()) out["skipped"] = row.skipped;
  out["ours"] = numbers(row.ours_blocks);
  out["theirs"] = numbers(row.theirs_blocks);
  if (!row.busy_blocks.empty()) out["busy"] = numbers(row.busy_blocks);
  return out;
}

Result<void> run(Plan plan) {
  adopt_orphans();
  plan.host = TRY(Host::open(plan.platform));
  const auto measured = TRY(measure(plan, [](const std::string& what) {
    if (isatty(2)) fprintf(stderr, "measuring: %s\n", what.c_str());
  }));
  json::array list;
  for (const auto& row : measured.rows) list.emplace_back(to_json(row));
  utsname kernel{};
  uname(&kernel);
  const json::object out{
      {"build", TEMENOS_BENCH_BUILD}, {"platform", measured.platform},
      {"kernel", kernel.release},     {"cpus", std::thread::hardware_concurrency()},
      {"root", geteuid() == 0},       {"rows", list}};
  puts(serialize_json(out).c_str());
  return {};
}

std::string beside(const std::string& name) {
  char path[4096];
  const ssize_t size = readlink("/proc/self/exe", path, sizeof path);
  std::string program(path, size > 0 ? static_cast<std::size_t>(size) : 0);
  return program.substr(0, program.rfind('/') + 1) + name;
}

int usage() {
  fputs("usage: temenos_bench [--platform NAME] [--blocks N] [--only PREFIX]\n", stderr);
  return 2;
}

}  // namespace
}  // namespace temenos::bench

int main(int argc, char** argv) {
  using namespace temenos;
  using namespace temenos::bench;
  Plan plan;
  plan.guest = beside("bench_guest");
  plan.net_guest = beside("bench_net_guest");
  plan.temenos = beside("../bin/temenos");
  const option options[] = {{"platform", required_argument, nullptr, 'p'},
                            {"blocks", required_argument, nullptr, 'b'},
                            {"only", required_argument, nullptr, 'o'},
                            {nullptr, 0, nullptr, 0}};
  int option = 0;
  while ((option = getopt_long(argc, argv, "", options, nullptr)) != -1) {
    if (option == 'p') {
      plan.platform = optarg;
    } else if (option == 'o') {
      plan.only = optarg;
    } else if (option == 'b') {
      const auto parsed = std::from_chars(optarg, optarg + strlen(optarg), plan.blocks);
      if (*parsed.ptr != '\0' || plan.blocks < 1 || plan.blocks > kMaxBlocks) return usage();
    } else {
      return usage();
    }
  }
  if (optind != argc) return usage();
  const auto done = run(std::move(plan));
  if (done) return 0;
  fprintf(stderr, "temenos_bench: %s\n", done.error().to_string().c_str());
  return 1;
}
